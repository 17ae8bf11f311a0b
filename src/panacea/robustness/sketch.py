"""Short stand-ins for long vectors, whose inner products are those of the vectors on average."""

from __future__ import annotations

import torch
from torch import Tensor

from panacea.core.random import Streams

__all__ = ["Sketch"]


class Sketch:
    r"""``[rows, D] -> [rows, min(D, size)]``: signed coordinates, shuffled into `size` equal heaps and added up.

        s_b(x) = sum_{j in heap b} sign_j x_j,    E <s(x), s(y)> = <x, y>,    std about ||x|| ||y|| / sqrt(size)

    The count sketch (Charikar, Chen, Farach-Colton 2002) with heaps of equal size: two numbers per coordinate instead
    of a projection matrix, and one sum in a fixed order, so that it is the same on every run. Vectors that are no
    longer than `size` stay as they are. Heaps and signs follow from the experiment's seed, so they are not stored.
    """

    def __init__(self, size: int, streams: Streams) -> None:
        self.size, self.streams = size, streams
        self._made: tuple[int, Tensor, Tensor] | None = None

    def __call__(self, vectors: Tensor) -> Tensor:
        """The sketches of these rows."""
        width = vectors.shape[1]
        if width <= self.size:
            return vectors
        order, signs = self._heaps(vectors)
        shuffled = torch.nn.functional.pad(vectors * signs, (0, len(order) - width))[:, order]
        return shuffled.reshape(len(vectors), self.size, -1).sum(dim=2)

    def _heaps(self, like: Tensor) -> tuple[Tensor, Tensor]:
        width = like.shape[1]
        if self._made is None or self._made[0] != width:
            stream = self.streams.torch("sketch")
            order = torch.randperm(-(-width // self.size) * self.size, generator=stream)
            signs = 2.0 * torch.randint(2, (width,), generator=stream) - 1
            self._made = width, order.to(like.device), signs.to(like)
        return self._made[1:]
