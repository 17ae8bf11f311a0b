from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from panacea.cli import reproduced_theory, run_command_line
from panacea.experiment.reproduce import entry_names
from panacea.theory import check
from tests.cli.printed import said

SHORT = ["panacea-table2", "--quick", "rounds=2", "local_steps=2", "data=fl60", "--workers", "1"]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PANACEA_DATA", str(tmp_path / "nothing"))


def test_a_table_beside_the_paper(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run_command_line(["reproduce", *SHORT, "methods=fedavg,Panacea", "--out", "o"]) == 0
    out, err = capsys.readouterr()
    assert "97.9±9.7" in out
    assert err.startswith("2 runs; expected time")
    assert "REDUCED: rounds=2 instead of 800" in out
    assert "worse*" in out
    assert "*: of a shorter protocol than the paper's" in out
    (folder,) = (tmp_path / "o").glob("reproduce-panacea-table2-quick-*")  # keys of one's own: not the quick result
    assert err.splitlines()[-1] == f"written: {folder.relative_to(tmp_path)}"
    assert {path.name for path in folder.iterdir()} == {"result.md", "result.csv", "result.json"}
    with (folder / "result.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["row"] for row in rows] == ["FedAvg", "Panacea"]
    assert float(rows[0]["published"]) == 97.9
    assert float(rows[0]["difference"]) == pytest.approx(float(rows[0]["ours"]) - 97.9)
    page = (folder / "result.md").read_text()
    assert "$ panacea reproduce panacea-table2 rounds=2 local_steps=2 data=fl60 methods=fedavg,Panacea --quick" in page
    content = json.loads((folder / "result.json").read_text())
    assert content["versions"]["python"]
    assert content["versions"]["torch"]
    assert (content["trained"], content["read"]) == (2, 0)


def test_as_json_and_nothing_is_trained_twice(capsys: pytest.CaptureFixture[str]) -> None:
    request = ["reproduce", *SHORT, "methods=fedavg", "--out", "o"]
    first = said(request, capsys)
    again = said(request, capsys)
    assert (first["trained"], again["trained"], again["read"]) == (1, 0, 1)
    assert again["cells"] == first["cells"]
    assert first["cells"][0]["verdict"] in ("reproduced", "better", "worse")
    novel = said(["reproduce", "panacea-table3", *request[2:]], capsys)
    assert (novel["trained"], novel["read"]) == (0, 1)  # Table III is of the runs of Table II
    assert novel["cells"][0]["clients"] == 12


def test_a_figure_is_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    request = ["reproduce", "generator-gain", "--quick", "rounds=1", "local_steps=1", "data.clients=6,8", "seeds=0"]
    result = said([*request, "--workers", "1"], capsys)
    folder = Path(result["folder"])
    assert (folder / "figure.png").stat().st_size > 5_000
    assert (folder / "figure.svg").read_text().startswith("<?xml")
    assert "![figure](figure.png)" in (folder / "result.md").read_text()
    assert {cell["value"] for cell in result["cells"]} == {6, 8}
    assert {cell["verdict"] for cell in result["cells"]} == {"-"}


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("panacea-figure3", ["data=fl60", "methods=fedavg,sfl"]),
        ("fedcg-table3", ["methods=GCN-U"]),
        ("panacea-table5", ["methods=Ditto", "seeds=0"]),
    ],
)
def test_others_end_to_end(name: str, keys: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn")
    request = [name, "--quick", "rounds=2", "local_steps=2", "eval_every=1", "--workers", "1", *keys]
    result = said(["reproduce", *request], capsys)
    assert all(cell["ours"] is not None for cell in result["cells"])
    if name != "panacea-figure3":
        assert all(cell["label"].startswith("stand-in") for cell in result["cells"])
        assert {cell["verdict"] for cell in result["cells"]} <= {"not comparable", "-"}


def test_the_list_says_what_can_be_run(capsys: pytest.CaptureFixture[str]) -> None:
    listed = {entry["name"]: entry for entry in said(["reproduce", "--list"], capsys)["reproductions"]}
    assert list(listed) == entry_names()
    table = listed["panacea-table2"]
    assert table["data"]["FL-60"] == "generated"
    assert table["data"]["CompCars"] in ("stand-in compcars_like", "missing")
    assert table["data"]["TPT-48"] == "missing"
    assert table["runnable"]
    assert any("tpt48" in how for how in table["missing"])
    assert not listed["fedamp-table3"]["runnable"]
    assert run_command_line(["reproduce", "--list"]) == 0
    out = capsys.readouterr().out
    assert "panacea-table2" in out
    assert "missing: celeba: not in" in out
    assert any("nothing/tpt48; place" in how for how in table["missing"])


def test_missing_data_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    result = said(["reproduce", *SHORT[:4], "data=fl60,tpt48", "methods=fedavg", "--workers", "1"], capsys)
    by = {cell["column"]: cell for cell in result["cells"]}
    assert by["TPT-48"]["verdict"] == "not run"
    assert "climdiv" in by["TPT-48"]["why"]
    assert by["FL-60"]["ours"] is not None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["panacea-tabel2"], ["unknown reproduction", "did you mean 'panacea-table2'?"]),
        ([], ["NAME is missing", "--list"]),
        (["a", "b"], ["one is needed"]),
        (["panacea-table2", "rouns=2"], ["unknown key 'rouns'", "did you mean 'rounds'"]),
        (["panacea-table2", "data=fl66"], ["unknown data 'fl66'"]),
        (["panacea-table2", "--workers", "0"], ["--workers 0"]),
        (["panacea-table2", "method=fedavg"], ["methods=fedavg"]),
        (["fedamp-table3", "--quick"], ["nothing can be run", "mnist"]),
        (["nowhere.yaml"], ["nowhere.yaml: no such file"]),
        (["theory", "rounds=3"], ["trials, search and seeds"]),
        (["--list", "panacea-table2"], ["--list"]),
        (["panacea-table2", "data="], ["data is empty"]),
        (["panacea-table2", "data=fl60", "methods="], ["methods is empty"]),
        (["panacea-table2", "data=fl60", "methods=,"], ["methods is empty"]),
        (["panacea-table2", "data=fl60", "seeds=[]"], ["seeds is empty"]),
        (["generator-gain", "data.clients="], ["data.clients is empty", "data.clients="]),
        (["panacea-table2", "data=tpt48"], ["nothing can be run: tpt48: not in", "nothing/tpt48; place"]),
        ([*SHORT, "--out", "/proc/x"], ["out=/proc/x: cannot write there"]),
        ([*SHORT, "--out", "/etc/passwd"], ["out=/etc/passwd: cannot write there"]),
        (["theory", "--out", "/etc/passwd"], ["out=/etc/passwd: cannot write there"]),
    ],
)
def test_wrong_requests_get_one_line(
    arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["reproduce", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    for word in words:
        assert word in err


def test_a_file_for_another_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("data: fl60\nmethod: fedavg\nseeds: [0]\n")
    test_wrong_requests_get_one_line(["mine.yaml"], ["mine.yaml is not a reproduction", "docs/reproduce.md"], capsys)


def test_theory(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    some = ["theorem-3.2", "lemma"]  # all seven take their time
    monkeypatch.setattr(reproduced_theory, "check", lambda _, *settings: check(some, *settings))
    result = said(["reproduce", "theory", "--quick", "trials=300", "search=2", "seeds=3"], capsys)
    assert [cell["statement"] for cell in result["cells"]] == some
    assert (result["settings"], result["seed"]) == ({"trials": 300, "search": 2}, 3)
    assert all(cell["corrected_holds"] for cell in result["cells"])
    assert {cell["verdict"] for cell in result["cells"]} == {"cannot be right"}  # each has something wrong as printed
    names = {path.name for path in Path(result["folder"]).iterdir()}
    assert {"result.md", "result.csv", "result.json", "theory.csv", "lemma.png"} <= names
