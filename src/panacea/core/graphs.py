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

    Libraries make themselves ready for a thread when they are first used, which they must not do during a capture; so
    the same is done once beforehand. Nothing is collected meanwhile: an old graph that Python frees would break the
    capture.

    cuBLAS writes a workspace that torch keeps for each stream, and a graph would go on writing the one of the stream it
    was captured in. torch has 32 streams to give, so two graphs that are replayed at the same time could write the same
    one. Without any when the capture begins, the graph gets one of its own.

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
    torch._C._cuda_clearCublasWorkspaces()
    try:
        with torch.cuda.graph(graph, stream=side):
            yield
    finally:
        torch._C._cuda_clearCublasWorkspaces()  # or the next product in that stream would write this graph's
        if enabled:
            gc.enable()
