"""The table of methods, their speed, and what a run keeps of who collaborates with whom."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from panacea.cli import run_command_line
from panacea.methods import method_names

GROUPS = [
    "data=digits", "data.groups=3", "data.clients=9", "model=linear", "rounds=3", "local_steps=5", "cohort=9",
]  # fmt: skip


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_table_has_every_method_with_its_facts(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["methods"]) == 0
    out = capsys.readouterr().out
    for word in (*method_names(), "Karimireddy", "2020", "U + 4P", "server keeps", "client keeps", "newcomer"):
        assert word in out, word
    assert run_command_line(["methods", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == method_names()
    assert found["scaffold"]["client"] == "c_i"
    assert found["scaffold"]["down"] == "U + 4P"


def test_one_method_is_explained_with_its_facts(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["methods", "scaffold"]) == 0
    out = capsys.readouterr().out
    assert "bytes up: U + 4P" in out
    assert "method.global_lr" in out


def test_bench_compares_the_engines_for_the_methods_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["bench", "methods", "--methods", "fedavg,fedbn", "--repeats", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["method"] for row in found["methods"]] == ["fedavg", "fedbn"]
    for row in found["methods"]:
        assert row["ratio"] == pytest.approx(row["sequential_ms"] / row["vectorised_ms"])
        assert row["ratio"] > 1.5  # much more on a quiet machine
    assert run_command_line(["bench", "--methods", "fedavg", "--repeats", "1"]) == 0
    assert "times faster" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["bench", "method"], "did you mean 'methods'"),
        (["bench", "--methods", "fedavgg"], "did you mean 'fedavg'"),
        (["bench", "--repeats", "0"], "at least 1"),
    ],
)
def test_a_wrong_bench_is_refused_in_one_line(
    arguments: list[str], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(arguments) == 2
    error = capsys.readouterr().err
    assert word in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("method", ["fedamp", "heurfedamp", "sfl"])
def test_collaboration_is_logged_kept_and_drawn(method: str, tmp_path: Path) -> None:
    assert run_command_line(["run", *GROUPS, f"method={method}", "--quiet"]) == 0
    (run,) = (tmp_path / "runs").iterdir()
    with np.load(run / "collaboration.npz") as kept:
        weights = kept["weights"]
        assert kept["clients"].tolist() == list(range(9))
    assert weights.shape == (9, 9)
    assert weights.sum(axis=1) == pytest.approx(np.ones(9), abs=1e-6)
    assert (weights >= 0).all()
    line = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert line["self_weight"] == pytest.approx(float(np.diag(weights).mean()))
    groups = np.repeat([0, 1, 2], 3)
    others = weights * (1 - np.eye(9))
    within = others[groups[:, None] == groups].sum() / others.sum()
    assert line["group_weight"] == pytest.approx(within)
    for suffix in ("png", "svg"):
        assert (run / "figures" / f"collaboration.{suffix}").stat().st_size > 1000
    assert "whose models are mixed into whose" in (run / "report.html").read_text()


def test_a_method_that_mixes_nothing_keeps_no_weights(tmp_path: Path) -> None:
    assert run_command_line(["run", *GROUPS, "method=scaffold", "--quiet"]) == 0
    (run,) = (tmp_path / "runs").iterdir()
    assert not (run / "collaboration.npz").exists()
    assert not (run / "figures" / "collaboration.png").exists()
    header = (run / "clients.csv").read_text().splitlines()[0]
    assert header.endswith("final_local")  # SCAFFOLD's local model is scored as well
    assert "final_local_mean" in json.loads((run / "summary.json").read_text())
