"""What all trackers share: which numbers they are given, and that none of them can stop a run."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import panacea as pn
from panacea.experiment.tracking import Tracker
from panacea.experiment.tracking.tracker import TrackedRun
from tests.experiment.tracking.tracked import KEYS, ROUNDS, lines, train


class Notebook(Tracker):
    """Writes into lists; fails in the step it is told to."""

    key, packages = "notebook", ()

    def __init__(self, fails: str = "", **given: Any) -> None:
        super().__init__(**given)
        self.fails, self.steps, self.numbers, self.summary = fails, list[str](), dict[int, Any](), dict[str, float]()

    def _step(self, name: str) -> None:
        self.steps.append(name)
        if name == self.fails:
            raise OSError(28, "No space left on device")

    def begin(self, run: TrackedRun) -> None:
        self.run = run
        self._step("begin")

    def log(self, round: int, numbers: dict[str, float]) -> None:
        self.numbers[round] = numbers
        self._step("log")

    def log_clients(self, round: int, values: dict[str, np.ndarray[Any, np.dtype[np.float64]]]) -> None:
        self.clients = values

    def finish(self, numbers: dict[str, float], files: dict[str, Path]) -> None:
        self.summary, self.files = numbers, files
        self._step("finish")

    def close(self) -> None:
        self._step("close")


def test_what_a_tracker_is_told(tmp_path: Path) -> None:
    tracker = Notebook()
    directory = train(tmp_path, tracker)
    run, summary = tracker.run, directory.read_summary()
    assert (run.name, run.round, run.earlier) == (directory.path.name, 0, {})
    assert run.config["data"] == "fl60"
    assert run.config["data.clients"] == 12
    assert None not in run.config.values()
    assert {key: run.tags[key] for key in ("method", "data", "seed")} == {
        "method": "fedavg",
        "data": "fl60",
        "seed": "0",
    }
    assert run.tags["version"] == pn.__version__
    assert tracker.steps == ["begin", *["log"] * 6, "finish", "close"]
    assert list(tracker.numbers) == ROUNDS
    for line in lines(directory):
        numbers = tracker.numbers[line["round"]]
        assert numbers["metrics/mean"] == line["mean"]
        assert numbers["metrics/bytes_up"] == line["bytes_up"]
        assert numbers["time/rounds_per_second"] == pytest.approx(line["round"] / numbers["time/train_seconds"])
    assert tracker.summary["summary/mean"] == summary["mean"]
    assert tracker.complete
    assert {"config.yaml", "summary.json", "clients.csv"} <= set(tracker.files)
    assert np.mean(tracker.clients["metric"]) == pytest.approx(summary["final_mean"])


def test_after_a_stop_a_tracker_is_told_what_was_before(tmp_path: Path) -> None:
    train(tmp_path, first := Notebook(), stop=7)
    directory = train(tmp_path, second := Notebook())
    assert list(first.numbers) == [2, 4, 6]
    assert second.run.round == 4
    assert list(second.run.earlier) == [2, 4]
    assert list(second.numbers) == [6, 8, 10, 12]
    for round, numbers in second.run.earlier.items():
        assert numbers == pytest.approx(first.numbers[round])
    assert second.numbers[6]["metrics/mean"] == first.numbers[6]["metrics/mean"]
    assert [line["round"] for line in lines(directory)] == ROUNDS


@pytest.mark.parametrize("step", ["begin", "log", "finish", "close"])
def test_a_tracker_that_fails_is_out_and_the_run_goes_on(step: str, tmp_path: Path) -> None:
    said: list[str] = []
    broken, sound = Notebook(step, say=said.append), Notebook()
    directory = train(tmp_path, broken, sound)
    assert said == ["notebook failed and keeps no more of this run, which goes on: [Errno 28] No space left on device"]
    assert broken.steps[-2:] == ([step, "close"] if step != "close" else ["finish", "close"])
    assert list(sound.numbers) == ROUNDS
    assert directory.finished


def test_in_python_the_note_is_a_warning_and_the_tracker_works_again_for_the_next_run(tmp_path: Path) -> None:
    tracker = Notebook("log", folder=tmp_path)
    with pytest.warns(UserWarning, match="notebook failed"):
        pn.train(**_arguments(None), callbacks=[tracker])
    tracker.fails = ""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        pn.train(**_arguments(tmp_path, seed=1), callbacks=[tracker])
    assert tracker.steps.count("log") == 1 + 6
    assert "figures/convergence.png" in tracker.files  # trackers come after the report


def test_a_run_that_fails_closes_its_trackers(tmp_path: Path) -> None:
    tracker = Notebook()
    with pytest.raises(pn.errors.RunFailure):
        pn.train(**_arguments(tmp_path, lr=1e30), callbacks=[tracker])
    assert tracker.steps[-1] == "close"
    assert not tracker.complete


def _arguments(out: Path | None, **keys: Any) -> dict[str, Any]:
    given = {key.replace("data.", ""): value for key, value in {**KEYS, **keys}.items()}
    fed = pn.load(given.pop("data"), clients=given.pop("clients"))
    return {"federation": fed, "out": out, **given}
