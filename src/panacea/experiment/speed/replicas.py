"""The time of a round of several seeds that advance in lock-step."""

from __future__ import annotations

import importlib
import importlib.util
import statistics
import time
from collections.abc import Callable
from typing import Any

from panacea.core.round import run_round
from panacea.errors import RunFailure
from panacea.experiment.speed.measuring import WARM_UP, settle
from panacea.experiment.speed.workloads import experiment_of, find_workload

__all__ = ["measure_replicas"]

_MODULE = "panacea.experiment.replicas"


def measure_replicas(key: str, seeds: int, repeats: int, device: str) -> float | None:
    """Median seconds of a round in which all seeds of a workload advance; None where this version cannot.

    Args:
        key: the workload.
        seeds: how many.
        repeats: timed rounds.
        device: where.

    Raises:
        RunFailure: a run could not train.
    """
    if importlib.util.find_spec(_MODULE) is None:
        return None
    work = find_workload(key)
    experiments = [experiment_of(work, {"engine": "vectorised"}, device, seed=seed) for seed in range(seeds)]
    ends: list[float] = []
    errors: list[Exception] = []

    def run(number: int, meeting: Any, stop: Callable[[], bool]) -> None:
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

    importlib.import_module(_MODULE).run_together(range(seeds), run)
    if errors:
        raise RunFailure(f"{seeds} seeds of {key}: {errors[0]}") from errors[0]
    return statistics.median(end - begin for begin, end in zip(ends[WARM_UP - 1 :], ends[WARM_UP:], strict=False))
