"""Many runs at once: in several processes, each run in its own directory, none trained twice."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from panacea.errors import RequestError
from panacea.experiment.config import ExperimentConfig
from panacea.experiment.gpu_service import gpu_shared_by_processes
from panacea.experiment.interrupt import Interrupted
from panacea.experiment.notes import warnings_as_notes

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
        """Something a user should know about job `number`: a warning, unless there is a better place for it."""
        warnings.warn(note, stacklevel=2)

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
    cluster: str | None = None,
) -> list[Finished]:
    """Run all jobs; results in their order. A job that was finished before is read, a half-finished one goes on.

    The numbers do not depend on `workers`, nor but for the last float bits on `engine.together` (see `replicas`).
    Processes are started by `spawn`: a Python script that asks for more than one needs ``if __name__ ==
    "__main__":`` around its own work, as always with `multiprocessing`.

    Args:
        jobs: the runs.
        workers: processes, each with one torch thread; by default one per core (on a GPU at most four), never more
            than jobs; 1 = this process.
        listener: told of progress.
        stop: asked after every evaluation with the job's number and its line of `metrics.jsonl`; True ends the job
            early: it is saved and can go on later, its error is `STOPPED_EARLY`.
        pages: whether runs get their `report.html` and figures.
        given: a federation or a network from Python, for all jobs.
        cluster: of Ray, on which the jobs run instead of on this machine: `auto`, ``host:port``, or `local` for a
            private one. `workers` then are those of the cluster, by default one per CPU.

    Raises:
        Interrupted: Ctrl-C or SIGTERM; every run was saved first.
        RequestError: a run could not begin because its request is wrong; the others were saved and can go on.
    """
    if workers is not None and workers < 1:
        raise RequestError(f"workers={workers}: at least one is needed")
    listener, given = listener or Listener(), given or Given()
    configs = [job.config for job in jobs]
    nested = any(config.engine.name == "ray" for config in configs)
    if cluster is not None:
        if nested:
            raise RequestError("engine=ray cuts up a run, --cluster spreads whole runs; give one of them")
        from panacea.experiment._ray_crew import run_on_cluster  # noqa: PLC0415  (only where there is one)

        return run_on_cluster(jobs, cluster, workers, listener, stop, pages, given)
    listener.on_start(jobs)
    count = min(workers or (1 if nested else available_cores()), len(jobs))  # Ray's workers have the cores already
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    on_gpu = any(config.device != "cpu" for config in configs) and _GPU.exists() and not hidden
    if workers is None and on_gpu:
        count = min(count, len(grouped(configs, 1)), _GPU_PROCESSES)  # a GPU gains by rows, not by processes
    groups = grouped(configs, count)
    if count <= 1:
        from panacea.engines.ray_session import kept_open  # noqa: PLC0415  (torch is imported by the runs anyway)

        with kept_open():
            return _run_here(jobs, groups, listener, stop, pages, given)
    from panacea.experiment._crew import run_in_processes  # noqa: PLC0415  (only where there are several)

    with warnings_as_notes(partial(listener.on_note, 0)), gpu_shared_by_processes() if on_gpu else nullcontext():
        return run_in_processes(jobs, groups, count, listener, stop, pages, given)


def available_cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _run_here(
    jobs: Sequence[Job],
    groups: Sequence[Sequence[int]],
    listener: Listener,
    stop: Stop | None,
    pages: bool,
    given: Given,
) -> list[Finished]:
    from panacea.experiment._worker import Outcome, Relay, train_group  # noqa: PLC0415  (it imports this module)

    outcomes: dict[int, Outcome] = {}

    def relay_of(number: int) -> Relay:
        def tell(line: Mapping[str, Any]) -> bool:
            listener.on_progress(number, line)
            return stop is not None and stop(number, line)

        return Relay(tell, partial(listener.on_note, number))

    def settle(number: int, outcome: Outcome) -> None:
        outcomes[number] = outcome
        if isinstance(outcome, Finished):
            listener.on_finish(number, outcome)

    for group in groups:
        train_group({number: jobs[number] for number in group}, relay_of, pages, given, settle)
        for outcome in outcomes.values():
            if isinstance(outcome, RequestError):
                raise outcome
        if any(not isinstance(outcome, Finished) for outcome in outcomes.values()):
            done = sum(isinstance(one, Finished) and one.error is None for one in outcomes.values())
            raise interrupted(done, len(jobs))
    return [outcome for _, outcome in sorted(outcomes.items()) if isinstance(outcome, Finished)]


def interrupted(done: int, of: int) -> Interrupted:
    """The end of a batch that was asked to stop."""
    return Interrupted(f"interrupted; {done} of {of} runs are done, the others are saved: the same command goes on")


_MOST_TOGETHER = 10
_GPU, _GPU_PROCESSES = Path("/dev/nvidiactl"), 4  # there where CUDA can be; torch need not be imported to know
_APART = ("seed", "lr", "server_lr", "server_steps", "out", "track")


def grouped(configs: Sequence[ExperimentConfig], workers: int) -> list[list[int]]:
    """Which jobs may advance together: those that differ in seeds, rates or the server's steps, in groups of a size
    that leaves work for every process.

    What cannot share calls after all (another network because of the data, say) is found out at the meeting.
    """  # noqa: D205
    kinds: dict[str, list[int]] = {}
    for number, config in enumerate(configs):
        content = config.model_dump(mode="json", exclude=set(_APART))
        content["data"]["keys"].pop("seed", None)
        able = config.engine.name == "vectorised" and config.engine_keys.together
        kinds.setdefault(json.dumps(content, sort_keys=True) if able else f"alone {number}", []).append(number)
    size = _MOST_TOGETHER
    while size > 1 and sum(-(-len(members) // size) for members in kinds.values()) < workers:
        size -= 1
    groups = []
    for members in kinds.values():
        parts = -(-len(members) // size)
        groups += [members[part::parts] for part in range(parts)]
    return groups
