"""`panacea compare --tune`: real runs; the table says what was tuned, and is of the settings chosen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from panacea.cli.app import run_command_line
from tests.cli.printed import said

SMALL = ["data=fl60", "data.clients=6", "rounds=2", "local_steps=2", "eval_every=1", "--workers", "1"]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_methods_are_compared_with_the_settings_found(capsys: pytest.CaptureFixture[str]) -> None:
    result = said(["compare", *SMALL, "methods=fedavg,ditto", "seeds=3..4", "--tune"], capsys)
    assert [row["method"] for row in result["table"]] == ["fedavg", "ditto"]
    assert "9 settings each, 2 rounds, tuning seeds 3" in result["tuned"]
    (folder,) = Path("runs").glob("sweep-tune-fl60-*")
    assert len((folder / "trials.csv").read_text().splitlines()) == 1 + 2 * 9
    chosen = {name: yaml.safe_load((folder / f"best-{name}.yaml").read_text()) for name in ("fedavg", "ditto")}
    for run in result["runs"]:
        config = yaml.safe_load((Path(run["directory"]) / "config.yaml").read_text())
        assert config["lr"] == chosen[run["method"]]["lr"]
        if run["method"] == "ditto":
            assert config["method"]["lam"] == chosen["ditto"]["method.lam"]
    runs = len(list(Path("runs").glob("fl60-*")))
    assert runs == 2 * 9 + 2  # seed 3 of the chosen settings was trained while tuning
    page = (Path(result["folder"]) / "table.md").read_text()
    assert "All methods tuned alike: 9 settings each" in page
    assert "All methods tuned alike" in (Path(result["folder"]) / "table.tex").read_text()
    assert run_command_line(["compare", *SMALL, "methods=fedavg,ditto", "seeds=3..4", "--tune"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "all methods tuned alike" in printed
    assert len(list(Path("runs").glob("fl60-*"))) == runs


def test_a_budget_of_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    result = said(["compare", "--tune", "2", *SMALL, "methods=ditto", "seeds=0", "lr=0.3", "attack=label_flip"], capsys)
    assert "2 settings each" in result["tuned"]
    assert "lr from 0.1 to 0.9" in result["tuned"]
    assert result["runs"][0]["attack"] == "label_flip"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["methods=fedavg,mine.yaml"], ["mine.yaml", "--tune"]),
        (["methods=ditto,fedavg", "method.ditto.lam=1"], ["method.ditto.lam", "--tune"]),
        (["methods=fedavg", "lr=0.1,0.3"], ["lr=0.1,0.3", "--tune"]),
        (["methods=fedavg", "rouds=3"], ["rouds", "did you mean"]),
        (["methods=fedavg", "--tune", "1"], ["--tune 1", "at least 2"]),
    ],
)
def test_wrong_requests_get_one_line(
    arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine.yaml").write_text(json.dumps({"data": "fl60", "method": "ditto", "method.lam": 2}))
    tune = [] if "--tune" in arguments else ["--tune"]
    assert run_command_line(["compare", *SMALL, "seeds=0", *arguments, *tune]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    for word in words:
        assert word in captured.err
