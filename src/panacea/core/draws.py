"""The batches of `random.sample_batches` drawn on a GPU: the same positions, without a trip through the host.

A round of many small clients would otherwise wait for NumPy longer than it trains. Words are 64 bits; torch has signed
integers only, so comparisons flip the sign bit and shifts cut off what the sign would fill in.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from panacea.core.random import Keys, sample_batches, torch_mix
from panacea.core.transfer import on_device

__all__ = ["counters", "device_batches", "drawn_at_once", "drawn_batches", "even_batches"]

_GOLDEN = -0x61C8864680B583EB  # as signed 64 bits
_SIGN = -(2**63)


def drawn_batches(keys: Keys, counts: npt.NDArray[np.int64], steps: int, batch: int, device: torch.device) -> Tensor:
    """``[steps, rows, width]`` as `sample_batches`, drawn where they are needed: CPUs are faster with NumPy."""
    if device.type == "cpu":
        return torch.from_numpy(sample_batches(keys, counts, steps, batch))
    return device_batches(keys, counts, steps, batch, device)


def device_batches(keys: Keys, counts: npt.NDArray[np.int64], steps: int, batch: int, device: torch.device) -> Tensor:
    """``[steps, rows, width]`` as `sample_batches`, on a device."""
    width = int(min(batch, counts.max()))
    words = on_device(keys.view(np.int64), device)
    sizes = np.unique(counts)
    if len(sizes) == 1:
        return even_batches(words, int(sizes[0]), steps, width)
    out = torch.zeros((len(keys), steps, width), dtype=torch.int64, device=device)
    for n in sizes:
        rows = on_device(np.flatnonzero(counts == n), device)
        size = int(min(batch, n))
        out[rows, :, :size] = _draw(words[rows], int(n), steps, size)
    return out.transpose(0, 1).contiguous()


def even_batches(words: Tensor, n: int, steps: int, width: int) -> Tensor:
    """``[steps, rows, width]`` for rows that all have n samples, from the words of their keys."""
    return _draw(words, n, steps, width).transpose(0, 1).contiguous()


def drawn_at_once(n: int, width: int) -> bool:
    """Whether such batches are a fixed sequence of operations: no look at values whether to draw again."""
    return n <= 8 * width


_made: dict[torch.device, list[Tensor]] = {}  # the longest is the last; a lane may still read one that was too short


def counters(count: int, device: torch.device) -> Tensor:
    """``[count]``: what a key is mixed with for each of its numbers."""
    made = _made.setdefault(device, [])
    if not made or len(made[-1]) < count:
        length = max(count, 2 * len(made[-1]) if made else 0)
        made.append(torch_mix(torch.arange(1, length + 1, dtype=torch.int64, device=device) * _GOLDEN))
        if device.type == "cuda" and not torch.cuda.is_current_stream_capturing():
            torch.cuda.current_stream(device).synchronize()  # whoever asks next may be in another lane
    return made[-1][:count]


def _bits(keys: Tensor, count: int) -> Tensor:
    return torch_mix(keys[..., None] ^ counters(count, keys.device))


def _positions(keys: Tensor, n: int, steps: int, size: int) -> Tensor:
    words = (_bits(keys, steps * size) >> 11) & (2**53 - 1)
    return ((words.to(torch.float64) * 2.0**-53) * n).to(torch.int64).reshape(len(keys), steps, size)


def _draw(keys: Tensor, n: int, steps: int, size: int) -> Tensor:
    """``[rows, steps, size]``; see `random._draw`, which this follows line by line."""
    if drawn_at_once(n, size):
        order = (_bits(keys, steps * n) ^ _SIGN).reshape(len(keys), steps, n).argsort(dim=-1)
        return order if size == n else order[..., :size].sort(dim=-1).values
    drawn, redrawn = _positions(keys, n, steps, size), keys
    while True:
        ranked, order = drawn.sort(dim=-1, stable=True)
        repeat = torch.zeros_like(drawn, dtype=torch.bool)
        repeat.scatter_(-1, order[..., 1:], ranked[..., 1:] == ranked[..., :-1])
        if not bool(repeat.any()):
            return drawn
        redrawn = torch_mix(redrawn ^ _GOLDEN)
        drawn = torch.where(repeat, _positions(redrawn, n, steps, size), drawn)
