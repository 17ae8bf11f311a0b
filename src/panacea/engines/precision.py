"""How exactly matrix products are computed: `float32` (or float64), `tf32` on a GPU, or `bf16`.

`tf32` keeps float32's range with ten bits of fraction in matrix products and convolutions; everything else stays
exact. `bf16` runs the network in bfloat16 (eight bits) by torch's autocast; losses, gradients of parameters, steps and
the server stay in float32. Both are choices of the user, never defaults: they change results, and are part of a run's
identity.
"""

from __future__ import annotations

import contextlib
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
    """A named precision on a device."""

    name: str
    device: torch.device

    def __post_init__(self) -> None:
        if self.name not in PRECISIONS:
            raise unknown("engine.precision", self.name, PRECISIONS)
        if self.name == "tf32" and self.device.type != "cuda":
            raise RequestError("engine.precision=tf32 needs device=cuda; use float32 or bf16 on a CPU")

    @contextlib.contextmanager
    def of_products(self) -> Iterator[None]:
        """Matrix products and convolutions inside are in this precision; afterwards as before."""
        if self.device.type != "cuda":
            yield
            return
        places: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn)
        before = [place.allow_tf32 for place in places]
        try:
            for place in places:
                place.allow_tf32 = self.name == "tf32"
            yield
        finally:
            for place, value in zip(places, before, strict=True):
                place.allow_tf32 = value

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
