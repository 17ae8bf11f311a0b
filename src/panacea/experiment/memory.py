"""How much memory a run took."""

from __future__ import annotations

import sys

import torch

__all__ = ["peak_memory"]


def peak_memory(device: str) -> int | None:
    """The most bytes that this process ever had at a time, whatever it ran before; None where nobody counts.

    Args:
        device: on a GPU its tensors, on a CPU all of the process.
    """
    if device != "cpu":
        return torch.cuda.max_memory_allocated()
    try:
        import resource  # noqa: PLC0415  (not on every system)
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
