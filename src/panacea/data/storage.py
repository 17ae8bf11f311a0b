"""How samples may be stored: windows as views of one series, images as bytes, everything an ordinary tensor.

Windows that overlap share their memory: ``x[i]`` and ``x[i + 1]`` of a series with stride-1 windows of 12 steps have 11
steps in common, and no step is stored twice. Selecting rows of such a tensor (`index_select`, slices) copies what is
selected only; `moved` and `contents` are for the few places that want all of it.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["contents", "decoded", "moved", "window_views"]


def window_views(inputs: Tensor, targets: Tensor, length: int, horizon: int) -> tuple[Tensor, Tensor]:
    """All stride-1 windows of a series, as views.

    Args:
        inputs: ``[steps, features]``, contiguous; the series of all clients, one after the other.
        targets: ``[steps]``, contiguous.
        length: steps of an input.
        horizon: steps of a target; it begins where the input ends.

    Returns:
        ``x [windows, length, features]`` and ``y [windows, horizon]`` with ``windows = steps - length - horizon + 1``.
        Windows that reach from one client's series into the next are among them; nobody refers to those.

    >>> x, y = window_views(torch.arange(5.0)[:, None], torch.arange(5.0), 2, 1)
    >>> x[2].tolist(), y[2].tolist()
    ([[2.0], [3.0]], [4.0])
    """
    steps, features = inputs.shape
    windows = steps - length - horizon + 1
    x = inputs.as_strided((windows, length, features), (features, features, 1))
    return x, targets.as_strided((windows, horizon), (1, 1), length)


def contents(tensor: Tensor) -> Tensor:
    """The values behind a tensor, each once: ``[values]``, a view where the tensor's rows overlap, else all of it."""
    return _base(tensor) if _overlaps(tensor) else tensor.reshape(-1)


def moved(tensor: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    """`tensor` on a device and in a type; overlapping rows stay overlapping instead of being copied apart."""
    if not _overlaps(tensor):
        return tensor.to(device, dtype)
    base = _base(tensor).to(device, dtype)  # a copy begins at 0; without one it begins where the tensor does
    return base.as_strided(tensor.shape, tensor.stride(), base.storage_offset())


def decoded(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Inputs as numbers: bytes stand for 256 steps of [0, 1], anything else for itself."""
    return x.to(dtype).div_(255) if x.dtype == torch.uint8 else x.to(dtype)


def _overlaps(tensor: Tensor) -> bool:
    return tensor.numel() > _extent(tensor)


def _extent(tensor: Tensor) -> int:
    """Stored values from a tensor's first to its last."""
    return 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))


def _base(tensor: Tensor) -> Tensor:
    return tensor.as_strided((_extent(tensor),), (1,))
