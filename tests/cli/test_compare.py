"""`panacea compare` as a user meets it: several processes, a kill in the middle, the files, the live table."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from panacea.cli import run_command_line
from panacea.cli.live import LiveTable
from panacea.experiment.batch import Finished
from panacea.experiment.planning import plan_comparison
from tests.cli.printed import said

KEYS = ["data=fl60", "data.clients=12", "local_steps=2", "eval_every=20", "checkpoint_every=20"]
THREE = ["compare", *KEYS, "methods=separate,fedavg,panacea", "seeds=0..1"]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("panacea.report.run_page.write_run_report", lambda *_: None)  # pages take longer than runs


def _finished() -> dict[str, int]:
    return {path.parent.name: path.stat().st_mtime_ns for path in Path("runs").glob("*/summary.json")}


def _without_clock(table: Any) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k not in ("train_seconds", "rounds_per_second")} for row in table]


def test_killed_and_started_again_it_gives_the_same_table_and_repeats_no_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    request = ["compare", *KEYS, "methods=separate,fedavg", "seeds=0..1", "rounds=60"]
    process = subprocess.Popen([sys.executable, "-m", "panacea", *request, "workers=2"], start_new_session=True)
    end = time.monotonic() + 120
    while not _finished():
        assert time.monotonic() < end
        assert process.poll() is None
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    time.sleep(1.0)  # workers notice, save and leave
    before = _finished()
    assert 0 < len(before) < 4
    again = said([*request, "workers=1"], capsys)
    after = _finished()
    assert len(after) == 4
    assert all(after[name] == written for name, written in before.items())  # read, not trained
    straight = said([*request, "workers=1", "out=straight"], capsys)
    assert _without_clock(again["table"]) == _without_clock(straight["table"])
    assert again["tests"] == straight["tests"]
    for kind in ("clients.csv", "tests.csv"):
        assert (Path(again["folder"]) / kind).read_bytes() == (Path(straight["folder"]) / kind).read_bytes()


def _is_importing_torch(pid: str) -> bool:
    try:
        return "libtorch" in Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the workers through /proc")
def test_ctrl_c_while_workers_start_is_one_line() -> None:
    """A terminal sends Ctrl-C to all of them; whoever still imports torch must not answer with a traceback."""
    request = ["compare", *KEYS, "methods=separate,fedavg", "seeds=0", "rounds=6000", "workers=2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "panacea", *request], start_new_session=True, stderr=subprocess.PIPE, text=True
    )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    end = time.monotonic() + 120
    while sum(_is_importing_torch(pid) for pid in children.read_text().split()) < 2:
        assert time.monotonic() < end
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    printed = process.communicate(timeout=120)[1]
    assert process.returncode == 130
    assert "Traceback" not in printed
    assert "0 of 2 runs are done" in printed


def test_the_table_is_made_of_what_the_runs_wrote(capsys: pytest.CaptureFixture[str]) -> None:
    found = said([*THREE, "rounds=4", "workers=1"], capsys)
    folder = Path(found["folder"])
    assert found["folder"].startswith("runs/compare-fl60-")
    clients = list(csv.DictReader((folder / "clients.csv").open()))
    for run in found["runs"]:
        own = [row for row in clients if row["method"] == run["method"] and int(row["seed"]) == run["seed"]]
        stored = list(csv.DictReader((Path(run["directory"]) / "clients.csv").open()))
        assert [row["metric"] for row in own] == [row["metric"] for row in stored]
        seen = [float(row["metric"]) for row in own if row["novel"] == "0"]
        assert run["mean"] == pytest.approx(sum(seen) / len(seen))
    for row in found["table"]:
        assert row["low"] <= row["mean"] <= row["high"]
        assert row["rounds_to_90"] == 4  # the only evaluation
    assert len(found["tests"]) == 3
    assert {test["pairs"] for test in found["tests"]} == {20}
    printed = json.loads((folder / "table.json").read_text())
    assert printed["table"] == found["table"]


def test_one_failed_run_is_told_and_the_others_are_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "wild.yaml").write_text("method: fedavg\nlr: 1e30\n")
    request = ["compare", *KEYS, "rounds=2", "seeds=0", "workers=1"]
    assert run_command_line([*request, "methods=separate,wild.yaml"]) == 1
    out, err = capsys.readouterr()
    assert "failed" in out
    assert "separate" in out
    assert err.splitlines()[-1].startswith("error: 1 of 2 runs failed; the first: wild seed 0: training diverged")
    assert run_command_line([*request, "methods=wild.yaml"]) == 1
    assert "every run failed" in capsys.readouterr().err


def test_the_live_table() -> None:
    plan = plan_comparison({"data": "fl60", "methods": ["fedavg", "ditto"], "seeds": [0, 1], "rounds": 100})
    live = LiveTable(plan, quiet=True)
    live.on_start([run.job for run in plan.runs])
    live.on_progress(0, {"round": 10, "val_mean": 50.0})
    live.on_progress(0, {"round": 20, "val_mean": 60.0})
    live.on_progress(2, {"round": 10, "val_mean": None})
    live.on_finish(1, Finished(plan.runs[1].job, None, Path("x"), "training diverged"))
    text = io.StringIO()
    Console(width=100, file=text).print(live.table())
    for word in ("fedavg", "1/2 (1 failed)", "20/100", "60", "ditto", "0/2", "10/100", "left"):
        assert word in text.getvalue(), word
    assert live.rows["fedavg"].left == 80
    assert live.rows["ditto"].left == 190
