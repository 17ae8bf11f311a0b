"""The time of a round of several seeds that advance in lock-step."""

from __future__ import annotations

import contextlib
import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from panacea.core.round import Trained, run_round
from panacea.engines.requests import Request
from panacea.engines.vectorised import VectorisedEngine
from panacea.errors import RunFailure
from panacea.experiment.experiment import Experiment
from panacea.experiment.replicas import Meeting, run_together
from panacea.experiment.speed.measuring import WARM_UP, timed
from panacea.experiment.speed.workloads import experiment_of, find_workload

__all__ = ["Together", "measure_replicas"]


@dataclass(frozen=True)
class Together:
    """Median seconds of several seeds.

    Attributes:
        round: from the end of one run's round to the end of its next; all the others do one meanwhile.
        call: local training of all of them in one call.
    """

    round: float
    call: float


def measure_replicas(key: str, seeds: int, repeats: int, device: str) -> Together:
    """The time of a round in which all seeds of a workload advance, and of their training in one call.

    Args:
        key: the workload.
        seeds: how many.
        repeats: timed rounds.
        device: where.

    Raises:
        RunFailure: a run could not train.
    """
    work = find_workload(key)
    experiments = [experiment_of(work, {"engine": "vectorised"}, device, seed=seed) for seed in range(seeds)]
    rounds = range(1, WARM_UP + repeats + 1)
    try:
        calls = [_call(experiments, round, device) for round in rounds]
    except Exception as error:  # whatever a network does
        raise RunFailure(f"{seeds} seeds of {key}: {error}") from error
    ends: list[float] = []
    errors: list[Exception] = []

    def run(number: int, meeting: Meeting, stop: Callable[[], bool]) -> None:
        experiment = experiments[number]
        try:
            meeting.join(number, experiment)
            for round in rounds:
                cohort = experiment.cohort(round)
                experiment.state, _ = run_round(experiment.method, experiment.state, cohort, experiment.engine)
                if number == 0:  # its loss is known, so nothing is left to wait for
                    ends.append(time.perf_counter())
        except Exception as error:  # raised again where somebody hears it
            errors.append(error)

    run_together(range(seeds), run)
    if errors:
        raise RunFailure(f"{seeds} seeds of {key}: {errors[0]}") from errors[0]
    passed = [end - begin for begin, end in itertools.pairwise(ends[WARM_UP - 1 :])]
    return Together(statistics.median(passed), statistics.median(calls[WARM_UP:]))


class _Noted(Exception):  # noqa: N818
    """A run got as far as its request."""


def _call(experiments: Sequence[Experiment], round: int, device: str) -> float:
    """Seconds of local training of one round of all of them, in one call."""
    requests: list[Request] = []

    def noted(request: Request) -> Trained:
        requests.append(request)
        raise _Noted

    engines = [experiment.engine for experiment in experiments if isinstance(experiment.engine, VectorisedEngine)]
    for experiment, engine in zip(experiments, engines, strict=True):
        engine.together = noted
        with contextlib.suppress(_Noted):
            run_round(experiment.method, experiment.state, experiment.cohort(round), engine)
        engine.together = None
    return timed(device, lambda: engines[0].train_together(requests))
