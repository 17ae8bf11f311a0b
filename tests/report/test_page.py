"""What stands on the page: numbers as the runs wrote them, every text harmless, wrong requests in one line."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from panacea.cli import run_command_line
from panacea.evaluation.statistics import paired_test
from panacea.report.page import build_page
from panacea.report.page import writing as writing_module
from panacea.report.page.attacks import attacks
from panacea.report.page.comparing import paired_metrics, pairs_table
from panacea.report.page.curves import curve
from panacea.report.page.packing import Budget, packed
from panacea.report.page.reading import find_runs, read_runs
from panacea.report.page.series import Suite, group_runs
from panacea.report.page.tables import Column, PageTable
from panacea.report.page.writing import page_content
from tests.report.conftest import NASTY, train


@pytest.fixture(scope="module")
def suite(runs: Path) -> Suite:
    (found,) = group_runs(read_runs([runs])[0])
    return found


def _summary(run: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run / "summary.json").read_text())
    return content


def _named(runs: Path, start: str) -> list[Path]:
    return sorted(path for path in runs.iterdir() if path.name.startswith(start))


# --- numbers --------------------------------------------------------------------------------------------------------


def test_series_are_named_by_what_differs(suite: Suite) -> None:
    assert suite.title == "fl60"
    assert {one.label: [run.seed for run in one.runs] for one in suite.series} == {
        "fedamp": [0, 1],
        "fedavg, attack=label_flip, attack.ratio=0.2": [0],
        "fedavg, attack=label_flip, attack.ratio=0.4": [0],
        "fedavg, attack=none": [0, 1],
        "panacea": [0, 1],
    }


def test_the_table_has_the_means_over_seeds(runs: Path, suite: Suite) -> None:
    table = page_content(suite.runs)["suites"][0]["tables"]["main"]
    rows = list(csv.DictReader(table["copies"]["CSV"].splitlines()))
    means = [_summary(run)["mean"] for run in _named(runs, "fl60-panacea")]
    (row,) = [row for row in rows if row["method"] == "panacea"]
    assert float(row["mean"]) == pytest.approx(np.mean(means))
    assert float(row["± seeds"]) == pytest.approx(np.std(means, ddof=1))
    assert float(row["95 % from"]) <= np.mean(means) <= float(row["to"])
    assert row["seeds"] == "2"
    assert "95 %: bootstrap interval over clients or interval by Student's t over seeds." in table["note"]


def test_curves_have_a_band_over_seeds(runs: Path, suite: Suite) -> None:
    one = next(one for one in suite.series if one.label == "fedamp")
    found = curve(one, suite)
    lines = [
        [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        for run in _named(runs, "fl60-fedamp")
    ]
    at = np.array([[line["mean"] for line in some] for some in lines])
    assert found["rounds"] == [2, 4, 6]
    assert found["band"] == "seeds"
    np.testing.assert_allclose(found["what"]["mean"]["mean"], at.mean(0), rtol=1e-4)
    low = np.maximum(at.mean(0) - at.std(0, ddof=1), 0)
    np.testing.assert_allclose(found["what"]["mean"]["low"], low, rtol=1e-3, atol=1e-3)
    assert found["bytes"][-1] == pytest.approx(
        (lines[0][-1]["bytes_down"] + lines[0][-1]["bytes_up"]) / 2**20, rel=1e-3
    )
    assert 0 < found["seconds"][0] < found["seconds"][-1]


def test_one_seed_has_a_band_over_clients(runs: Path, suite: Suite) -> None:
    one = next(one for one in suite.series if one.label.endswith("0.2"))
    found = curve(one, suite)
    last = json.loads((one.runs[0].path / "metrics.jsonl").read_text().splitlines()[-1])
    assert found["band"] == "clients"
    assert found["what"]["mean"]["low"][-1] == pytest.approx(max(0, last["mean"] - last["std"]), rel=1e-3)


def test_tests_pair_the_same_client_of_the_same_seed(suite: Suite) -> None:
    series = {one.label: one for one in suite.series}
    first, second = paired_metrics(series["panacea"], series["fedavg, attack=none"])
    by_hand = [
        (run.columns["metric"][i], other.columns["metric"][i])
        for run, other in zip(series["panacea"].runs, series["fedavg, attack=none"].runs, strict=True)
        for i in range(len(run.names))
        if not run.novel[i]
    ]
    np.testing.assert_array_equal(np.stack([first, second], axis=1), np.array(by_hand))
    table, test = pairs_table(suite), paired_test(second, first)
    assert table is not None
    assert test is not None
    (row,) = [row for row in table.raw if row[0] == "fedavg, attack=none / panacea"]
    assert row[1:6] == (test.median, test.effect, test.pairs, test.zeros, test.p)
    assert row[6] >= row[5]  # corrected


def test_clients_without_attackers_are_compared_under_attack(suite: Suite) -> None:
    series = {one.label: one for one in suite.series}
    attacked = series["fedavg, attack=label_flip, attack.ratio=0.4"]
    first, _ = paired_metrics(attacked, series["panacea"])
    assert len(first) == int(attacked.runs[0].counted.sum()) < int((~attacked.runs[0].novel).sum())


def test_robustness_is_read_along_the_share_of_attackers(runs: Path, suite: Suite) -> None:
    found = attacks(suite)
    (line,) = found["curves"]
    assert line["ratios"] == [0.0, 0.2, 0.4]
    clean, *others = line["what"]["mean"]["mean"]
    none = [run for run in _named(runs, "fl60-fedavg") if _summary(run)["attack"] == "none"]
    assert clean == pytest.approx(np.mean([_summary(run)["mean"] for run in none]), rel=1e-4)
    assert sorted(others) == pytest.approx(
        sorted(_summary(run)["mean"] for run in _named(runs, "fl60-fedavg") if _summary(run)["attack"] != "none"),
        rel=1e-4,
    )
    damage = {suite.series[one["series"]].label: one["rows"] for one in found["damage"]}
    rows = damage["fedavg, attack=label_flip, attack.ratio=0.4"]
    run = next(one for one in suite.series if one.label.endswith("0.4")).runs[0]
    clean_run = next(one for one in suite.series if one.label.endswith("none")).runs[0]
    near = run.counted & (run.columns["hops"] == 1)
    assert rows[0]["hops"] == "1"
    assert rows[0]["mean"] == pytest.approx(run.columns["metric"][near].mean(), rel=1e-4)
    assert rows[0]["clean"] == pytest.approx(clean_run.columns["metric"][near].mean(), rel=1e-4)


def test_errors_are_better_when_small() -> None:
    table = PageTable.of("t", "", ("method", ["a", "b", "c"]), [Column("mse", (0.5, 0.25, None), -1)])
    assert table.marks == {(0, 1): "second", (1, 1): "best"}
    assert r"\textbf{0.25}" in table.latex()
    assert r"\underline{0.5}" in table.latex()
    assert "| b | **0.25** |" in table.markdown()
    assert table.csv() == "method,mse\na,0.5\nb,0.25\nc,\n"


def test_packed_numbers_come_back() -> None:
    values = np.random.default_rng(0).standard_normal((7, 3))
    for kind, steps in (("u1", 255), ("u2", 65_535)):
        made = packed(values, kind)
        codes = np.frombuffer(base64.b64decode(made["data"]), f"<{kind}").reshape(made["shape"])
        away = np.abs(made["low"] + codes * made["step"] - values).max()
        assert away <= np.ptp(values) / steps


def test_a_page_that_grows_too_large_leaves_heavy_parts_out(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    full = page_content(suite.runs)
    assert full["notes"] == []
    assert any("embeddings" in run for run in full["suites"][0]["runs"])
    monkeypatch.setattr(writing_module, "_HEAVY", 3000)
    less = page_content(suite.runs)
    assert "left out" in less["notes"][0]
    assert not any("embeddings" in run for run in less["suites"][0]["runs"])
    assert [run["metric"] for run in less["suites"][0]["runs"]] == [run["metric"] for run in full["suites"][0]["runs"]]
    budget = Budget(10)
    assert budget.take("123456789") is None
    assert budget.take("12345") == "12345"
    assert budget.left == 3


# --- safety ---------------------------------------------------------------------------------------------------------


def test_names_stay_inside_their_element(many: Path) -> None:
    page = build_page(read_runs([many])[0])
    for name in NASTY[:3]:
        assert name not in page
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert "<" not in data
    assert json.loads(data)["suites"][0]["clients"][0]["names"][:4] == list(NASTY)
    assert page.count("</script>") == 3


def test_the_policy_knows_the_scripts_by_their_digests(suite: Suite) -> None:
    page = build_page(suite.runs)
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    scripts = re.findall(r'<script(?: type="text/plain" id="library")?>(.*?)</script>', page, re.DOTALL)
    assert len(scripts) == 2
    for text in scripts:
        assert base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() in policy
    assert "default-src &#x27;none&#x27;" in policy
    assert "http" not in policy


def test_the_same_runs_give_the_same_page(suite: Suite) -> None:
    assert build_page(suite.runs) == build_page(suite.runs)


# --- the command ----------------------------------------------------------------------------------------------------


def _report(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = run_command_line(["report", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_command_writes_page_and_figures(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "new" / "page.html"
    code, out, err = _report(capsys, runs, "--out", page, "--figures", "--json")
    assert (code, err) == (0, "")
    content = json.loads(out)
    assert content["bytes"] == page.stat().st_size < 8_000_000
    assert len(content["runs"]) == 8
    stems = {Path(path).stem for path in content["figures"]}
    assert stems >= {f"fl60-{name}" for name in ("convergence", "clients", "methods", "communication", "robustness")}
    for path in map(Path, content["figures"]):
        if path.suffix == ".png":
            with Image.open(path) as picture:
                assert picture.width == 990  # 3.3 inches at 300 points each
        else:
            assert path.read_text().startswith("<?xml")


def test_without_out_the_page_lies_with_its_runs(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "some"
    shutil.copytree(_named(runs, "fl60-fedavg")[0], folder / "a")
    code, out, _ = _report(capsys, "some")
    assert (code, out.split(" (")[0]) == (0, "report: some/report.html")
    code, out, _ = _report(capsys, "some/a")  # a run has a page of its own, which is left alone
    assert (code, out.split(" (")[0]) == (0, "report: report.html")
    assert not (folder / "a" / "report.html").exists()


def test_a_comparison_names_its_runs(runs: Path, tmp_path: Path) -> None:
    inner = _named(runs, "fl60-panacea")
    folder = tmp_path / "compare"
    folder.mkdir()
    (folder / "runs.csv").write_text("method,directory\n" + "".join(f"panacea,{path}\n" for path in inner) + "x,\n")
    assert find_runs(folder) == inner
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    shutil.copytree(inner[0], moved / inner[0].name)
    (moved / "compare").mkdir()
    (moved / "compare" / "runs.csv").write_text(f"method,directory\npanacea,gone/{inner[0].name}\n")
    assert find_runs(moved / "compare") == [moved / inner[0].name]
    (moved / "compare" / "runs.csv").write_text("method,directory\npanacea,gone/away\n")
    with pytest.raises(ValueError, match=r"runs\.csv lists gone/away, which is not there"):
        find_runs(moved / "compare")


def test_a_run_given_twice_counts_once(runs: Path) -> None:
    found, _ = read_runs([runs, *runs.iterdir()])
    assert len(found) == 8


def test_unfinished_runs_are_left_out_and_named(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, path in enumerate(_named(runs, "fl60-fedavg")[:2]):
        shutil.copytree(path, tmp_path / f"run-{number}")
    (tmp_path / "run-1" / "summary.json").unlink()
    code, out, err = _report(capsys, tmp_path)
    assert code == 0
    assert "1 run," in out
    assert "run-1 is not finished and left out" in err
    (tmp_path / "run-0" / "summary.json").unlink()
    code, _, err = _report(capsys, tmp_path)
    assert code == 2
    assert "no finished run" in err


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("clients.csv", "nonsense"), ("summary.json", "{"), ("summary.json", "{}"), ("config.yaml", "- [", ),
        ("metrics.jsonl", "{\n"), ("graph.npz", "x"), ("views.npz", "x"), ("timings.jsonl", "}\n"),
    ],
)  # fmt: skip
def test_damaged_files_are_named(
    file: str, content: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(_named(runs, "fl60-panacea")[0], tmp_path / "run")
    (tmp_path / "run" / file).write_text(content)
    code, out, err = _report(capsys, tmp_path / "run", "--out", tmp_path / "page.html")
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert file in err
    assert not (tmp_path / "page.html").exists()


def test_wrong_requests_are_one_line(tmp_path: Path, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    for arguments, words in (
        ((), "report needs a run directory"),
        ((tmp_path / "none",), "none: no such directory"),
        ((tmp_path / "file",), "this is a file"),
        ((tmp_path / "empty",), "holds no run"),
        ((runs, "--out", tmp_path / "page.pdf"), "the page is a .html file"),
        ((runs, "--out", tmp_path / "file" / "page.html"), "cannot be written"),
        ((runs, "--output", "x"), "No such option"),
    ):
        code, out, err = _report(capsys, *arguments)
        assert (code, out, err.count("\n")) == (2, "", 1), (arguments, err)
        assert words in err


def test_runs_of_several_data_sets_are_apart(runs: Path, many: Path) -> None:
    content = page_content(read_runs([runs, many])[0])
    assert [suite["title"] for suite in content["suites"]] == ["fl60", "own"]


def test_a_run_of_an_earlier_version_has_no_views(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(_named(runs, "fl60-panacea")[0], tmp_path / "run")
    (tmp_path / "run" / "views.npz").unlink()
    content = page_content(read_runs([tmp_path])[0])["suites"][0]
    assert content["graphs"][0]["map"] is False
    assert len(content["graphs"][0]["x"]) == 12
    assert "embeddings" not in content["runs"][0]


def test_a_thousand_clients_fit(tmp_path: Path) -> None:
    path = train(tmp_path, method="panacea", data__clients=1000, rounds=1, eval_every=1, local_steps=1)
    page = build_page(read_runs([path])[0])
    assert len(page) < 8_000_000
    assert '"x":[' in page
