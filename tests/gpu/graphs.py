"""Graphs that are recorded and replayed, operation by operation.

What is launched during a capture is not done on a GPU. Here it is done, or nobody would know the shapes of what comes
out; when the capture ends, what it has written is put back, and what it has made is filled with numbers that nobody can
mistake for results. A replay runs the same operations on the same memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten

if TYPE_CHECKING:
    from tests.gpu.streams import Machine
    from tests.gpu.tensors import GpuTensor

__all__ = ["Graph", "Operation", "Recording", "capturing"]


@dataclass
class Operation:
    """One that was launched."""

    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: Any

    def again(self, made: Container[int]) -> None:
        """Run it, and put what it makes where it was; what looks at other memory (a view) is there already."""
        new = self.func(*self.args, **self.kwargs)
        for place, value in zip(tree_flatten(self.out)[0], tree_flatten(new)[0], strict=True):
            if isinstance(place, Tensor) and _place(place) in made and _place(value) != _place(place):
                place.copy_(value)


class Recording:
    """What is being captured."""

    now: Recording | None = None

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.before: dict[int, tuple[Tensor, Tensor]] = {}  # what was written, and what had been there
        self.made: dict[int, Tensor] = {}
        self.reads: list[GpuTensor] = []
        self.writes: list[GpuTensor] = []

    @classmethod
    def save(cls, written: Iterable[Tensor]) -> None:
        """During a capture: keep what an operation is about to overwrite, if it was there before."""
        if cls.now is None:
            return
        for tensor in written:
            if _place(tensor) not in cls.now.before and _place(tensor) not in cls.now.made:
                whole = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
                cls.now.before[_place(tensor)] = whole, whole.clone()

    @classmethod
    def note(cls, operation: Operation, read: list[GpuTensor], changed: list[GpuTensor], made: list[GpuTensor]) -> None:
        """During a capture: an operation that has run."""
        if cls.now is None:
            return
        cls.now.operations.append(operation)
        cls.now.made |= {_place(one.held): one.held for one in made}
        cls.now.reads += read
        cls.now.writes += changed + made


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def capturing() -> bool:
    """Whether a graph is being captured."""
    return Recording.now is not None


class Graph:
    """`torch.cuda.CUDAGraph`."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.recording: Recording | None = None

    @contextlib.contextmanager
    def recorded(self) -> Iterator[None]:
        """What is launched inside becomes the graph."""
        assert Recording.now is None, "a capture within a capture"
        Recording.now = recording = Recording()
        try:
            yield
        finally:
            Recording.now = None
            for whole, value in recording.before.values():
                whole.copy_(value)
            for one in recording.made.values():
                one.fill_(float("nan") if one.is_floating_point() else _NEVER.get(one.dtype, 1))
        self.recording = recording

    def replay(self) -> None:
        """All operations once more, on what is there now."""
        assert self.recording is not None, "nothing was captured"
        assert Recording.now is None, "a replay within a capture"
        with torch.no_grad():
            for one in self.recording.operations:
                one.again(self.recording.made)
        self.machine.touch(self.recording.reads, self.recording.writes, what="a captured graph")


_NEVER = {torch.int64: 2**40, torch.int32: 2**30, torch.bool: True}
