"""`panacea attacks`, runs under attack, and the curve that `panacea compare` draws along a key."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from panacea.cli import run_command_line
from panacea.robustness import ATTACKS, DEFENCES
from tests.cli.printed import said

SMALL = ["data=fl60", "data.clients=10", "rounds=3", "local_steps=2", "eval_every=3", "checkpoint_every=100"]
ATTACK = ["attack=sign_flip"]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("panacea.report.run_page.write_run_report", lambda *_: None)  # pages take longer than runs


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


# --- the list ------------------------------------------------------------------------------------------------------


def test_every_attack_and_defence_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["attacks"]) == 0
    out = capsys.readouterr().out
    for name in (set(ATTACKS) | set(DEFENCES)) - {"none"}:
        assert f" {name} " in out, name
    assert "attack=NAME attack.ratio=0.3 defence=NAME" in out
    found = said(["attacks"], capsys)
    assert set(found["attacks"]) == set(ATTACKS) - {"none"}
    assert set(found["defences"]) == set(DEFENCES) - {"none"}
    assert found["attacks"]["label_flip"]["for"] == "classification"
    assert found["defences"]["median"]["for"] == "methods that average"


@pytest.mark.parametrize("name", sorted((set(ATTACKS) | set(DEFENCES)) - {"none"}))
def test_every_one_is_explained(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(said(["attacks", name], capsys)["doc"]) > 20


def test_one_is_explained_with_its_formula_and_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["attacks", "model_poisoning"]) == 0
    out = capsys.readouterr().out
    for word in ("D' = -factor D", "attack.factor", "0.5", "attack.ratio"):
        assert word in out
    assert "gaussian" not in out
    assert run_command_line(["attacks", "krum"]) == 0
    out = capsys.readouterr().out
    for word in ("n - f - 2", "defence.liars", "methods that average"):
        assert word in out
    assert run_command_line(["attacks", "label_filp"]) == 2
    error = capsys.readouterr().err
    assert "did you mean 'label_flip'" in error
    assert error.count("\n") == 1


# --- the curve -----------------------------------------------------------------------------------------------------


def test_a_varied_key_gives_the_numbers_of_separate_runs(capsys: pytest.CaptureFixture[str]) -> None:
    request = ["compare", *SMALL, *ATTACK, "methods=fedavg,ditto", "seeds=0..1", "attack.ratio=0,0.5", "workers=1"]
    found = said(request, capsys)
    assert found["varied"] == [{"key": "attack.ratio", "values": [0, 0.5]}]
    assert found["request"] == "attack=sign_flip"
    assert [(row["method"], row["attack.ratio"]) for row in found["table"]] == [
        ("fedavg", 0), ("fedavg", 0.5), ("ditto", 0), ("ditto", 0.5),
    ]  # fmt: skip
    means: dict[tuple[str, float], list[float]] = {}
    for method in ("fedavg", "ditto"):
        for ratio in (0, 0.5):
            for seed in (0, 1):
                keys = [*SMALL, *ATTACK, f"method={method}", f"attack.ratio={ratio}", f"seed={seed}", "out=apart"]
                summary = said(["run", *keys], capsys)
                means.setdefault((method, ratio), []).append(summary["mean"])
                if ratio:
                    clients = _rows(Path(summary["directory"]) / "clients.csv")
                    honest = [float(row["metric"]) for row in clients if row["novel"] == row["malicious"] == "0"]
                    assert len(honest) == 4  # of 8 training clients
                    assert summary["mean"] == pytest.approx(sum(honest) / 4)
    for row in found["table"]:
        own, start = means[row["method"], row["attack.ratio"]], means[row["method"], 0]
        assert row["mean"] == pytest.approx(sum(own) / 2)
        assert row["std_seeds"] == pytest.approx(abs(own[0] - own[1]) / 2**0.5)
        assert row["drop"] == pytest.approx((sum(start) - sum(own)) / 2)
        assert {"gini", "jain", "gap", "worst_decile", "attackers_mean"} <= set(row)
    folder = Path(found["folder"])
    assert folder.parent == Path("runs")
    assert folder.name.startswith("compare-fl60-sign_flip-")
    assert {path.name for path in folder.iterdir()} == {
        "table.csv", "table.md", "table.tex", "table.json", "tests.csv", "tests.md", "runs.csv", "clients.csv",
        "curve.png", "curve.svg",
    }  # fmt: skip
    assert [float(row["mean"]) for row in _rows(folder / "table.csv")] == [row["mean"] for row in found["table"]]
    runs = _rows(folder / "runs.csv")
    assert len(runs) == 8
    assert all((Path(run["directory"]) / "summary.json").exists() for run in runs)
    text = (folder / "table.md").read_text()
    for word in ("attack=sign_flip", "over honest clients", "| fedavg |", "against attack.ratio=0"):
        assert word in text
    assert [(test["attack.ratio"], test["pairs"]) for test in found["tests"]] == [(0, 16), (0.5, 8)]  # honest ones
    assert (folder / "curve.png").stat().st_size > 5000
    again = said(request, capsys)
    assert again == found  # train_seconds of every run too: nothing was trained


def test_the_table_is_printed_and_names_attack_and_defence(capsys: pytest.CaptureFixture[str]) -> None:
    keys = ["compare", *SMALL, "methods=fedavg", "seeds=0", "attack=model_poisoning", "defence=clip", "workers=1"]
    assert run_command_line([*keys, "attack.factor=1,5"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    for word in ("attack=model_poisoning attack.ratio=0.2", "defence=clip", "attack.factor:", "honest"):
        assert word in out, word
    assert run_command_line(keys) == 0  # nothing varied: the plain table
    captured = capsys.readouterr()
    out = " ".join(captured.out.split())
    for word in ("attack=model_poisoning (2 clients), defence=clip", "mean over honest clients", "worst decile"):
        assert word in out, word
    names = sorted(path.name.rpartition("-")[0] for path in Path("runs").glob("compare-*"))
    assert names == ["compare-fl60-model_poisoning", "compare-fl60-model_poisoning"]


def test_two_keys_have_a_panel_each_and_lists_stay_lists(capsys: pytest.CaptureFixture[str]) -> None:
    request = [*SMALL, *ATTACK, "attack.clients=0,2", "model=mlp", "model.hidden=3,2", "defence=none,median"]
    found = said(["compare", *request, "methods=fedavg", "seeds=0", "lr=0.1,0.2", "workers=1"], capsys)
    assert [axis["key"] for axis in found["varied"]] == ["lr", "defence"]
    assert [(row["lr"], row["defence"]) for row in found["table"]] == [
        (0.1, "none"), (0.2, "none"), (0.1, "median"), (0.2, "median"),
    ]  # fmt: skip
    assert {(run["attackers"], run["parameters"]) for run in found["runs"]} == {(2, 3 * 3 + 3 * 2 + 2 + 2 * 2 + 2)}
    assert found["request"] == "attack=sign_flip attack.clients=[0, 2]"


def test_a_run_that_diverges_leaves_its_cell_empty_and_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    request = ["compare", *SMALL, "methods=fedavg", "seeds=0", "lr=0.1,1e30", "workers=1"]
    assert run_command_line([*request, "--json"]) == 1
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert found["table"][0]["mean"] is not None
    assert found["table"][1]["mean"] is None
    assert len(found["failed"]) == 1
    assert captured.err.splitlines()[-1].startswith("error: 1 of 2 runs failed; the first: fedavg lr=1e+30 seed 0")


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (["attack=label_flip", "attack.ratoi=0..0.5:0.1"], ["attack.ratoi", "did you mean 'attack.ratio'"]),
        (["attack=label_flip", "attack.ratio=0..1.5:0.5"], ["attack.ratio=1.5", "less than or equal to 1"]),
        (["attack.ratio=0..0.5:0.1"], ["attack.ratio has no effect without an attack"]),
        (["method.lam=0.1,1"], ["fedavg: unknown key 'method.lam'", "goes to every method"]),
        (["attack=label_flip", "defence=clip,medain"], ["medain", "did you mean 'median'"]),
        (["attack=label_flip,nonsense"], ["nonsense"]),
        (["lr=1,2", "rounds=1,2", "cohort=1,2"], ["lr, rounds, cohort have several values"]),
    ],
)
def test_a_wrong_request_is_one_line_before_anything_is_trained(
    keys: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["compare", "data=fl60", "methods=ditto,fedavg", "seeds=0", *keys]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    for word in words:
        assert word in error, (word, error)
    assert not Path("runs").exists()


def test_no_attack_can_be_asked_for_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    plain = said(["run", *SMALL, "method=fedavg"], capsys)
    assert said(["run", *SMALL, "method=fedavg", "attack=none", "defence=none"], capsys) == plain
