"""Many runs at once: in several processes, each run in its own directory, none trained twice."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from panacea.errors import RequestError
from panacea.experiment.config import ExperimentConfig
from panacea.experiment.interrupt import Interrupted

if TYPE_CHECKING:
    from torch import nn

    from panacea.data.federation import Federation

__all__ = ["STOPPED_EARLY", "Finished", "Given", "Job", "Listener", "run_batch"]

STOPPED_EARLY = "stopped early"
"""The `Finished.error` of a run that `stop` ended."""


@dataclass(frozen=True)
class Job:
    """One run.

    Attributes:
        config: complete: method, seed and all other keys.
        label: what progress and errors call it.
    """

    config: ExperimentConfig
    label: str = ""


@dataclass(frozen=True)
class Finished:
    """What became of a job.

    Attributes:
        job: the job.
        summary: the content of its `summary.json`; None where the run failed.
        directory: the run's directory; of a job that died before it had one, the folder it would be in.
        error: why there is no summary, in one line.
        reused: whether it was read from an earlier, finished run.
    """

    job: Job
    summary: Mapping[str, Any] | None
    directory: Path
    error: str | None = None
    reused: bool = False


class Listener:
    """Told what happens, in the calling process; override what is needed."""

    def on_start(self, jobs: Sequence[Job]) -> None:
        """Before the first run."""

    def on_progress(self, number: int, line: Mapping[str, Any]) -> None:
        """Job `number` was evaluated: its line of `metrics.jsonl`."""

    def on_note(self, number: int, note: str) -> None:
        """Something a user should know about job `number`."""

    def on_finish(self, number: int, finished: Finished) -> None:
        """Job `number` came to its end, one way or another."""


@dataclass(frozen=True)
class Given:
    """Data and a network that come from Python instead of from the keys, the same for all jobs."""

    federation: Federation | None = None
    module: nn.Module | None = None


Stop = Callable[[int, Mapping[str, Any]], bool]


def run_batch(
    jobs: Sequence[Job],
    *,
    workers: int | None = None,
    listener: Listener | None = None,
    stop: Stop | None = None,
    pages: bool = True,
    given: Given | None = None,
) -> list[Finished]:
    """Run all jobs; results in their order. A job that was finished before is read, a half-finished one goes on.

    The numbers do not depend on `workers`. Processes are started by `spawn`: a Python script that asks for more than
    one needs ``if __name__ == "__main__":`` around its own work, as always with `multiprocessing`.

    Args:
        jobs: the runs.
        workers: processes, each with one torch thread; by default one per core, never more than jobs; 1 = this process.
        listener: told of progress.
        stop: asked after every evaluation with the job's number and its line of `metrics.jsonl`; True ends the job
            early: it is saved and can go on later, its error is `STOPPED_EARLY`.
        pages: whether runs get their `report.html` and figures.
        given: a federation or a network from Python, for all jobs.

    Raises:
        Interrupted: Ctrl-C or SIGTERM; every run was saved first.
        RequestError: a run could not begin because its request is wrong; the others were saved and can go on.
    """
    if workers is not None and workers < 1:
        raise RequestError(f"workers={workers}: at least one is needed")
    listener, given = listener or Listener(), given or Given()
    listener.on_start(jobs)
    count = min(workers or available_cores(), len(jobs))
    if count <= 1:
        return _run_here(jobs, listener, stop, pages, given)
    from panacea.experiment._crew import run_in_processes  # noqa: PLC0415  (only where there are several)

    return run_in_processes(jobs, count, listener, stop, pages, given)


def available_cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _run_here(jobs: Sequence[Job], listener: Listener, stop: Stop | None, pages: bool, given: Given) -> list[Finished]:
    from panacea.experiment._worker import Relay, train_job  # noqa: PLC0415  (it imports this module)

    results: list[Finished] = []
    for number, job in enumerate(jobs):

        def tell(line: Mapping[str, Any], number: int = number) -> bool:
            listener.on_progress(number, line)
            return stop is not None and stop(number, line)

        try:
            results.append(train_job(job, Relay(tell, partial(listener.on_note, number)), pages, given))
        except Interrupted as error:
            raise interrupted(sum(one.error is None for one in results), len(jobs)) from error
        listener.on_finish(number, results[-1])
    return results


def interrupted(done: int, of: int) -> Interrupted:
    """The end of a batch that was asked to stop."""
    return Interrupted(f"interrupted; {done} of {of} runs are done, the others are saved: the same command goes on")
