"""Capturing CUDA graphs."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator

import torch

__all__ = ["captured_in"]


@contextlib.contextmanager
def captured_in(graph: torch.cuda.CUDAGraph, warm_up: Callable[[], object]) -> Iterator[None]:
    """What is launched inside is recorded, not run.

    Libraries keep a workspace for every thread and stream, which they must not make during a capture; so the same is
    done once beforehand. Nothing is collected meanwhile: an old graph that Python frees would break the capture.

    Args:
        graph: gets the recording.
        warm_up: launches the same kernels; what it writes does not matter.
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        warm_up()
    torch.cuda.current_stream().wait_stream(side)
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        with torch.cuda.graph(graph, stream=side):
            yield
    finally:
        if enabled:
            gc.enable()
