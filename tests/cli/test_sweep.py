"""`panacea sweep` as a user types it: real runs, the files it leaves, wrong requests, a kill in the middle."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from panacea.cli.app import run_command_line
from tests.cli.printed import said

FILE: dict[str, Any] = {
    "base": {"data": "fl60", "data.clients": 6, "rounds": 8, "eval_every": 2, "local_steps": 2},
    "methods": ["fedavg", "ditto"],
    "space": {"lr": [0.001, 0.1, 1], "ditto": {"method.lam": [0.1, 1]}},
    "seeds": "0..1",
    "stop": "halving",
}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _write(**changes: Any) -> str:
    Path("mine.yaml").write_text(yaml.safe_dump({**FILE, **changes}, sort_keys=False))
    return "mine.yaml"


def _rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "trials.csv").open() as file:
        return [{key: value for key, value in row.items() if key != "seconds"} for row in csv.DictReader(file)]


def test_a_search_leaves_its_table_its_picture_and_a_file_for_run(capsys: pytest.CaptureFixture[str]) -> None:
    result = said(["sweep", _write(), "--workers", "1"], capsys)
    folder = Path(result["folder"])
    assert folder.parent == Path("runs")
    assert {path.name for path in folder.iterdir()} == {
        "trials.csv", "sweep.md", "best.yaml", "best-fedavg.yaml", "best-ditto.yaml", "validation.png",
        "validation.svg", "runs.jsonl",
    }  # fmt: skip
    rows = _rows(folder)
    assert [row["method"] for row in rows] == ["fedavg"] * 3 + ["ditto"] * 6
    assert [row["state"] for row in rows if row["method"] == "fedavg"].count("finished") == 1  # 3, 2, 1 of them
    assert {row["rounds"] for row in rows if row["state"] == "stopped"} <= {"2", "4"}
    chosen = [row for row in rows if row["chosen"] == "1"]
    assert [row["method"] for row in chosen] == ["fedavg", "ditto"]
    assert all((row["test_mean"] != "") == (row["chosen"] == "1") for row in rows)
    page = (folder / "sweep.md").read_text()
    assert "chosen, on validation data alone" in page
    assert "test metric is shown for chosen settings only" in page
    lines = [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]
    assert len({line["run"] for line in lines}) == 9 * 2


def test_run_takes_the_best_as_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    result = said(["sweep", _write(methods=["fedavg"], space={"lr": [0.01, 0.1]}), "--workers", "1"], capsys)
    summary = said(["run", str(Path(result["folder"]) / "best.yaml")], capsys)
    assert summary["method"] == "fedavg"
    assert summary["seed"] == 0
    lines = Path(result["folder"], "runs.jsonl").read_text().splitlines()
    assert summary["directory"] in {json.loads(line)["directory"] for line in lines}  # the very run of the search
    other = said(["run", str(Path(result["folder"]) / "best.yaml"), "seed=1"], capsys)
    assert (summary["mean"] + other["mean"]) / 2 == pytest.approx(result["best"]["test_mean"])


def test_again_trains_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["sweep", _write(methods=["fedavg"], space={"lr": [0.01, 0.1, 1]}, seeds=0), "--workers", "1"]
    first = said(arguments, capsys)
    before = {path: path.stat().st_mtime_ns for path in Path("runs").glob("fl60-*/*")}
    again = said(arguments, capsys)
    assert first == again  # seconds too
    assert {path: path.stat().st_mtime_ns for path in Path("runs").glob("fl60-*/*")} == before


def _killed(command: list[str], out: str) -> None:
    """Start a search and kill it as soon as one of its runs has come to a rung."""
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 300
        while not list(Path(out).glob("sweep-*/runs.jsonl")) and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert process.poll() is None  # it was not finished
        process.send_signal(signal.SIGKILL)


SEARCHES: dict[str, dict[str, Any]] = {
    "grid": {"space": {"lr": [0.01, 0.1, 1, 0.3]}, "seeds": 0},
    "optuna": {"space": {"lr": {"log_uniform": [0.01, 1]}}, "search": "optuna", "trials": 6, "batch": 3},
}


@pytest.mark.parametrize(
    ("search", "workers"),
    [("grid", 1), *(pytest.param(name, 2, marks=pytest.mark.paper) for name in SEARCHES)],
)
def test_kill_9_and_other_workers_give_the_same_table(
    search: str, workers: int, capsys: pytest.CaptureFixture[str]
) -> None:
    base = {**FILE["base"], "rounds": 80, "eval_every": 10}
    source = _write(methods=["fedavg"], base=base, **SEARCHES[search])
    whole = Path(said(["sweep", source, "out=whole", "--workers", "1"], capsys)["folder"])
    arguments = ["sweep", source, "out=cut", "--workers", str(workers)]
    _killed([sys.executable, "-m", "panacea", *arguments], "cut")
    cut = Path(said(arguments, capsys)["folder"])
    assert _rows(cut) == _rows(whole)
    assert cut.name == whole.name


def test_a_diverging_setting_is_shown_and_is_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    source = _write(methods=["fedavg"], space={"lr": [0.1, 1e30]}, seeds=0, stop="none")
    result = said(["sweep", source, "--workers", "1"], capsys)
    assert [row["state"] for row in result["trials"]] == ["finished", "diverged"]
    assert "diverged" in result["trials"][1]["error"]
    assert result["best"]["lr"] == 0.1
    assert (
        run_command_line(["sweep", _write(methods=["fedavg"], space={"lr": [1e30, 2e30]}, seeds=0), "--workers", "1"])
        == 1
    )
    assert "no setting of mine came to its end" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["file or a name is missing", "--list"]),
        (["quikc"], ["unknown sweep 'quikc'", "did you mean 'quick'"]),
        (["nothing.yaml"], ["nothing.yaml", "no such file"]),
        (["quick", "fedamp"], ["'fedamp' is neither"]),
        (["quick", "rouds=3"], ["'rouds'", "did you mean 'rounds'"]),
        (["quick", "space.lr=a,b"], ["lr=a"]),
        (["quick", "cohort=500", "trials=1"], ["cohort=500", "only"]),
        (["quick", "rounds=1", "--workers", "-1"], ["workers=-1"]),
        (["quick", "seeds=0..1000000000"], ["1,000,000,001 values"]),
        (["quick", "data.val=0"], ["data.val"]),
    ],
)
def test_wrong_requests_get_one_line(
    arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["sweep", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    for word in words:
        assert word in captured.err


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"base": 3}, ["base=3: keys with their values", "base: {data: fl60"]),
        ({"space": [1, 2]}, ["space=[1, 2]: keys with their values", "space: {lr:"]),
        ({"methods": {"a": 1}}, ["methods.a=1: methods is a list", "methods: [fedavg, ditto]"]),
        ({"seeds": {"a": 1}}, ["seeds.a=1: seeds is a list"]),
        ({"seeds": [0, 0]}, ["seeds=0,0: a seed is given twice"]),
    ],
)
def test_a_file_of_the_wrong_shape(
    changes: dict[str, Any], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    test_wrong_requests_get_one_line([_write(**changes)], words, capsys)


def test_every_allowed_key_is_listed_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["sweep", _write(foo=3)]) == 2
    allowed = capsys.readouterr().err.strip().partition("allowed: ")[2].split(", ")
    assert {"method", "out", "space"} <= set(allowed)
    assert len(set(allowed)) == len(allowed)


def test_without_optuna_the_extra_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert run_command_line(["sweep", "quick", "search=optuna"]) == 2
    assert "pip install 'panacea-fl[search]'" in capsys.readouterr().err


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    found = {row["name"]: row for row in said(["sweep", "--list"], capsys)["sweeps"]}
    assert found["panacea-journal"]["trials"] == 175
    assert found["quick"]["trials"] == 12
    assert run_command_line(["sweep", "--list"]) == 0
    assert "panacea-journal" in capsys.readouterr().out
