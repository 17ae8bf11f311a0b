from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from panacea.cli import run_command_line
from panacea.theory import STATEMENTS, Finding, Row, Settings, Table

FAST = ["--trials", "500", "--search", "3"]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_everything_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["theory", *FAST, "--json"]) == 0
    out, err = capsys.readouterr()
    assert out.count("\n") == 1
    assert err == ""
    answer = json.loads(out)
    assert [statement["name"] for statement in answer["statements"]] == list(STATEMENTS)
    for statement in answer["statements"]:
        assert statement["holds"] is True
        assert statement["printed_holds"] is False  # each has something wrong as printed
        assert statement["tables"][0]["rows"][0]["verdict"]


def test_same_seed_same_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    answers = []
    for seed in ("3", "3", "4"):
        assert run_command_line(["theory", "theorem-3.3", *FAST, "--seed", seed, "--json"]) == 0
        answers.append(json.loads(capsys.readouterr().out)["statements"])
    assert answers[0] == answers[1] != answers[2]


def test_tables_and_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run_command_line(["theory", "theorem-3.3", "lemma", *FAST, "--out", "a/b"]) == 0
    out, err = capsys.readouterr()
    assert "Check B" in out
    assert "path 8, first 3" in out
    assert "2.7x too" in " ".join(out.split())
    assert err == "written: a/b\n"
    found = tmp_path / "a" / "b"
    assert {path.name for path in found.iterdir()} == {
        "theory.csv", "theory.md", "check-b.png", "check-b.svg", "lemma.png", "lemma.svg",
    }  # fmt: skip
    with (found / "theory.csv").open() as file:
        rows = list(csv.DictReader(file))
    (row,) = (row for row in rows if row["case"] == "path 12, first 6, L=2")
    assert float(row["printed"]) == pytest.approx(12.006, abs=0.001)
    assert float(row["corrected"]) == pytest.approx(23.825, abs=0.001)
    assert "| star 8, centre, L=1 | 1.055 | 2.9 |" in (found / "theory.md").read_text()


def test_all_figures_are_drawn(tmp_path: Path) -> None:
    assert run_command_line(["theory", "ordering", "fedamp-1", "fedamp-2", *FAST, "--quiet", "--out", "out"]) == 0
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {f"{name}.{kind}" for name in ("ordering", "fedamp-1", "fedamp-2") for kind in ("png", "svg")} < names


def test_a_failing_statement_exits_with_1(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(settings: Settings) -> Finding:
        return Finding("lemma", "t", "e", [Table("t", [Row("some case", 1.0, 2.0, 3.0, holds=False, verdict="no")])])

    monkeypatch.setitem(STATEMENTS, "lemma", broken)
    assert run_command_line(["theory", "lemma"]) == 1
    out, err = capsys.readouterr()
    assert "some case" in out
    assert err == "error: a corrected statement fails its check: lemma (some case)\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["lema"], ["unknown statement 'lema'", "did you mean 'lemma'?"]),
        (["theorem-3.4"], ["'theorem-3.4'", "did you mean 'theorem-3."]),
        (["lemma", "lemma"], ["given twice"]),
        (["--trials", "99"], ["--trials 99", "100"]),
        (["--trials", "many"], ["--trials"]),
        (["--seed", "-1"], ["--seed -1"]),
        (["--search", "7"], ["--search 7", "2 to 6"]),
        (["lemma", "--out", "file"], ["--out file"]),
    ],
)
def test_wrong_requests(
    arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    assert run_command_line(["theory", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    for word in words:
        assert word in err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_help_names_every_statement(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["theory", "--help"]) == 0
    text = capsys.readouterr().out
    for name in STATEMENTS:
        assert name in text


def test_a_damaged_graph_file_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tpt48").mkdir()
    (tmp_path / "tpt48" / "tpt48.npz").write_text("nothing")
    monkeypatch.setenv("PANACEA_DATA", str(tmp_path))
    assert run_command_line(["theory", "lemma", *FAST]) == 2
    err = capsys.readouterr().err
    assert "tpt48.npz" in err
    assert err.count("\n") == 1
