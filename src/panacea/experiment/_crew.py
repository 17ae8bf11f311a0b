"""Those who do the jobs of a batch, seen from the process that hands them out; and a crew of processes.

`panacea.experiment._ray_crew` has another crew, on a cluster.
"""

from __future__ import annotations

import abc
import contextlib
import multiprocessing
import signal
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from panacea.errors import RequestError
from panacea.experiment._worker import work
from panacea.experiment.batch import Finished, Given, Job, Listener, Stop, interrupted
from panacea.experiment.interrupt import Interrupter

__all__ = ["Crew", "Member", "run_in_processes", "run_with"]

_GLANCE = 0.2  # seconds between two looks for Ctrl-C
_context = multiprocessing.get_context("spawn")  # torch and its threads do not survive a fork


@dataclass
class Member(abc.ABC):
    """A process, and the jobs it is at, each with its directory once that is known."""

    jobs: dict[int, Path | None] = field(default_factory=dict, kw_only=True)

    @property
    def ready(self) -> bool:
        """Whether it can be given jobs."""
        return True

    @abc.abstractmethod
    def send(self, *message: Any) -> None:
        """Send; whoever is dead is found when it is listened to."""


_M = TypeVar("_M", bound=Member)


@dataclass
class Crew(abc.ABC, Generic[_M]):
    """Up to `size` members; a dead one is replaced while there is work.

    Attributes:
        size: how many there may be.
        asks: whether every line of a run needs an answer.
        pages: see `run_batch`.
        given: see `run_batch`.
        tries: how often a job is begun whose process dies.
        members: those there are.
    """

    size: int
    asks: bool
    pages: bool
    given: Given
    tries: int = 1
    members: list[_M] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    @abc.abstractmethod
    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Let the idle go home; whoever still works after an error is killed: checkpoints are written atomically."""

    @property
    def busy(self) -> bool:
        """Whether anybody works."""
        return any(member.jobs for member in self.members)

    def hand_out(self, pending: deque[Sequence[int]], jobs: Sequence[Job]) -> None:
        """Give every idle member the jobs of a group."""
        while len(self.members) < self.size and sum(not member.jobs for member in self.members) < len(pending):
            self.members.append(self.hire())
        for member in self.members:
            if pending and member.ready and not member.jobs:
                member.jobs = dict.fromkeys(pending.popleft())
                member.send("jobs", {number: jobs[number] for number in member.jobs})

    @abc.abstractmethod
    def hire(self) -> _M:
        """One more."""

    def ask_to_stop(self) -> None:
        """After the round at hand, saved."""
        for member in self.members:
            member.send("stop")

    @abc.abstractmethod
    def messages(self) -> Iterator[tuple[_M, tuple[Any, ...]]]:
        """What was said within a glance; of a member that died, ``("died", number, how)`` for each of its jobs."""


@dataclass
class _Process(Member):
    process: BaseProcess
    connection: Connection

    def send(self, *message: Any) -> None:
        """Send."""
        with contextlib.suppress(OSError):
            self.connection.send(message)


@dataclass
class _Processes(Crew[_Process]):
    """Processes of this machine."""

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """See `Crew`."""
        for member in self.members:
            member.connection.close()
            if member.jobs:
                member.process.kill()
        for member in self.members:
            member.process.join()
        self.members.clear()

    def hire(self) -> _Process:
        """Start one."""
        ours, theirs = _context.Pipe()
        process = _context.Process(target=work, args=(theirs, self.asks, self.pages, self.given), daemon=True)
        with _interrupts_held():  # a worker that is still importing must not be ended by Ctrl-C at the terminal
            process.start()
        theirs.close()  # so that the connection breaks with the process
        return _Process(process, ours)

    def messages(self) -> Iterator[tuple[_Process, tuple[Any, ...]]]:
        """See `Crew`."""
        by_connection = {member.connection: member for member in self.members}
        for connection in wait(list(by_connection), _GLANCE):
            member = by_connection[connection]  # type: ignore[index]
            try:
                yield member, member.connection.recv()
            except (EOFError, OSError):
                self.members.remove(member)
                member.connection.close()
                member.process.join()
                for number in list(member.jobs):
                    yield member, ("died", number, _ending(member.process.exitcode))


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    """Ctrl-C waits; a process started meanwhile holds it back until `work` lets go."""
    resource_tracker.ensure_running()  # starting it later would let Ctrl-C through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _ending(code: int | None) -> str:
    if code is not None and code < 0:
        often = "; often too little memory" if code == -9 else ""
        return f"its process was killed (signal {-code}{often}); started again, it goes on from its last checkpoint"
    return f"its process ended (exit code {code})"


def run_in_processes(
    jobs: Sequence[Job],
    groups: Sequence[Sequence[int]],
    workers: int,
    listener: Listener,
    stop: Stop | None,
    pages: bool,
    given: Given,
) -> list[Finished]:
    """See `run_batch`; the jobs of a group go to one process and advance together."""
    return run_with(_Processes(workers, stop is not None, pages, given), jobs, groups, listener, stop)


def run_with(
    crew: Crew[Any],
    jobs: Sequence[Job],
    groups: Sequence[Sequence[int]],
    listener: Listener,
    stop: Stop | None,
) -> list[Finished]:
    """Let a crew do all jobs; those of a group go to one member. See `run_batch`."""
    results: dict[int, Finished] = {}
    pending, wrong, asked, deaths = deque(groups), "", False, Counter[int]()

    def settle(member: Member, number: int, finished: Finished) -> None:
        del member.jobs[number]
        results[number] = finished
        listener.on_finish(number, finished)

    with Interrupter() as interrupter, crew:
        while pending or crew.busy:
            if (interrupter.requested or wrong) and not asked:
                asked = True
                pending.clear()
                crew.ask_to_stop()
            crew.hand_out(pending, jobs)
            again: list[int] = []
            for member, (kind, number, content) in crew.messages():
                if kind in ("line", "note", "directory"):
                    _pass_on(member, kind, number, content, listener, stop)
                elif kind == "finished":
                    settle(member, number, content)
                elif kind == "wrong":
                    wrong = wrong or content
                    member.jobs.pop(number, None)
                elif asked and kind in ("interrupted", "died"):
                    del member.jobs[number]
                elif kind == "died" and (deaths := deaths + Counter([number]))[number] < crew.tries:
                    listener.on_note(number, f"{jobs[number].label or 'a run'}: {content}")
                    del member.jobs[number]
                    again.append(number)
                else:  # died, or was told to stop by somebody else
                    place = member.jobs[number] or jobs[number].config.out
                    settle(member, number, Finished(jobs[number], None, place, content or kind))
            if again:
                pending.append(again)
    if wrong:
        raise RequestError(wrong)
    if len(results) < len(jobs):
        raise interrupted(sum(one.error is None for one in results.values()), len(jobs))
    return [results[number] for number in range(len(jobs))]


def _pass_on(member: Member, kind: str, number: int, content: Any, listener: Listener, stop: Stop | None) -> None:
    """What a run says before its end."""
    if kind == "line":
        listener.on_progress(number, content)
        if stop is not None:
            member.send("answer", stop(number, content))
    elif kind == "note":
        listener.on_note(number, content)
    else:
        member.jobs[number] = content
