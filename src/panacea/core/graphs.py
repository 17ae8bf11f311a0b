"""Capturing CUDA graphs."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

import torch

__all__ = ["captured_in"]


@contextlib.contextmanager
def captured_in(graph: torch.cuda.CUDAGraph) -> Iterator[None]:
    """What is launched inside is recorded, not run.

    Nothing is collected meanwhile: an old graph or tensor that Python frees during a capture breaks it.
    """
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        with torch.cuda.graph(graph):
            yield
    finally:
        if enabled:
            gc.enable()
