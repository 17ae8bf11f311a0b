"""How exactly a GPU or CPU multiplies matrices: `float32` (or float64), `tf32`, `bf16`; and whether always alike.

`tf32` keeps float32's range with ten bits of fraction in matrix products and convolutions; everything else stays
exact. `bf16` runs the network in bfloat16 (eight bits) by torch's autocast; losses, gradients of parameters, steps and
the server stay in float32. Both are choices of the user, never defaults: they change results, and are part of a run's
identity. `deterministic` lets a GPU use only routines that add up in one order, so that two runs give the same bits.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from panacea.errors import RequestError, unknown
from panacea.models.target import Given

__all__ = ["PRECISIONS", "Precision"]

PRECISIONS = ("float32", "tf32", "bf16")


@dataclass(frozen=True)
class Precision:
    """A named precision on a device.

    Attributes:
        name: `float32` (as the data type says), `tf32` or `bf16`.
        device: where.
        deterministic: on a GPU, only routines that add up in one order.
    """

    name: str
    device: torch.device
    deterministic: bool = False

    def __post_init__(self) -> None:
        if self.name not in PRECISIONS:
            raise unknown("engine.precision", self.name, PRECISIONS)
        if self.name == "tf32" and self.device.type != "cuda":
            raise RequestError("engine.precision=tf32 needs device=cuda; use float32 or bf16 on a CPU")
        if self.deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what cuBLAS asks for

    @contextlib.contextmanager
    def of_products(self) -> Iterator[None]:
        """Matrix products and convolutions inside are in this precision; afterwards as before."""
        if self.device.type != "cuda":
            yield
            return
        cudnn: Any = torch.backends.cudnn
        wanted = (
            (torch.backends.cuda.matmul, "allow_tf32", self.name == "tf32"),
            (cudnn, "allow_tf32", self.name == "tf32"),
            (cudnn, "deterministic", self.deterministic),
        )
        before = [getattr(place, name) for place, name, _ in wanted]
        strict = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
        try:
            for place, name, value in wanted:
                setattr(place, name, value)
            torch.use_deterministic_algorithms(self.deterministic, warn_only=True)
            yield
        finally:
            for (place, name, _), value in zip(wanted, before, strict=True):
                setattr(place, name, value)
            torch.use_deterministic_algorithms(strict[0], warn_only=strict[1])

    def of_network(self) -> contextlib.AbstractContextManager[object]:
        """Around a forward pass."""
        if self.name != "bf16":
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    def of_loss(self, outputs: Given) -> Given:
        """What the network gave, as exact numbers again."""
        if self.name != "bf16":
            return outputs
        return outputs.float() if isinstance(outputs, Tensor) else (outputs[0].float(), outputs[1].float())
