"""The page of a run under attack: damage by distance beside the clean run, refused uploads, fairness."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import numpy as np
import pytest

import panacea as pn
from panacea.cli import run_command_line
from panacea.core.files import append_line
from panacea.experiment.rundir import RunDirectory
from panacea.report.robustness import refused_counts

SMALL = [
    "data.clients=12", "local_steps=3", "eval_every=50", "method=fedavg",
]  # fmt: skip


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _run(capsys: pytest.CaptureFixture[str], *keys: str) -> Path:
    given = {key.partition("=")[0] for key in keys}
    usual = [key for key in ("data=fl60", "rounds=12") if key.partition("=")[0] not in given]
    assert run_command_line(["run", *SMALL, *usual, *keys, "--json"]) == 0
    return Path(json.loads(capsys.readouterr().out)["directory"])


def _clients(run: Path) -> list[dict[str, str]]:
    with (run / "clients.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def _page(run: Path) -> str:
    return (run / "report.html").read_text()


def test_without_attack_there_is_fairness_and_nothing_of_attackers(capsys: pytest.CaptureFixture[str]) -> None:
    run = _run(capsys)
    assert {row["hops"] for row in _clients(run)} == {""}
    assert not list((run / "figures").glob("hops*"))
    assert not list((run / "figures").glob("refused*"))
    page, summary = _page(run), json.loads((run / "summary.json").read_text())
    assert "Attack and defence" not in page
    for name, key in (("Gini coefficient", "gini"), ("best minus worst", "gap")):
        assert f"<td>{name}</td><td>{summary[key]:.4g}</td>" in page
    assert "Fairness over training clients" in page


@pytest.mark.parametrize("nobody", [["attack=none"], ["attack=sign_flip", "attack.ratio=0"]])
def test_damage_by_distance_is_shown_beside_the_clean_run(
    nobody: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    clean = _run(capsys, *nobody)
    run = _run(capsys, "attack=sign_flip", "attack.clients=0")
    before, after = _clients(clean), _clients(run)
    assert after[0]["hops"] == "0"
    hops = {row["hops"] for row in after}
    assert "1" in hops
    for suffix in ("png", "svg"):
        assert (run / "figures" / f"hops.{suffix}").stat().st_size > 3000
    page = _page(run)
    for who, title in (("0", "honest training clients"), ("1", "novel clients")):
        part = page.partition(f"Damage by distance: {title}")[2].partition("</table>")[0]
        assert "<tr><td>0</td>" not in part  # attackers themselves are not damage
        for distance in hops:
            at = [i for i, row in enumerate(after) if row["hops"] == distance and row["novel"] == who]
            at = [i for i in at if after[i]["malicious"] == "0"]
            if not at:
                continue
            new, old = (sum(float(rows[i]["metric"]) for i in at) / len(at) for rows in (after, before))
            name = "not linked" if math.isinf(float(distance)) else distance
            assert f"<tr><td>{name}</td><td>{len(at)}</td><td>{new:.4g}</td>" in part
            assert f"<td>{old:.4g}</td><td>{new - old:.4g}</td></tr>" in part
    assert "attack=sign_flip (1 clients)" in page.partition("</title>")[0]
    assert "Fairness over honest training clients" in page


def test_without_the_clean_run_the_page_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    _run(capsys, "attack=none", "lr=0.05")  # another configuration
    page = _page(_run(capsys, "attack=sign_flip", "attack.clients=0"))
    assert "The run without attack is not beside this one" in page
    assert "without attack</text>" not in page


def test_no_links_no_way_and_no_graph_no_distances(capsys: pytest.CaptureFixture[str]) -> None:
    run = _run(capsys, "attack=sign_flip", "graph=empty")
    assert {row["hops"] for row in _clients(run)} == {"0", "inf"}
    draw = np.random.default_rng(0)
    alone = pn.Federation.from_arrays([draw.normal(size=(9, 2)) for _ in range(4)], [np.arange(9) % 2] * 4)
    found = pn.train(alone, "fedavg", rounds=1, attack="sign_flip", **{"attack.clients": [0]})  # type: ignore[arg-type]
    assert found.clients["hops"].isna().all()
    assert found.clients["malicious"].tolist() == [1, 0, 0, 0]


def test_refused_uploads_are_drawn_by_reason(capsys: pytest.CaptureFixture[str]) -> None:
    keys = ["attack=model_poisoning", "attack.factor=30", "attack.ratio=0.2", "defence=screen"]
    run = _run(capsys, *keys, "rounds=30")
    refused = [json.loads(line) for line in (run / "refused.jsonl").read_text().splitlines()]
    assert refused
    assert (run / "figures" / "refused.png").exists()
    assert f"<td>refused: too long an update</td><td>{len(refused)}</td>" in _page(run)
    assert "uploads the server refused, by reason" in _page(run)


def test_reasons_are_counted_without_their_numbers(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    assert refused_counts(directory) == []
    for round, reason in ((1, "too long: 3 times"), (4, "too long: 8 times"), (4, "not finite (2 values)")):
        append_line(directory.refused, {"round": round, "client": 0, "name": "0", "reason": reason})
    assert refused_counts(directory) == [(1, "too long"), (4, "too long"), (4, "not finite")]
