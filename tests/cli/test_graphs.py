"""`panacea graphs`: lists, explanations, numbers, pictures, and one line for what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from panacea.cli import run_command_line
from panacea.graphs import build

SHOW = ["graphs", "show", "fl60", "data.clients=12"]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_list_and_explanation(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, words in (
        (["graphs"], ["given", "knn", "gaussian", "complete", "empty", "random", "FILE", "graph.k", "graph.drop"]),
        (["graphs", "knn"], ["graph.k", "graph.by", "graph.drop"]),
        (["graphs", "--help"], ["Example: panacea graphs show", "--out"]),
    ):
        assert run_command_line(arguments) == 0
        out = capsys.readouterr().out
        for word in words:
            assert word in out
    assert run_command_line(["graphs", "--json"]) == 0
    assert "comes with the data" in json.loads(capsys.readouterr().out)["given"]  # one object, as `methods --json`
    assert run_command_line(["graphs", "gaussian", "--json"]) == 0
    assert "sigma" in {row["key"] for row in json.loads(capsys.readouterr().out)["keys"]}


def test_show_prints_the_graph_a_run_would_use(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run_command_line([*SHOW, "graph=complete", "--out", "g.svg"]) == 0
    out, err = capsys.readouterr()
    assert "66" in out
    assert "clients without neighbours" in out
    assert "drawn: g.svg" in err
    assert (tmp_path / "g.svg").exists()
    keys = ["graph=knn", "graph.k=2", "novel=0.25", "seed=3"]
    assert run_command_line([*SHOW, *keys, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["novel"] == 3
    assert shown["graph"]["k"] == 2
    assert run_command_line(["run", *SHOW[2:3], *SHOW[3:], *keys, "method=fedavg", "rounds=1", "-q"]) == 2
    capsys.readouterr()
    assert run_command_line(["run", "data=fl60", *SHOW[3:], *keys, "method=fedavg", "rounds=1", "-q"]) == 0
    (path,) = tmp_path.glob("runs/*/graph.json")
    assert json.loads(path.read_text()) == {key: shown[key] for key in json.loads(path.read_text())}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["graphs", "knnn"], ["unknown graph 'knnn'", "did you mean 'knn'?"]),
        (["graphs", "knn", "empty"], ["'empty'", "one name"]),
        (["graphs", "knn", "--out", "g.png"], ["--out is for"]),
        (["graphs", "show"], ["data is missing"]),
        (["graphs", "show", "fl61"], ["unknown data set 'fl61'", "did you mean 'fl60'?"]),
        (["graphs", "show", "fl60", "digits"], ["'digits'", "one data set"]),
        (["graphs", "show", "fl60", "data=fl60"], ["data is given twice"]),
        ([*SHOW, "rounds=3"], ["unknown key 'rounds'", "graph.*"]),
        ([*SHOW, "graph=gaussan"], ["unknown graph 'gaussan'", "did you mean 'gaussian'?"]),
        ([*SHOW, "--out", "g.gif"], ["g.gif", ".png, .svg or .pdf"]),
        ([*SHOW, "--out", "nan.csv/g.png"], ["nan.csv/g.png cannot be written"]),
        (["graphs", "show", "digits", "data.split=iid"], ["no relation graph", "graph=knn"]),
        ([*SHOW, "graph=nowhere.csv"], ["nowhere.csv", "no such file"]),
        ([*SHOW, "graph=[knn,empty]"], ["graph", "one name"]),
        ([*SHOW, "graph=five.npz"], ["five.npz: the graph has 5 nodes but there are 12 clients"]),
        ([*SHOW, "graph=nan.csv"], ["nan.csv line 3: weight 'nan' is not a positive number"]),
        ([*SHOW, "graph=negative.npz"], ["negative.npz", "weight -1.0"]),
        ([*SHOW, "graph=unknown.csv"], ["unknown.csv line 2 names an unknown client 12", "0..11"]),
        ([*SHOW, "graph.drop=1.5"], ["graph.drop=1.5", "less than or equal to 1"]),
        ([*SHOW, "graph.drop=-0.5"], ["graph.drop=-0.5"]),
        ([*SHOW, "graph.add=nan"], ["graph.add=nan"]),
        ([*SHOW, "graph.rewire=all"], ["graph.rewire=all"]),
        ([*SHOW, "graph.dorp=0.5"], ["graph.dorp", "did you mean 'graph.drop'?"]),
        ([*SHOW, "graph=knn", "graph.k=12"], ["graph.k=12", "1..11"]),
        ([*SHOW, "graph=random", "graph.density=2"], ["graph.density=2"]),
        ([*SHOW, "graph=complete", "graph.add=0.5"], ["graph.add=0.5", "only 0 pairs are not linked"]),
    ],
)
def test_wrong_requests(
    arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    build.empty(5).save(tmp_path / "five.npz")
    (tmp_path / "nan.csv").write_text("source,target,weight\n0,1,1\n1,2,nan\n")
    np.savez(tmp_path / "negative.npz", n=12, edges=[[0, 1]], weights=[-1.0])
    (tmp_path / "unknown.csv").write_text("source,target\n0,12\n")
    before = sorted(tmp_path.rglob("*"))
    for command in (arguments, ["run", "data=fl60", *arguments[3:], "method=fedavg", "rounds=1"]):
        if command[0] == "run" and (arguments[:4] != SHOW or "--out" in arguments or "rounds=3" in arguments):
            continue
        code = run_command_line(command)
        out, err = capsys.readouterr()
        assert (code, out) == (2, "")
        lines = [line for line in err.splitlines() if not line.startswith("note: ")]
        assert len(lines) == 1, err
        for word in words:
            assert word in lines[0]
    assert sorted(tmp_path.rglob("*")) == before


def test_the_list_needs_no_torch() -> None:
    import subprocess
    import sys

    code = (
        "import sys\nfrom panacea.cli import run_command_line\n"
        "assert run_command_line(['graphs']) == 0\nassert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
