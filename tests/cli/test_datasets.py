"""`panacea datasets`: list, card, picture, floors, fetch, and one line for what is wrong."""

from __future__ import annotations

import csv
import gzip
import hashlib
import re
from pathlib import Path

import pytest

from panacea.cli import flooring, run_command_line
from panacea.data import fetch as fetching
from tests.cli.printed import said


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, real_data: Path) -> None:
    """Nothing but what a test itself places (real_data is asked for before the variable changes)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PANACEA_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("PANACEA_CACHE", str(tmp_path / "cache"))


def _shown(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What is printed, every run of blanks as one."""
    assert run_command_line(arguments) == 0
    return " ".join(capsys.readouterr().out.split())


def test_the_list_says_whose_files_are_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    before = said(["datasets"], capsys)
    assert before["fl60"]["files"] == "generated"
    assert before["digits"]["files"] == "here"  # scikit-learn is installed
    assert before["folder"]["files"] == "yours"
    assert before["tpt48"]["files"] == "missing"
    assert "spiral" in before["fl60"]["summary"]
    (tmp_path / "data" / "tpt48").mkdir(parents=True)
    assert said(["datasets"], capsys)["tpt48"]["files"] == "here"
    out = _shown(["datasets"], capsys)
    assert "fl60 generated" in out
    assert str(tmp_path / "data") in out.replace(" ", "")


def test_a_card_has_everything(capsys: pytest.CaptureFixture[str]) -> None:
    out = _shown(["datasets", "fl60"], capsys)
    for words in (
        "source: generated", "licence: none needed", "cite: Z. Xu", "used in: the FL-60 columns", "splits: 20 of each",
        "how to get it: nothing to get", "clients 60 (12 of them novel)", "samples 6,000; per client 100",
        "train per client 72", "val per client 8", "test per client 20", "classification, scored by accuracy",
        "classes 2", "features 2 per client: x, y", "edges (undirected)", "connected part", "lr=0.1", "data.clients",
    ):  # fmt: skip
        assert words in out
    assert "folder:" not in out
    found = said(["datasets", "digits", "data.clients=10", "data.split=iid"], capsys)
    assert found["missing"] is None
    numbers = found["federation"]
    assert (numbers["clients"], numbers["novel"], numbers["samples"]) == (10, 0, 1797)
    assert numbers["per_client"] == {"min": 179, "median": 180.0, "max": 180}
    assert numbers["graph"] is None
    assert (numbers["classes"], numbers["inputs"], numbers["partial"]) == (10, [1, 8, 8], "")
    assert found["card"]["licence"].startswith("CC BY")
    assert found["defaults"]["lr"] == 0.05
    assert "alpha" in {row["key"] for row in found["keys"]}


def test_a_card_without_files_says_how_to_get_them(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = _shown(["datasets", "tpt48"], capsys)
    assert "not here: data set 'tpt48': no files in" in out
    assert "climdiv-tmpcst" in out
    assert f"folder: {tmp_path / 'data' / 'tpt48'}" in out
    assert "data.window" in out
    found = said(["datasets", "tpt48"], capsys)
    assert "no files in" in found["missing"]
    assert found["federation"] is None
    assert "data.root is missing" in _shown(["datasets", "folder"], capsys)


def test_the_card_of_a_folder(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "mine" / "clients").mkdir(parents=True)
    for name in ("a", "b"):
        (tmp_path / "mine" / "clients" / f"{name}.csv").write_text("x,y\n" + "1,0.5\n2,1.5\n3,2.5\n" * 4)
    out = _shown(["datasets", "folder", "data.root=mine"], capsys)
    for words in ("clients 2", "regression, scored by mse", "missing target values none", "features none"):
        assert words in out


def test_damaged_files_are_an_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "data" / "digits").mkdir(parents=True)
    (tmp_path / "data" / "digits" / "digits.csv.gz").write_text("no")
    assert run_command_line(["datasets", "digits"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "digits.csv.gz" in err


def test_floors(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = _shown(["datasets", "floors", "fl60", "data.clients=20", "--csv", "floors.csv"], capsys)
    for words in ("fl60: accuracy (%), test split, data seed 0", "20 all", "16 training", "4 novel", "client_linear"):
        assert words in out
    assert "± seeds" not in out
    found = said(["datasets", "floors", "fl60", "data.clients=20", "--seeds", "0,3"], capsys)
    assert found["seeds"] == [0, 3]
    assert (found["metric"], found["scale"], found["partial"]) == ("accuracy", None, "")
    rows = {row["name"]: row for row in found["floors"]}
    assert rows["client_linear"]["all"]["mean"] == 100
    assert rows["linear"]["all"]["std_seeds"] > 0
    assert "± seeds" in _shown(["datasets", "floors", "fl60", "data.clients=20", "--seeds", "0..1"], capsys)
    with (tmp_path / "floors.csv").open() as file:
        table = list(csv.DictReader(file))
    assert len(table) == 20
    alone = said(["datasets", "floors", "fl60", "data.clients=20"], capsys)
    mean = sum(float(row["linear"]) for row in table) / 20
    assert next(row for row in alone["floors"] if row["name"] == "linear")["all"]["mean"] == pytest.approx(mean)
    seeded = said(["datasets", "floors", "fl60", "data.clients=20", "data.seed=3"], capsys)
    assert seeded["seeds"] == [3]
    assert run_command_line(["datasets", "floors", "fl60", "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")


def test_small_errors_are_shown_in_powers_of_ten(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "mine" / "clients").mkdir(parents=True)
    for name in ("a", "b"):
        rows = "".join(f"{i / 100},{i / 50 + 0.01 * (i % 2)}\n" for i in range(20))
        (tmp_path / "mine" / "clients" / f"{name}.csv").write_text("x,y\n" + rows)
    out = _shown(["datasets", "floors", "folder", "data.root=mine"], capsys)
    power = re.search(r"MSE, scale 'as given', x 1e(-\d+), test split", out)
    assert power is not None
    found = said(["datasets", "floors", "folder", "data.root=mine"], capsys)["floors"]
    least = min(row["all"]["mean"] for row in found) / 10.0 ** int(power[1])
    assert 1 <= least < 1000
    assert f"{least:.2f} ±" in out


def test_the_bar_waits_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    bar = flooring._Bar(False, "x")
    bar.expect(4)
    bar.advance()
    assert not bar.bar.live.is_started  # a moment is no reason for a bar
    assert bar.bar.disable  # and this is no terminal
    monkeypatch.setattr(flooring, "_PATIENCE", 0.0)
    bar = flooring._Bar(False, "x")
    bar.bar.disable = False
    bar.expect(4)
    bar.advance()
    assert bar.bar.live.is_started
    assert (bar.bar.tasks[0].completed, bar.bar.tasks[0].total) == (1, 4)
    bar.bar.stop()


def test_fetch_copies_once_and_checks(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run_command_line(["datasets", "fetch", "digits"]) == 0
    out, err = capsys.readouterr()
    assert "copied from scikit-learn" in out
    assert "next: panacea datasets digits" in err
    copy = tmp_path / "data" / "digits" / "digits.csv.gz"
    stamp = copy.stat().st_mtime_ns
    assert [path.name for path in copy.parent.iterdir()] == ["digits.csv.gz"]  # nothing half-written beside it
    assert "were there already" in _shown(["datasets", "fetch", "digits"], capsys)
    assert copy.stat().st_mtime_ns == stamp
    other = said(["datasets", "fetch", "digits", "data.root=elsewhere"], capsys)
    assert other["folder"] == "elsewhere/digits"
    assert other["copied"] == ["digits.csv.gz"]
    assert said(["datasets", "digits", "data.root=elsewhere"], capsys)["federation"]["clients"] == 20
    copy.write_bytes(gzip.compress(b"1,2,3"))
    assert run_command_line(["datasets", "fetch", "digits"]) == 2
    assert "exists and is not the published file" in capsys.readouterr().err
    assert gzip.decompress(copy.read_bytes()) == b"1,2,3"  # never overwritten


def _package(folder: Path | None, content: bytes) -> fetching.Package:
    sums = {name: hashlib.sha256(content).hexdigest() for name in ("a.gz", "b.gz")}
    return fetching.Package("package-a", "apt install package-a", lambda: folder, sums)


def test_fetch_refuses_what_is_not_published(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "package"
    source.mkdir()
    (source / "a.gz").write_bytes(gzip.compress(b"content"))
    monkeypatch.setitem(fetching.PACKAGES, "digits", _package(source, b"content"))
    assert run_command_line(["datasets", "fetch", "digits"]) == 2
    assert "b.gz: no such file in the package" in capsys.readouterr().err
    (source / "b.gz").write_bytes(gzip.compress(b"altered"))
    assert run_command_line(["datasets", "fetch", "digits"]) == 2
    assert "b.gz: not the published file" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()  # all or nothing
    (source / "b.gz").write_bytes(gzip.compress(b"content", 1))  # packed otherwise, the same inside
    assert said(["datasets", "fetch", "digits"], capsys)["copied"] == ["a.gz", "b.gz"]
    monkeypatch.setitem(fetching.PACKAGES, "digits", _package(None, b"content"))
    assert run_command_line(["datasets", "fetch", "digits"]) == 2
    assert "not installed here; run `apt install package-a`" in capsys.readouterr().err


def test_checksums_of_fashion_mnist(real_data: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The published files are those `fetch` accepts."""
    published = real_data / "fashion-mnist"
    if not published.is_dir():
        pytest.skip("no fashion-mnist files here")
    monkeypatch.setattr(fetching, "_debian", lambda name: published)
    assert len(fetching.fetch("fashion_mnist", tmp_path / "data").copied) == 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fl61"], ["unknown data set 'fl61'", "did you mean 'fl60'?"]),
        (["flors", "fl60"], ["'flors'", "did you mean 'floors'?"]),
        (["floors", "digit"], ["'digit'", "did you mean 'digits'?"]),
        (["fetch", "digit"], ["'digit'", "did you mean 'digits'?"]),
        (["floors"], ["name of the data set is missing", "panacea datasets floors digits"]),
        (["data.clients=3"], ["name of the data set is missing"]),
        (["--picture", "a.png"], ["name of the data set is missing"]),
        (["fl60", "digits"], ["'digits'", "one data set"]),
        (["fl60", "clients=3"], ["'clients'", "only data.* keys", "did you mean data.clients?"]),
        (["data=fl60"], ["'data'", "name alone"]),
        (["floors", "fl60", "rounds=3"], ["'rounds'", "only data.* keys"]),
        (["fl60", "data.cleints=3"], ["data.cleints", "did you mean 'data.clients'?"]),
        (["floors", "fl60", "data.clients=0"], ["data.clients=0"]),
        (["floors", "fl60", "--picture", "a.png"], ["--picture is for `panacea datasets NAME`"]),
        (["fl60", "--seeds", "0..1"], ["--seeds is for `panacea datasets floors NAME`"]),
        (["fetch", "digits", "--csv", "a.csv"], ["--csv is for"]),
        (["floors", "fl60", "--seeds", "a"], ["--seeds a", "whole numbers"]),
        (["floors", "fl60", "--seeds", "1,1"], ["--seeds 1,1", "different"]),
        (["floors", "fl60", "--seeds", "-1"], ["--seeds -1"]),
        (["floors", "fl60", "data.seed=1", "--seeds", "0..1"], ["data.seed and --seeds"]),
        (["floors", "fl60", "data.clients=4", "--csv", "no/where/a.csv"], ["no/where/a.csv cannot be written"]),
        (["floors", "tpt48"], ["data set 'tpt48': no files in"]),
        (["tpt48", "--picture", "a.png"], ["data set 'tpt48': no files in"]),
        (["fl60", "--picture", "a.gif"], ["a.gif", ".png or .svg"]),
        (["fetch", "fl60"], ["fl60 is in no package", "generated from data.seed"]),
        (["fetch", "digits", "data.clients=3"], ["data.clients", "only data.root"]),
    ],
)
def test_wrong_requests_are_one_line(
    arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run_command_line(["datasets", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    for word in words:
        assert word in err
    assert list(tmp_path.iterdir()) == []


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    out = _shown(["datasets", "--help"], capsys)
    for words in ("floors NAME", "fetch NAME", "Example: panacea datasets floors fl60 --seeds 0..4", "--csv"):
        assert words in out
