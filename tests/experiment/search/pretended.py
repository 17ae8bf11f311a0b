"""An executor that trains nothing: runs have the curves a test gives them, and the files of real ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from panacea.experiment.batch import STOPPED_EARLY, Finished, Job, Listener
from panacea.experiment.config import ExperimentConfig
from panacea.experiment.interrupt import Interrupted
from panacea.experiment.search import study
from panacea.experiment.search.record import run_key
from panacea.experiment.search.request import SearchRequest, parse_request

ROUNDS = 40
BASE = {"base.data": "fl60", "base.data.clients": 6, "base.rounds": ROUNDS, "base.eval_every": 5}


def request(tmp_path: Path, **keys: Any) -> SearchRequest:
    flat = {"method": "fedavg", "stop": "halving", **{key.replace("__", "."): value for key, value in keys.items()}}
    return parse_request({**BASE, **flat, "out": str(tmp_path)})


@dataclass
class Pretended:
    """Stands in for `run_batch`.

    Attributes:
        value: (configuration, round) -> validation metric; None: diverges there.
        test: configuration -> test metric.
        most: evaluations after which everything is interrupted, as by Ctrl-C.
        trained: rounds trained now, by (method, lr, seed).
    """

    value: Callable[[ExperimentConfig, int], float | None]
    test: Callable[[ExperimentConfig], float] = lambda config: 50.0
    loss: Callable[[ExperimentConfig], float] = lambda config: 1.0
    fails: Callable[[ExperimentConfig], bool] = lambda config: False
    most: int | None = None
    trained: dict[tuple[str, Any, int], list[int]] = field(default_factory=dict)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> Pretended:
        monkeypatch.setattr(study, "run_batch", self)
        return self

    def __call__(
        self,
        jobs: Sequence[Job],
        *,
        workers: int | None = None,
        listener: Listener,
        stop: Callable[[int, Mapping[str, Any]], bool],
        pages: bool = True,
        cluster: str | None = None,
    ) -> list[Finished]:
        assert len({run_key(job.config) for job in jobs}) == len(jobs)  # two in one directory would wait for each other
        listener.on_start(jobs)
        results = []
        for number, job in enumerate(jobs):
            results.append(self._run(number, job, listener, stop))
            listener.on_finish(number, results[-1])
        return results

    def _run(self, number: int, job: Job, listener: Listener, stop: Callable[[int, Any], bool]) -> Finished:
        config = job.config
        folder = config.out / f"run-{run_key(config)}"
        folder.mkdir(parents=True, exist_ok=True)
        if self.fails(config):
            return Finished(job, None, folder, "its process was killed")
        metrics = folder / "metrics.jsonl"
        begun = [json.loads(line)["round"] for line in metrics.read_text().splitlines()] if metrics.exists() else []
        for round in range(max(begun, default=0) + 5, ROUNDS + 1, 5):
            if self.most is not None:
                self.most -= 1
                if self.most < 0:
                    raise Interrupted("interrupted")
            value = self.value(config, round)
            if value is None:
                return Finished(job, None, folder, f"training diverged in round {round}")
            line = {"round": round, "mean": self.test(config), "val_mean": value, "val_loss": self.loss(config)}
            with metrics.open("a") as file:
                file.write(json.dumps(line) + "\n")
            with (folder / "timings.jsonl").open("a") as file:
                file.write(json.dumps({"round": round, "train": 1.0}) + "\n")
            self.trained.setdefault((config.method.name, config.lr, config.seed), []).append(round)
            listener.on_progress(number, line)
            if stop(number, line) and round < ROUNDS:
                return Finished(job, None, folder, STOPPED_EARLY)
        summary = {"mean": self.test(config), "novel_mean": None}
        (folder / "summary.json").write_text(json.dumps(summary))
        return Finished(job, summary, folder)
