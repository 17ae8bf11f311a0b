"""`panacea bench` as a user types it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from panacea.cli import run_command_line
from panacea.experiment.speed import Bench, workloads
from tests.cli.printed import said
from tests.toy import without_compiling


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    made = tuple(dataclasses.replace(work, steps=2) for work in workloads._WORKLOADS)
    monkeypatch.setattr(workloads, "_WORKLOADS", made)
    without_compiling(monkeypatch)


def test_the_table_names_engines_ratios_and_waits(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["bench", "--only", "W1", "--repeats", "1"]) == 0
    out = capsys.readouterr().out
    for word in ("ms a round", "x plain", "x sequential", "first wait", "% of peak", "vectorised", "GFLOP/s"):
        assert word in out


def test_files_and_json_say_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = said(["bench", "engines", "--only", "w1", "--repeats", "1", "--out", str(tmp_path)], capsys)
    written = json.loads((tmp_path / "bench.json").read_text())
    assert written["workloads"] == found["workloads"]
    assert [work["workload"] for work in found["workloads"]] == ["W1"]
    assert found["versions"]["python"]
    assert found["interrupted"] is False
    assert (tmp_path / "bench.png").stat().st_size > 1000
    assert (tmp_path / "bench.svg").read_text().count("W1") >= 1


@pytest.mark.parametrize(("ratio", "code"), [(1e-9, 0), (1e9, 1)])
def test_a_missed_target_fails(
    ratio: float, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from panacea.experiment.speed import targets

    only = (targets.Target("cpu", "W1", "vectorised", "plain", ratio),)
    monkeypatch.setattr(targets, "TARGETS", only)
    monkeypatch.setattr(targets, "_WAIT", 60.0)
    arguments = ["bench", "--only", "W1", "--repeats", "1", "--check", "--device", "cpu"]
    assert run_command_line(arguments) == code
    printed = capsys.readouterr()
    assert ("yes" if code == 0 else "NO") in printed.out
    assert printed.err.count("\n") == code
    assert ("vectorised against plain" in printed.err) is bool(code)


def test_what_was_measured_is_kept_when_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from panacea.cli import benching

    real = benching.measure_engines

    def one_then_stop(*arguments: object) -> object:
        yield next(iter(real(*arguments)))  # type: ignore[arg-type]
        raise KeyboardInterrupt

    monkeypatch.setattr(benching, "measure_engines", one_then_stop)
    assert run_command_line(["bench", "--only", "W1,W1-20", "--repeats", "1", "--out", str(tmp_path)]) == 130
    written = json.loads((tmp_path / "bench.json").read_text())
    assert written["interrupted"] is True
    assert len(written["workloads"]) == 1
    assert "Traceback" not in capsys.readouterr().err


def test_unlike_work_is_marked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(Bench, "mismatches", lambda self: ["W1: pfl ended elsewhere"])
    assert run_command_line(["bench", "--only", "W1", "--repeats", "1"]) == 0
    assert "not the same work: W1: pfl ended elsewhere" in capsys.readouterr().out


def test_growth_prints_a_table_for_each_curve(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["bench", "growth", "--only", "model", "--quick", "--repeats", "1"]) == 0
    out = capsys.readouterr().out
    assert "parameters of an MLP" in out
    assert "x smallest" in out


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["bench", "--against", "flowr"], "did you mean 'flower'"),
        (["bench", "--only", "W4"], "allowed: W1"),
        (["bench", "growth", "--only", "cohorts"], "did you mean 'cohort'"),
        (["bench", "growht"], "did you mean 'growth'"),
        (["bench", "growth", "--against", "pfl"], "--against"),
        (["bench", "methods", "--check"], "--check"),
        (["bench", "--device", "gpu"], "allowed: auto, cpu, cuda"),
        (["bench", "--repeats", "0"], "at least 1"),
        (["bench", "--against", "pfllib"], "--pfllib PATH"),
        (["bench", "--out", "/dev/null/x"], "cannot make this folder"),
        (["bench", "--only", "W2-200", "--device", "cpu"], "none of these is measured on cpu"),
    ],
)
def test_a_wrong_bench_is_one_line(arguments: list[str], word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(arguments) == 2
    error = capsys.readouterr().err
    assert word in error
    assert error.count("\n") == 1
