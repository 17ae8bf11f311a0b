r"""Heads: from a client's features ``F [rows, f]`` to the generated parameters ``[rows, P]``.

    full      theta = W F + b                           one linear head per tensor of the network, stored as one matrix
    low_rank  theta = V (U F) + b                       rank r: P r + r f weights instead of P f
    chunked   theta_j = B relu(A F + C c_j + d) + b_j   one small network makes every chunk j; a learnt c_j says which

b is one ordinary initialisation of the target network (or pre-trained weights) and the weights in front of it are
small, so that round 0 sends every client a sane model. A default Linear initialisation would give every tensor of the
target network the scale of the hypernetwork's layers instead of its own.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from panacea.errors import RequestError
from panacea.hypernets.descent import Outer, Slopes
from panacea.hypernets.encoders import linear_init

__all__ = ["Head", "HeadKind"]

HeadKind: TypeAlias = Literal["full", "low_rank", "chunked"]
CODE = 16  # width of a chunk's learnt code


@dataclass(frozen=True)
class Head:
    """The shape of a head; its weights are passed in.

    Attributes:
        kind: see the module.
        features: f.
        size: P, generated parameters.
        rank: r of a low-rank head.
        chunk: parameters per chunk of a chunked head.
        scale: typical size of what is added to b before any training.
    """

    kind: HeadKind
    features: int
    size: int
    rank: int = 8
    chunk: int = 1024
    scale: float = 0.1

    @property
    def chunks(self) -> int:
        """Number of chunks."""
        return math.ceil(self.size / self.chunk)

    @property
    def weights(self) -> int:
        """Number of weights, b included."""
        if self.kind == "full":
            return self.size * (self.features + 1)
        if self.kind == "low_rank":
            return self.size * (self.rank + 1) + self.rank * self.features
        return self.size + self.features * (self.features + CODE + 1) + self.chunks * CODE + self.chunk * self.features

    def outer(self, parts: Mapping[str, Tensor], features: Tensor, slope: Tensor) -> Slopes:
        """The loss by the features and the bias of a full head, and the gradient of its matrix as two factors.

        Args:
            parts: the weights.
            features: ``[rows, f]`` with their history.
            slope: ``[rows, P]`` of the loss in the models made of them.
        """
        pairs = [(features, slope @ parts["head.weight"]), (parts["head.bias"], slope.sum(dim=0))]
        return Slopes(pairs, Outer(slope, features.detach()))

    def refuse_too_large(self, like: Tensor, copies: int) -> None:
        """Say so before anything is made, where this machine cannot hold what the server's steps need."""
        needed = copies * self.weights * like.element_size()
        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if like.is_cuda:
            there = torch.cuda.mem_get_info(like.device)[1]
        if needed > there:
            lighter = "" if copies <= 3 else "method.optimiser=sgd (half of it), "
            raise RequestError(
                f"method.heads={self.kind}: to generate {self.size:,} parameters the server needs about "
                f"{needed / 2**30:,.0f} GiB of memory, and there are {there / 2**30:,.0f}; use {lighter}heads=low_rank "
                "or heads=chunked, or generate a part of the network where the method has method.scope (scope=last)"
            )

    def init(self, start: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
        """Fresh weights by name; `start` ``[P]`` becomes the bias."""

        def normal(rows: int, columns: int, scale: float) -> Tensor:
            drawn = torch.randn(rows, columns, generator=generator, dtype=torch.float32)
            return drawn.mul_(scale / math.sqrt(columns))

        parts = {"head.bias": start}
        if self.kind == "full":
            parts["head.weight"] = normal(self.size, self.features, self.scale)
        elif self.kind == "low_rank":
            parts["head.inner"] = normal(self.rank, self.features, 1.0)
            parts["head.outer"] = normal(self.size, self.rank, self.scale)
        else:
            inner = linear_init(self.features, self.features + CODE, generator)
            parts["head.inner"], parts["head.offset"] = inner[:, :-1], inner[:, -1]
            parts["head.codes"] = normal(self.chunks, CODE, math.sqrt(CODE))
            parts["head.outer"] = normal(self.chunk, self.features, self.scale)
        return parts

    def __call__(self, parts: Mapping[str, Tensor], features: Tensor) -> Tensor:
        """``[rows, f] -> [rows, P]``."""
        bias = parts["head.bias"]
        if self.kind == "full":
            return functional.linear(features, parts["head.weight"], bias)
        if self.kind == "low_rank":
            return functional.linear(features @ parts["head.inner"].T, parts["head.outer"], bias)
        own, code = parts["head.inner"].split([self.features, CODE], dim=1)
        hidden = (features @ own.T).unsqueeze(1) + parts["head.codes"] @ code.T + parts["head.offset"]
        chunks = torch.relu(hidden) @ parts["head.outer"].T  # [rows, chunks, chunk]
        return chunks.flatten(1)[:, : self.size] + bias
