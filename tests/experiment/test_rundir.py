"""Whose directory is it? Runs that differ never share one, and nobody writes into another's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import panacea as pn
from panacea.cli import run_command_line
from panacea.errors import RequestError, RunFailure
from panacea.experiment.rundir import RunDirectory
from tests.toy import wait_for_first_round

SMALL = ["data=fl60", "data.clients=6", "method=fedavg", "rounds=4", "local_steps=2", "eval_every=2"]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _folder(root: Path, shift: float) -> Path:
    (root / "clients").mkdir(parents=True)
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        rows = "".join(f"{x:.3f},{y:.3f},{int(x + y > shift)}\n" for x, y in rng.normal(size=(20, 2)))
        (root / "clients" / f"{name}.csv").write_text("x1,x2,y\n" + rows)
    return root


def _json(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert run_command_line([*arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_other_data_is_another_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    roots = [_folder(tmp_path / name, shift) for name, shift in (("one", 0.0), ("two", 0.5))]
    found = [
        _json(["run", "data=folder", f"data.root={root}", "method=fedavg", "rounds=2", "cohort=2"], capsys)
        for root in roots
    ]
    assert found[0]["directory"] != found[1]["directory"]
    with (roots[0] / "clients" / "a.csv").open("a") as file:
        file.write("1,1,1\n")
    assert run_command_line(["resume", found[0]["directory"]]) == 2
    assert "the data has changed" in capsys.readouterr().err


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x)


def test_other_initial_weights_are_another_run(tmp_path: Path) -> None:
    fed = pn.load("fl60", clients=6)
    runs = [pn.train(fed, model=Net(), rounds=1, local_steps=1, out=tmp_path) for _ in range(2)]
    assert runs[0].directory != runs[1].directory


MINE = """
from panacea.methods import FedAvg

class Mine(FedAvg):
    def aggregate(self, server, uploads, cohort):
        return server
"""


def test_a_subclass_is_a_method_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    keys = [key for key in SMALL if not key.startswith("method")]
    found = _json(["compare", *keys, "methods=fedavg,mine:Mine", "seeds=0"], capsys)
    assert [row["method"] for row in found["table"]] == ["fedavg", "mine.Mine"]
    from panacea.methods import FedAvg

    assert FedAvg.name == "fedavg"


def test_two_processes_do_not_train_one_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    request = ["data=fl60", "data.clients=6", "method=fedavg", "rounds=100000"]
    process = subprocess.Popen([sys.executable, "-m", "panacea", "run", *request, "--quiet"])
    try:
        wait_for_first_round(tmp_path / "runs")
        assert run_command_line(["run", *request]) == 2
        assert "another process is training" in capsys.readouterr().err
    finally:
        process.kill()
        process.wait()


def test_a_kill_while_the_directory_was_made_is_no_obstacle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = _json(["run", *SMALL, "out=a"], capsys)
    name = Path(done["directory"]).name
    (tmp_path / "b" / name).mkdir(parents=True)
    (tmp_path / "b" / name / ".config.yaml.1.part").write_text("half a fi")
    assert _json(["run", *SMALL, "out=b"], capsys)["mean"] == done["mean"]


def test_results_without_checkpoints_are_never_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = _json(["run", *SMALL], capsys)
    run = Path(done["directory"])
    for path in sorted((run / "checkpoint").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    assert _json(["resume", str(run)], capsys)["mean"] == done["mean"]  # it is finished: shown, not trained
    before = (run / "metrics.jsonl").read_bytes()
    (run / "summary.json").write_text("{")
    assert run_command_line(["run", *SMALL]) == 2
    assert "summary.json cannot be read" in capsys.readouterr().err
    assert (run / "metrics.jsonl").read_bytes() == before


def test_a_lost_summary_is_written_anew(capsys: pytest.CaptureFixture[str]) -> None:
    done = _json(["run", *SMALL], capsys)
    (Path(done["directory"]) / "summary.json").unlink()
    again = _json(["resume", done["directory"]], capsys)
    own = "peak_memory"  # of the process that writes it
    assert again.pop(own) >= 0
    assert done.pop(own) >= 0
    assert again == done


def test_every_round_is_timed_once(capsys: pytest.CaptureFixture[str]) -> None:
    done = _json(["run", *SMALL], capsys)
    lines = (Path(done["directory"]) / "timings.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in lines] == [1, 2, 3, 4]
    RunDirectory(Path(done["directory"])).rewind_logs(2)
    assert len((Path(done["directory"]) / "timings.jsonl").read_text().splitlines()) == 2


def test_folders_may_have_odd_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert _json(["run", *SMALL, "out=2024"], capsys)["directory"].startswith("2024" + os.sep)


def test_a_model_gone_to_nan_is_no_result() -> None:
    generator = np.random.default_rng(0)
    x = [generator.normal(size=(20, 3)) for _ in range(2)]
    fed = pn.Federation.from_arrays(x, [part.sum(axis=1) for part in x])
    with pytest.raises(RunFailure, match="diverged in round 1: no honest client sent a usable model"):
        pn.train(fed, rounds=1, local_steps=1, lr=1e38)


def test_the_share_of_novel_clients_is_not_ignored() -> None:
    fed = pn.load("fl60", clients=10, novel=0.0)
    assert pn.train(fed, rounds=1, local_steps=1, novel=0.5).summary["novel_clients"] == 5
    with pytest.raises(RequestError, match="novel clients already"):
        pn.train(pn.load("fl60", clients=10), rounds=1, novel=0.5)
    with pytest.raises(RequestError, match=r"data\.clients is for data sets loaded by name"):
        pn.train(fed, rounds=1, **{"data.clients": 3})


def test_seeds_may_be_an_iterator() -> None:
    table = pn.compare("fl60", ["separate", "fedavg"], seeds=iter([0]), rounds=1, local_steps=1).table()
    assert list(table["method"]) == ["separate", "fedavg"]


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


def test_separate_exchanges_no_statistics_either() -> None:
    fed = pn.load("fl60", clients=6, novel=0.0)
    run = pn.train(fed, "separate", model=Normed(), rounds=3, local_steps=3, cohort=6)
    assert (run.summary["bytes_down"], run.summary["bytes_up"]) == (0, 0)
    means = [run.model(i).body[1].running_mean for i in range(2)]
    assert not torch.equal(means[0], means[1])
    shared = pn.train(fed, "fedavg", model=Normed(), rounds=3, local_steps=3, cohort=6)
    floats = 2 * 4 + 4 + 4 + 4 + 4 * 2 + 2 + 8  # weights, and eight statistics
    assert shared.summary["bytes_up"] == 3 * 6 * 4 * floats
