"""The time of a round of several seeds that advance in lock-step."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from panacea.core.round import run_round
from panacea.errors import RunFailure
from panacea.experiment.replicas import Meeting, run_together
from panacea.experiment.speed.measuring import WARM_UP, settle, timed
from panacea.experiment.speed.workloads import experiment_of, find_workload

__all__ = ["Together", "measure_replicas"]


@dataclass(frozen=True)
class Together:
    """Median seconds of several seeds.

    Attributes:
        round: in which all of them advance.
        call: of it, local training of all of them, which is one call.
    """

    round: float
    call: float


def measure_replicas(key: str, seeds: int, repeats: int, device: str) -> Together:
    """The time of a round in which all seeds of a workload advance.

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
    ends: list[float] = []
    calls: list[float] = []
    errors: list[Exception] = []
    engine: Any = experiments[0].engine  # the first run's trains for all of them
    alone = engine.train_together

    def train_together(requests: Any) -> Any:
        trained = None

        def work() -> None:
            nonlocal trained
            trained = alone(requests)

        calls.append(timed(device, work))
        return trained

    engine.train_together = train_together

    def run(number: int, meeting: Meeting, stop: Callable[[], bool]) -> None:
        experiment = experiments[number]
        try:
            meeting.join(number, experiment)
            for round in range(1, WARM_UP + repeats + 1):
                cohort = experiment.cohort(round)
                experiment.state, _ = run_round(experiment.method, experiment.state, cohort, experiment.engine)
                if number == 0:  # the others are at the same round, or the one before
                    settle(device)
                    ends.append(time.perf_counter())
        except Exception as error:  # raised again where somebody hears it
            errors.append(error)

    run_together(range(seeds), run)
    if errors:
        raise RunFailure(f"{seeds} seeds of {key}: {errors[0]}") from errors[0]
    rounds = [end - begin for begin, end in itertools.pairwise(ends[WARM_UP - 1 :])]
    return Together(statistics.median(rounds), statistics.median(calls[WARM_UP:]))
