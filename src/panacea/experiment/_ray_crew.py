"""A batch on a Ray cluster: every member of the crew is an actor, somewhere, that does whole runs.

Runs write their directories themselves, so the folder must be on a file system that all nodes share: a marker that this
process writes there must be seen by every member before it is given a job.
"""

from __future__ import annotations

import contextlib
import os
import queue
import secrets
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from panacea.engines.ray_session import RaySession, connect
from panacea.errors import RequestError
from panacea.experiment._crew import Crew, Member, run_with
from panacea.experiment._worker import do_jobs
from panacea.experiment.batch import Finished, Given, Job, Listener, Stop, grouped

__all__ = ["run_on_cluster"]

_GLANCE = 0.2  # seconds between two looks for Ctrl-C
_TRIES = 3
_GPU_SHARE = 0.25  # of one GPU for each member: small networks gain by company


@dataclass(frozen=True)
class _Surroundings:
    """What the runs must find on every node as it is here."""

    folder: str
    variables: Mapping[str, str]
    markers: tuple[str, ...]


class _Post:
    """The actor's end of the line: what came, and what is to go; `panacea.experiment._worker.Channel`."""

    def __init__(self) -> None:
        self.came: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.going: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def send(self, message: Any, /) -> None:
        self.going.put(message)

    def recv(self) -> Any:
        return self.came.get()

    def poll(self) -> bool:
        return not self.came.empty()


class Hand:
    """The actor; its methods run in threads side by side."""

    def __init__(self, asks: bool, pages: bool, given: Given, around: _Surroundings) -> None:
        self._post, self._asks, self._pages, self._given, self._around = _Post(), asks, pages, given, around

    def arrive(self) -> str:
        """Take over the surroundings; returns what is missing."""
        os.environ.update(self._around.variables)
        place = f"on node {os.uname().nodename}"
        try:
            os.chdir(self._around.folder)
        except OSError:
            return f"the folder {self._around.folder} is not there {place}; all nodes must share a file system"
        for marker in map(Path, self._around.markers):
            if not marker.exists():
                return f"out={marker.parent}: not the same folder {place}; runs need a file system all nodes share"
        return ""

    def work(self) -> None:
        """Do jobs until told to stop."""
        try:
            do_jobs(self._post, self._asks, self._pages, self._given)
        except BaseException:
            traceback.print_exc()  # into Ray's log
            os._exit(1)  # as any other process that fails: it is noticed, and the runs are tried again

    def say(self, message: tuple[Any, ...]) -> None:
        """To the one who works."""
        self._post.came.put(message)

    def hear(self) -> list[tuple[Any, ...]]:
        """What it has said since; waits a while for something."""
        messages = []
        with contextlib.suppress(queue.Empty):
            messages.append(self._post.going.get(timeout=2))
            while True:
                messages.append(self._post.going.get_nowait())
        return messages


@dataclass
class _Actor(Member):
    """An actor, and the answer that is waited for: of `arrive` until it is there, then of `hear`."""

    actor: Any
    waiting: Any
    there: bool = False

    @property
    def ready(self) -> bool:
        """It has arrived."""
        return self.there

    def send(self, *message: Any) -> None:
        """Send."""
        self.actor.say.remote(message)


@dataclass
class _Actors(Crew[_Actor]):
    """Actors of a cluster."""

    session: RaySession = field(kw_only=True)
    around: _Surroundings = field(kw_only=True)
    share: float = field(kw_only=True)
    tries: int = _TRIES
    stillborn: int = 0

    def hire(self) -> _Actor:
        """One more, wherever there is room."""
        options = {"num_cpus": 1, "num_gpus": self.share, "max_restarts": 0, "max_concurrency": 4}
        made = self.session.ray.remote(Hand).options(**options)
        actor = made.remote(self.asks, self.pages, self.given, self.around)
        return _Actor(actor, actor.arrive.remote())

    def ask_to_stop(self) -> None:
        """After the round at hand, saved; who has not arrived need not come."""
        super().ask_to_stop()
        for member in [one for one in self.members if not one.there]:
            self._dismiss(member)

    def _dismiss(self, member: _Actor) -> None:
        self.members.remove(member)
        with contextlib.suppress(Exception):
            self.session.ray.kill(member.actor)

    def messages(self) -> Iterator[tuple[_Actor, tuple[Any, ...]]]:
        """See `Crew`."""
        ray, of = self.session.ray, {member.waiting: member for member in self.members}
        answered, _ = ray.wait(list(of), timeout=_GLANCE) if of else ([], [])
        for answer in answered:
            member = of[answer]
            try:
                content = ray.get(answer)
            except ray.exceptions.RayError as error:
                yield from self._gone(member, error)
                continue
            if member.there:
                member.waiting = member.actor.hear.remote()
                yield from ((member, message) for message in content)
            elif content:
                self._dismiss(member)
                yield member, ("wrong", -1, content)
            else:
                member.there, member.waiting = True, member.actor.hear.remote()
                member.actor.work.remote()

    def _gone(self, member: _Actor, error: Exception) -> Iterator[tuple[_Actor, tuple[Any, ...]]]:
        self._dismiss(member)
        if not member.there:
            self.stillborn += 1
            if self.stillborn >= _TRIES:
                why = (str(error).strip().splitlines() or [type(error).__name__])[-1]
                yield member, ("wrong", -1, f"Ray workers do not start ({why}); every node needs panacea-fl installed")
        for number in list(member.jobs):
            yield member, ("died", number, "its Ray worker died; it goes on from its last checkpoint elsewhere")

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """See `Crew`; an actor has nothing to lose but the runs it was at."""
        for member in list(self.members):
            self._dismiss(member)


def run_on_cluster(
    jobs: Sequence[Job],
    address: str,
    workers: int | None,
    listener: Listener,
    stop: Stop | None,
    pages: bool,
    given: Given,
) -> list[Finished]:
    """See `run_batch`."""
    session = connect(address, "--cluster", workers, partial(listener.on_note, 0))
    markers = _marked({job.config.out for job in jobs})
    try:
        around = _Surroundings(
            str(Path.cwd()), {k: v for k, v in os.environ.items() if k.startswith("PANACEA_")}, tuple(map(str, markers))
        )
        configs = [job.config for job in jobs]
        size = min(workers or session.cpus, session.cpus, len(jobs))
        listener.on_start(jobs)
        accelerated = session.ray.cluster_resources().get("GPU", 0) and any(c.device != "cpu" for c in configs)
        share = _GPU_SHARE if accelerated else 0
        crew = _Actors(size, stop is not None, pages, given, session=session, around=around, share=share)
        return run_with(crew, jobs, grouped(configs, size), listener, stop)
    finally:
        for marker in markers:
            marker.unlink(missing_ok=True)
        session.release()


def _marked(folders: set[Path]) -> list[Path]:
    """A file in each folder that nobody else can have written."""
    markers = []
    for folder in sorted(folders):
        marker = folder / f".cluster-{secrets.token_hex(8)}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            marker.touch()
        except OSError as error:
            raise RequestError(f"out={folder}: cannot write there ({error.strerror})") from error
        markers.append(marker)
    return markers
