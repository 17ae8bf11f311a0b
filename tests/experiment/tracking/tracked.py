"""Short runs with trackers, stopped where a test wants it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from panacea.core.round import Report
from panacea.experiment.config import build_config
from panacea.experiment.experiment import Experiment
from panacea.experiment.rundir import RunDirectory
from panacea.experiment.runner import Callback, run_experiment
from panacea.experiment.tracking import Tracker

KEYS = {
    "data": "fl60", "data.clients": 12, "method": "fedavg", "rounds": 12, "eval_every": 2, "checkpoint_every": 4,
    "local_steps": 2, "cohort": 3,
}  # fmt: skip
ROUNDS = [2, 4, 6, 8, 10, 12]


class StopError(Exception):
    """Stands for whatever ends a process."""


class _Stop(Callback):
    def __init__(self, after: int) -> None:
        self.after = after

    def on_round(self, experiment: Experiment, report: Report) -> None:
        if experiment.state.round == self.after:
            raise StopError


def train(out: Path, *trackers: Tracker, stop: int | None = None, **keys: Any) -> RunDirectory:
    """Run, or go on, with trackers; with `stop`, as if the process were killed in that round."""
    experiment = Experiment(build_config({**KEYS, **keys, "out": str(out)}))
    directory = RunDirectory.of(experiment.config, experiment.method.name)
    if stop is None:
        run_experiment(experiment, directory, trackers)
        return directory
    for tracker in trackers:
        tracker.on_close = lambda: None  # type: ignore[method-assign]  # nobody closes anything after a kill -9
    try:
        run_experiment(experiment, directory, [*trackers, _Stop(stop)])
    except StopError:
        return directory
    raise AssertionError("the run was not stopped")


def lines(directory: RunDirectory) -> list[dict[str, Any]]:
    """What `metrics.jsonl` holds."""
    return [json.loads(line) for line in directory.metrics.read_text().splitlines()]
