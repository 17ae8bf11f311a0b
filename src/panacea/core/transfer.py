"""Small arrays on their way to the device."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

__all__ = ["on_device"]


def on_device(values: npt.NDArray[Any], device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """The array as a tensor there.

    On a GPU nobody waits for what is queued before it: CUDA has read the array by the time the call returns.
    """
    tensor = torch.from_numpy(values)
    return tensor.to(device, tensor.dtype if dtype is None else dtype, non_blocking=True)
