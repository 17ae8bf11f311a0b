"""A model is a flat vector with a layout.

`Parameters` is a tensor ``[..., P]``: ``[P]`` for one client, ``[rows, P]`` for many. Arithmetic of methods happens on
the flat vector; a `Layout` says which slice is which tensor of the network, for those who need the parts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import torch
from torch import Tensor

__all__ = ["Layout", "Parameters", "cosine", "squared_norm", "unit"]

Parameters: TypeAlias = Tensor


@dataclass(frozen=True)
class Layout:
    """Names and shapes of the tensors in a flat vector, in order.

    >>> layout = Layout.of({"w": torch.zeros(2, 3), "b": torch.zeros(2)})
    >>> layout.size, layout.slices["b"]
    (8, slice(6, 8, None))
    >>> {name: tuple(t.shape) for name, t in layout.unflatten(torch.zeros(5, 8)).items()}
    {'w': (5, 2, 3), 'b': (5, 2)}
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Layout:
        """The layout of named tensors."""
        return cls(tuple(tensors), tuple(tuple(t.shape) for t in tensors.values()))

    @cached_property
    def sizes(self) -> list[int]:
        """Number of entries of each tensor."""
        return [math.prod(shape) for shape in self.shapes]

    @cached_property
    def size(self) -> int:
        """P, the length of the vector."""
        return sum(self.sizes)

    @cached_property
    def slices(self) -> dict[str, slice]:
        """Where each tensor lies in the vector."""
        out, start = {}, 0
        for name, size in zip(self.names, self.sizes, strict=True):
            out[name] = slice(start, start + size)
            start += size
        return out

    def parts(self, vector: Tensor) -> list[Tensor]:
        """The tensors in order, ``[..., P] -> [..., *shape]``; one split, so that its backward pass is one join."""
        lead = vector.shape[:-1]
        pieces = torch.split_with_sizes(vector, self.sizes, dim=-1)
        return [
            piece if len(shape) == 1 else piece.view(lead + shape)
            for piece, shape in zip(pieces, self.shapes, strict=True)
        ]

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        """The inverse of `parts`."""
        lead = parts[0].shape[: parts[0].dim() - len(self.shapes[0])]
        return torch.cat(
            [
                part if len(shape) == 1 else part.reshape((*lead, size))
                for part, shape, size in zip(parts, self.shapes, self.sizes, strict=True)
            ],
            dim=-1,
        )

    def unflatten(self, vector: Tensor) -> dict[str, Tensor]:
        """`parts` by name."""
        return dict(zip(self.names, self.parts(vector), strict=True))

    def flatten(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Named tensors with equal leading dims as one vector ``[..., P]``."""
        return self.join([tensors[name] for name in self.names]) if self.names else torch.zeros(0)


def squared_norm(vector: Tensor) -> Tensor:
    """``||v||^2`` over the last axis, kept as ``[..., 1]``."""
    return (vector * vector).sum(dim=-1, keepdim=True)


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """Cosine over the last axis, kept as ``[..., 1]``; 0 where a vector is zero."""
    return (unit(a) * unit(b)).sum(dim=-1, keepdim=True)


def unit(vector: Tensor) -> Tensor:
    """The vector over its norm (0 stays 0); scaled by its largest entry first, whose square might underflow."""
    scaled = vector / vector.abs().amax(dim=-1, keepdim=True).clamp_min(torch.finfo(vector.dtype).tiny)
    return scaled / squared_norm(scaled).sqrt().clamp_min(1e-30)
