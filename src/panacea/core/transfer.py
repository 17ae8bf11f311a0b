"""Small arrays and constants on their way to the device."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

__all__ = ["beside", "on_device"]

_copies = WeakTensorKeyDictionary()  # of constants, by device


def on_device(values: npt.NDArray[Any], device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """The array as a tensor there.

    On a GPU nobody waits for what is queued before it: CUDA has read the array by the time the call returns.
    """
    tensor = torch.from_numpy(values)
    return tensor.to(device, tensor.dtype if dtype is None else dtype, non_blocking=True)


def beside(constant: Tensor, like: Tensor) -> Tensor:
    """A constant on the device of another tensor, copied there once: a captured step cannot copy from the host."""
    if constant.device == like.device:
        return constant
    known: dict[torch.device, Tensor] = _copies.setdefault(constant, {})
    if like.device not in known:
        known[like.device] = constant.to(like.device)
    return known[like.device]
