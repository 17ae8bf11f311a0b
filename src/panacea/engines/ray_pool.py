"""The workers of a run on Ray, seen from the run: they are started, asked, and replaced when they die."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from panacea.engines.ray_session import RaySession, connect
from panacea.engines.ray_worker import Answer, Parcel, RowWorker
from panacea.errors import RequestError, RunFailure

__all__ = ["Cluster", "RayPool"]

_MOST_DEATHS = 3  # of workers over one order: whatever kills them will go on doing so
_PATIENCE = 20.0  # seconds until a user hears that the cluster has no room


@dataclass(frozen=True)
class Cluster:
    """Where rows are trained: the keys of `engine=ray`.

    Attributes:
        workers: None for as many as the cluster has CPUs, but not more than `most`.
        address: see `panacea.engines.ray_session`.
        most: clients of a round: more workers would have nothing to do.
        threads: of each worker.
    """

    workers: int | None = None
    address: str | None = None
    most: int = 1
    threads: int = 1


@dataclass
class _Worker:
    """An actor, and the number of its process on its machine."""

    actor: Any
    process: int | None = None


class RayPool:
    """A fixed number of workers, whoever they are.

    Attributes:
        session: the connection.
        size: how many; orders are cut by it, so it never changes within a run.
    """

    def __init__(self, cluster: Cluster, note: Callable[[str], None]) -> None:
        self.session: RaySession = connect(cluster.address, "engine.address", cluster.workers, note)
        room = max(1, self.session.cpus // cluster.threads)
        self.size = cluster.workers or min(room, cluster.most)
        if self.size > room and not self.session.private:
            self.session.release()
            raise RequestError(
                f"engine.workers={self.size}: the cluster has room for {room} (with threads={cluster.threads} each)"
            )
        # a private Ray has no other users to share CPUs with, so that nothing need ever wait for one
        self._cpus = 0 if self.session.private else cluster.threads
        self._class: Any = self.session.ray.remote(RowWorker)
        self._workers: list[_Worker] = self.session.workers.setdefault(cluster.threads, [])

    def stored(self, content: object, name: str = "") -> Parcel:
        """Put something into the object store; it stays there as long as somebody holds the parcel."""
        place = self.session.ray.put(content)
        return Parcel(name or place.hex(), (place,))

    def start(self, note: Callable[[str], None]) -> None:
        """Start the workers that are missing, and wait until they are there."""
        new = [_Worker(self._made(self._cpus)) for _ in range(self.size - len(self._workers))]
        if not new:
            return
        self._workers += new
        asked = [worker.actor.process.remote() for worker in new]
        there, missing = self.session.ray.wait(asked, num_returns=len(new), timeout=_PATIENCE)
        if missing and not self.session.private:
            note(f"{len(there)} of {len(new)} Ray workers have begun; waiting for room in the cluster")
        for worker, answer in zip(new, asked, strict=True):
            worker.process = self._process(answer)

    def _made(self, cpus: int) -> Any:
        return self._class.options(num_cpus=cpus, max_restarts=0).remote()

    def _successor(self, note: Callable[[str], None]) -> _Worker:
        """A new worker for a dead one; where its machine went with it, the others may have no room left."""
        new = self._made(self._cpus)
        asked = new.process.remote()
        there, _ = self.session.ray.wait([asked], timeout=_PATIENCE)
        if not there and not self.session.private:
            self.session.ray.kill(new)
            note("the cluster has no room for a new Ray worker; it shares the CPUs of the others")
            new = self._made(0)
            asked = new.process.remote()
        return _Worker(new, self._process(asked))

    def _process(self, answer: Any) -> int | None:
        """The number of a worker's process; one that is dead already is replaced when it is asked for something."""
        try:
            return int(self.session.ray.get(answer))
        except self._fatal:
            return None

    @property
    def processes(self) -> list[int | None]:
        """Numbers of the workers' processes."""
        return [worker.process for worker in self._workers[: self.size]]

    @property
    def _fatal(self) -> tuple[type[Exception], ...]:
        """What Ray raises when a worker, or the machine it was on, is gone."""
        errors = self.session.ray.exceptions
        return errors.RayActorError, errors.NodeDiedError, errors.WorkerCrashedError, errors.ObjectLostError

    def ask(self, what: str, orders: Sequence[Any], note: Callable[[str], None]) -> list[Answer]:
        """One order for each worker, in their order; a dead worker's is given to a new one, and a note says so."""
        waiting = [self._sent(number, what, order) for number, order in enumerate(orders)]
        return [self._answer(number, what, order, waiting[number], note) for number, order in enumerate(orders)]

    def _sent(self, number: int, what: str, order: Any) -> Any:
        return getattr(self._workers[number].actor, what).remote(order)

    def _answer(self, number: int, what: str, order: Any, waiting: Any, note: Callable[[str], None]) -> Answer:
        deaths = 0
        while True:
            try:
                answer: Answer = self.session.ray.get(waiting)
            except self._fatal as error:
                deaths += 1
                if deaths == _MOST_DEATHS:
                    raise RunFailure(
                        f"{deaths} Ray workers died over the same clients, often of too little memory"
                    ) from error
                dead = self._workers[number].process
                self._workers[number] = self._successor(note)
                named = "" if dead is None else f" (process {dead})"
                note(f"Ray worker {number}{named} died; a new one does its work again, with the same result")
                waiting = self._sent(number, what, order)
            else:
                return answer
