"""Streams that know what has happened before what.

Everything runs at once and in the order in which it is launched, so no stream ever overtakes another here. But on a GPU
it may, unless somebody waits. So each stream counts what was launched in it, and remembers how far it knows others to
be (a vector clock). Memory remembers who wrote it and who has read it since. Whoever reads what another stream has
written without having waited for that, or writes what another may still read, or is given memory that another may still
use because its owner let go of it, has a `RaceError`.

torch has 32 queues to give: the 33rd stream is the first one again. And cuBLAS has a workspace for each of them, which
every product in that queue writes, also one that is recorded there and replayed elsewhere.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import torch
from torch import Tensor
from torch._subclasses import FakeTensor

if TYPE_CHECKING:
    from tests.gpu.tensors import GpuTensor

__all__ = ["Event", "Machine", "Memory", "RaceError", "Stream", "place_of"]

Clock = dict[int, int]
_QUEUES = 32


class RaceError(RuntimeError):
    """Two streams use the same memory, and nothing says which of them comes first."""


class Event:
    """A place in a stream."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock: Clock = clock or {}

    def record(self, stream: Stream) -> None:
        self.clock = dict(stream.clock)

    def query(self) -> bool:
        return True


class Stream:
    """A queue of work: the one that is always there, or the next of those there are to give."""

    def __init__(self, machine: Machine, *, always: bool = False) -> None:
        place = 0 if always else 1 + next(machine.given) % _QUEUES
        self.machine, self.number = machine, machine.first + place
        self.clock = machine.clocks.setdefault(self.number, {self.number: 0})

    def wait_stream(self, other: Stream) -> None:
        _merge(self.clock, other.clock)

    def wait_event(self, event: Event) -> None:
        _merge(self.clock, event.clock)

    def record_event(self, event: Event | None = None) -> Event:
        found = event or Event()
        found.record(self)
        return found

    def synchronize(self) -> None:
        _merge(self.machine.host, self.clock)


class Memory:
    """What tensors share that look at the same numbers."""

    def __init__(self, machine: Machine, home: int | None) -> None:
        self.machine, self.home = machine, home  # the stream that gets it back; nobody, if it is a captured graph's
        self.written: tuple[int, int] | None = None
        self.used: Clock = {}  # since it was written, and by whom it was written

    def __del__(self) -> None:
        if self.home is not None:
            self.machine.freed.setdefault(self.home, []).append(self.used)


class Machine:
    """The streams, the host's knowledge of them, and how often the host has waited."""

    _firsts = itertools.count(step=_QUEUES + 1)

    def __init__(self, capturing: Callable[[], bool]) -> None:
        self.capturing = capturing
        self.restart()

    def restart(self) -> None:
        """As if nothing had been launched."""
        self.host: Clock = {}
        self.clocks: dict[int, Clock] = {}  # of each queue
        self.first = next(self._firsts)  # numbers never come again: what is left of a former test is not mistaken
        self.given = itertools.count()
        self.current = Stream(self, always=True)
        self.workspaces: dict[int, GpuTensor] = {}  # of each queue
        self.waits: Counter[str] = Counter()
        self.lenient = False  # about operands that are not on the GPU
        self._memories: WeakValueDictionary[int, Memory] = WeakValueDictionary()
        self.freed: dict[int, list[Clock]] = {}

    @contextlib.contextmanager
    def on(self, stream: Stream) -> Iterator[None]:
        """What is launched inside is launched in this stream."""
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    def wait(self, what: object, *, all_streams: bool = False) -> None:
        """The host waits for what was launched in the current stream."""
        self.waits[str(what)] += 1
        for clock in list(self.clocks.values()) if all_streams else (self.current.clock,):
            _merge(self.host, clock)

    def memory(self, held: Tensor) -> Memory:
        """That of a tensor; new where no other tensor looks at the same numbers."""
        place = 0 if isinstance(held, FakeTensor) else place_of(held)
        found = self._memories.get(place) if place else None
        if found is None:
            found = Memory(self, None if self.capturing() else self.current.number)
            if place:
                self._memories[place] = found
                self._reuse()
        return found

    def touch(self, reads: Iterable[GpuTensor], writes: Iterable[GpuTensor], what: object) -> None:
        """Something is launched in the current stream; during a capture, nothing is."""
        if self.capturing():
            return
        stream = self.current
        _merge(stream.clock, self.host)
        read, changed = {one.memory for one in reads}, {one.memory for one in writes}
        for memory in read | changed:
            self._refuse(f"{what} uses what", "may still write", dict([memory.written] if memory.written else []))
        for memory in changed:
            self._refuse(f"{what} writes what", "may still read", memory.used)
        stream.clock[stream.number] += 1
        now = stream.clock[stream.number]
        for memory in read:
            memory.used[stream.number] = now
        for memory in changed:
            memory.written, memory.used = (stream.number, now), {stream.number: now}

    def _reuse(self) -> None:
        """CUDA's allocator gives what was freed to whoever asks next in the stream it had been made for."""
        if self.capturing():
            return
        _merge(self.current.clock, self.host)
        for used in self.freed.pop(self.current.number, []):
            self._refuse("new memory is what", "may still use", used)

    def _refuse(self, what: str, does: str, used: Clock) -> None:
        """Unless the current stream has waited for all of these places."""
        for other, place in used.items():
            if self.current.clock.get(other, 0) < place:
                raise RaceError(f"in stream {self.current.number} {what} stream {other} {does}")


def place_of(held: Tensor) -> int:
    """Where its numbers are."""
    return (held if held.layout == torch.strided else held.values()).untyped_storage().data_ptr()


def _merge(clock: Clock, other: Clock) -> None:
    for stream, count in other.items():
        if clock.get(stream, 0) < count:
            clock[stream] = count
