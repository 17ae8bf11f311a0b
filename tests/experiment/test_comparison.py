"""From runs to a table: who is paired with whom, what a result costs, what is best, and how it is written."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from panacea.errors import RequestError
from panacea.experiment.batch import Job
from panacea.experiment.comparison import Results
from panacea.experiment.config import build_config
from panacea.experiment.formats import Mark, latex_table, marked_markdown, ranks
from panacea.experiment.outcome import Clients, Outcome
from panacea.experiment.planning import Plan, Planned, plan_comparison
from panacea.experiment.prices import Prices, bytes_to, rounds_to_share
from panacea.experiment.significance import compare_pairs, interval_of
from panacea.report.comparison import write_comparison

FL60: dict[str, Any] = {"data": "fl60", "methods": ["fedavg", "ditto"], "seeds": [0, 1]}


def _clients(metric: list[float], novel: int = 0, malicious: tuple[int, ...] = ()) -> Clients:
    number = np.arange(len(metric))
    return Clients(number, number >= len(metric) - novel, np.isin(number, malicious), np.array(metric))


def _outcome(method: str, metric: list[float], *, seed: int = 0, data_seed: int = 0, **more: Any) -> Outcome:
    kind = more.pop("kind", "accuracy")
    clients = _clients(metric, more.pop("novel", 0), more.pop("malicious", ()))
    values = clients.metric[clients.novel & np.isfinite(clients.metric)]
    summary = {
        "method": method, "data": "fl60", "metric": kind, "rounds": 8, "clients": len(clients.counted),
        "mean": float(clients.counted.mean()), "std": float(clients.counted.std()), "final_mean": 1.0,
        "worst_decile": float(clients.counted.min()), "novel_mean": float(values.mean()) if len(values) else None,
        "novel_std": 0.0, "novel_uses": "links", "train_seconds": 2.0,
    }  # fmt: skip
    return Outcome(method, (), seed, summary, data_seed, clients, **{"cohort": 5, "directory": Path("r"), **more})


def _lines(*values: float) -> tuple[dict[str, Any], ...]:
    return tuple(
        {"round": 10 * i, "val_mean": v, "bytes_down": 100 * i, "bytes_up": 50 * i} for i, v in enumerate(values, 1)
    )


# --- the request ---------------------------------------------------------------------------------------------------


def test_a_method_has_keys_of_its_own_and_shared_ones() -> None:
    keys = {"data": "fl60", "seeds": 0, "methods": ["fedprox", "fedprox_ft"], "method.mu": 0.5}
    plan = plan_comparison({**keys, "method.fedprox.mu": 0.1})
    assert [run.job.config.method.keys["mu"] for run in plan.runs] == [0.1, 0.5]
    plan = plan_comparison({**keys, "methods": [{"name": "fedprox", "mu": 0.2}, "fedprox_ft"]})
    assert [run.job.config.method.keys["mu"] for run in plan.runs] == [0.2, 0.5]
    assert [run.job.label for run in plan.runs] == ["fedprox seed 0", "fedprox_ft seed 0"]


def test_a_file_of_settings_brings_what_was_tuned_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "ditto_tuned.yaml"
    file.write_text("data: fl60\nmethod: {name: ditto, lam: 0.3}\nlr: 0.05\nrounds: 7\nseed: 9\n")
    plan = plan_comparison({**FL60, "methods": ["ditto", str(file)], "seeds": 0, "rounds": 3})
    plain, tuned = (run.job.config for run in plan.runs)
    assert [run.label for run in plan.runs] == ["ditto", "ditto_tuned"]
    assert (plain.method.keys, plain.lr) == ({}, None)
    assert (tuned.method.keys, tuned.lr, tuned.rounds, tuned.seed) == ({"lam": 0.3}, 0.05, 3, 0)
    given = plan_comparison({**FL60, "methods": [str(file)], "lr": 0.2}).runs[0].job.config
    assert given.lr == 0.2  # what the command says wins
    best = file.rename(tmp_path / "best.yaml")
    assert plan_comparison({**FL60, "methods": ["fedavg", str(best)]}).runs[-1].label == "ditto"
    typo = tmp_path / "typo.yaml"
    typo.write_text("method: ditto\nlearning_rate: 0.1\n")
    for keys, word in (
        ({**FL60, "data": "digits", "methods": str(best)}, "made for data=fl60"),
        ({**FL60, "methods": ["ditto", str(best)]}, "two entries are called ditto"),
        ({**FL60, "methods": [{"lam": 1}]}, "has no name"),
        ({**FL60, "methods": str(typo)}, "learning_rate"),
        ({**FL60, "target": float("nan")}, "target=nan"),
    ):
        with pytest.raises(RequestError, match=word):
            plan_comparison(keys)


def test_runs_are_on_the_data_of_their_seed_unless_it_is_given() -> None:
    assert [run.data_seed for run in plan_comparison(FL60).runs] == [0, 1, 0, 1]
    assert [run.data_seed for run in plan_comparison({**FL60, "data.seed": 4}).runs] == [4, 4, 4, 4]


# --- tests ---------------------------------------------------------------------------------------------------------


def test_pairs_are_data_seed_and_client() -> None:
    rng = np.random.default_rng(0)
    a, b, c, d = (rng.normal(50, 5, 12).tolist() for _ in range(4))
    (found,) = compare_pairs(
        [_outcome("x", a, seed=0, data_seed=0), _outcome("x", b, seed=1, data_seed=1),
         _outcome("y", c, seed=0, data_seed=0), _outcome("y", d, seed=1, data_seed=1)]
    )  # fmt: skip
    assert found.test is not None
    assert found.test.pairs == 24
    assert found.test.p == pytest.approx(stats.wilcoxon(np.array(a + b), np.array(c + d)).pvalue)
    assert found.corrected == found.test.p  # one test only


def test_runs_on_the_same_data_are_one_value_per_client() -> None:
    rng = np.random.default_rng(1)
    a, b, c = (rng.normal(50, 5, 12) for _ in range(3))
    (found,) = compare_pairs(
        [_outcome("x", a.tolist(), seed=0), _outcome("x", b.tolist(), seed=1), _outcome("y", c.tolist(), seed=0)]
    )
    assert found.test is not None
    assert (found.test.pairs, found.test.p) == (12, pytest.approx(stats.wilcoxon((a + b) / 2, c).pvalue))


def test_novel_clients_and_those_that_ever_lie_do_not_count() -> None:
    values = [float(i) for i in range(10)]
    (found,) = compare_pairs(
        [_outcome("x", values, novel=2, malicious=(0,)), _outcome("y", values, novel=2, malicious=(3,), seed=1),
         _outcome("y", values, novel=2, seed=0)]
    )  # fmt: skip
    assert found.test is not None
    assert (found.test.pairs, found.test.zeros, found.test.p) == (6, 6, 1.0)
    assert "only 0 differences" in found.note


def test_every_two_methods_are_compared_and_corrected_together() -> None:
    rng = np.random.default_rng(2)
    outcomes = [_outcome(name, rng.normal(i, 1, 30).tolist()) for i, name in enumerate("abc")]
    found = compare_pairs(outcomes)
    assert [(one.first, one.second) for one in found] == [("a", "b"), ("a", "c"), ("b", "c")]
    raw = [one.test.p for one in found if one.test is not None]
    smallest = min(range(3), key=lambda i: raw[i])
    assert found[smallest].corrected == pytest.approx(3 * raw[smallest])
    none = compare_pairs([_outcome("a", [1.0]), _outcome("b", [1.0], data_seed=1)])
    assert (none[0].test, none[0].corrected, none[0].note) == (None, None, "no client in common")


def test_the_interval_takes_same_data_once() -> None:
    rng = np.random.default_rng(3)
    values = rng.normal(50, 5, 20)
    runs = [_outcome("x", (values + shift).tolist(), seed=i) for i, shift in enumerate((-1.0, 1.0))]
    assert interval_of(runs) == pytest.approx(interval_of([_outcome("x", values.tolist())]))
    assert interval_of([_outcome("x", [5.0])]) is None


# --- prices --------------------------------------------------------------------------------------------------------


def test_bytes_and_rounds_by_hand() -> None:
    lines = _lines(50.0, 80.0, 95.0, 100.0)
    assert bytes_to(lines, 80, True) == 300
    assert bytes_to(lines, 100.1, True) is None
    assert rounds_to_share(lines, True) == 30  # 90 % of 100
    errors = _lines(5.0, 2.0, 1.1, 1.0)
    assert bytes_to(errors, 2.0, False) == 300
    assert rounds_to_share(errors, False) == 30  # 1 / 0.9 = 1.11
    assert rounds_to_share((), True) is None
    assert rounds_to_share([{"round": 1, "val_mean": None}], True) is None


def test_the_default_target_is_nearly_the_best_of_fedavg_with_the_same_seed() -> None:
    runs = {
        (method, seed): _outcome(method, [1.0], seed=seed, lines=lines)
        for (method, seed), lines in {
            ("ditto", 0): _lines(79.0, 79.3),
            ("ditto", 1): _lines(30.0, 90.0),
            ("fedavg", 0): _lines(40.0, 80.0, 70.0),
            ("fedavg", 1): _lines(60.0, 50.0),
        }.items()
    }
    prices = Prices(list(runs.values()), None, True)
    assert prices.of([runs["ditto", 0]])["bytes_to_target"] == 300  # 79.2 is needed
    assert prices.of([runs["ditto", 1]])["bytes_to_target"] == 300
    assert prices.of([runs["fedavg", 0], runs["fedavg", 1]])["bytes_to_target"] == (300 + 150) / 2
    high = Prices(list(runs.values()), 85.0, True).of([runs["ditto", 0], runs["ditto", 1]])
    assert (high["bytes_to_target"], high["reached_target"]) == (None, 1)
    unknown = Prices([runs["fedavg", 0]], None, True).of([runs["ditto", 0], runs["ditto", 1]])
    assert unknown["reached_target"] is None  # there is nothing to reach with seed 1


# --- the table -----------------------------------------------------------------------------------------------------


def test_best_and_second_follow_the_metric_and_ties() -> None:
    assert ranks([80.0, 90.0, 85.0], True) == [0, 1, 2]
    assert ranks([80.0, 90.0, 85.0], False) == [1, 0, 2]
    assert ranks([90.001, 90.0, 85.0, None], True) == [1, 1, 2, 0]
    assert ranks([None, 3.0], True) == [0, 0]
    assert ranks([0.361, 0.364, 1.2], False) == [1, 2, 0]
    assert ranks([0.361, 0.364, 1.2], False, 2) == [1, 1, 2]  # shown as 0.36


def _results(*outcomes: Outcome, **keys: Any) -> Results:
    runs = [
        Planned(
            o.method,
            o.values,
            Job(build_config({"data": "fl60", "method": "fedavg", "seed": o.seed, **keys}), o.method),
        )
        for o in outcomes
    ]
    return Results(Plan((), tuple(runs)), outcomes)


def test_the_table_by_hand() -> None:
    results = _results(
        _outcome("a_b", [80.0, 90.0, 100.0, 40.0], novel=1),
        _outcome("a_b", [70.0, 80.0, 90.0, 60.0], novel=1, seed=1, data_seed=1),
        _outcome("c", [60.0, 60.0, 60.0, 90.0], novel=1),
        _outcome("c", [60.0, 60.0, 60.0, 90.0], novel=1, seed=1, data_seed=1),
    )
    first, second = results.table.records()
    assert (first["mean"], first["seeds"], first["novel_mean"]) == (85.0, 2, 50.0)
    assert first["std_clients"] == pytest.approx(math.sqrt(200 / 3))
    assert first["std_seeds"] == pytest.approx(math.sqrt(50))
    assert (second["low"], second["high"]) == (60.0, 60.0)
    cells = results.table.cells()
    assert [cell.rank for cell in cells[0]] == [0, 1, 0, 0, 1, 2, 0, 0, 0]
    assert str(cells[1][1]) == "60.00 ± 0.00"
    latex = results.latex()
    for word in (r"a\_b & \textbf{85.00} $\pm$ 8.16", r"\underline{60.00} $\pm$ 0.00", r"\toprule", "cohort 5",
                 "8 rounds", "seeds 0, 1", "validation", "Wilcoxon", r"95 \% interval"):  # fmt: skip
        assert word in latex, word
    assert "| a_b | **85.00** ± 8.16 |" in results.markdown()
    assert "| <u>60.00</u> ± 0.00 |" in results.markdown()


def test_the_numbers_of_a_column_have_the_same_decimals() -> None:
    small = _results(
        _outcome("a", [0.36, 0.36, 0.36], kind="mse", novel=1), _outcome("b", [0.3961, 0.5, 0.1], kind="mse", novel=1)
    )
    assert [str(row[1]) for row in small.table.cells()] == ["0.360 ± 0.000", "0.448 ± 0.052"]
    assert [row[4].text for row in small.table.cells()] == ["0.360", "0.396"]
    assert "| **0.360** ± 0.000 |" in small.markdown()
    assert r"\textbf{0.360} $\pm$ 0.000" in small.latex()
    assert small.table.records()[1]["mean"] == pytest.approx(0.44805)  # files keep all digits
    assert small.table.title.startswith("fl60: mse, 8 rounds")
    large = _results(_outcome("a", [0.5, 0.75], kind="mse"), _outcome("b", [3.0, 40.0], kind="mse"))
    assert [str(row[1]) for row in large.table.cells()] == ["0.62 ± 0.12", "21.50 ± 18.50"]
    assert {len(row[2].text.strip("[]").split(", ")[0].partition(".")[2]) for row in large.table.cells()} == {2}
    three = _results(*(_outcome(name, [v, v + 0.5 * v * v]) for name, v in (("a", 0.01), ("b", 0.2), ("c", 0.6))))
    medians = [row[3].text for row in three.test_cells()]
    assert len({len(text.partition(".")[2]) for text in medians}) == 1, medians


def test_a_target_that_no_run_reaches_is_told_from_a_failed_method() -> None:
    failed = Outcome("c", (), 0, None, 0, directory=Path("r"), error="training diverged")
    runs = [_outcome("a", [50.0, 60.0], lines=_lines(50, 60)), _outcome("b", [80.0, 90.0], lines=_lines(70, 90))]
    cells = replace(_results(*runs, failed).table, target=80.0).cells()
    assert [row[6].text for row in cells] == ["0 of 1 runs", "300 B", "-"]


def test_a_failed_run_leaves_its_method_without_numbers() -> None:
    failed = Outcome("b", (), 1, None, 1, directory=Path("r"), error="training diverged")
    results = _results(_outcome("a", [1.0, 2.0]), _outcome("b", [1.0, 3.0]), failed)
    assert results.table.records()[1]["mean"] is None
    assert results.table.cells()[1][1].text == "failed"
    assert results.failures == ["b: training diverged"]
    (pair,) = results.tests
    assert (pair.test, pair.corrected, pair.note) == (None, None, "a run failed")


def test_the_files(tmp_path: Path) -> None:
    results = _results(_outcome("a", [1.0, math.nan], novel=1), _outcome("b", [2.0, 3.0], novel=1))
    assert write_comparison(results, tmp_path / "folder") is None
    folder = tmp_path / "folder"
    assert {path.name for path in folder.iterdir()} == {
        "table.csv", "table.md", "table.tex", "table.json", "tests.csv", "tests.md", "runs.csv", "clients.csv",
        "methods.png", "methods.svg",
    }  # fmt: skip
    rows = list(csv.DictReader(io.StringIO((folder / "clients.csv").read_text())))
    assert [(r["method"], r["seed"], r["data_seed"], r["client"], r["novel"], r["metric"]) for r in rows] == [
        ("a", "0", "0", "0", "0", "1.0"), ("a", "0", "0", "1", "1", ""),
        ("b", "0", "0", "0", "0", "2.0"), ("b", "0", "0", "1", "1", "3.0"),
    ]  # fmt: skip
    assert json.loads((folder / "table.json").read_text())["table"][1]["mean"] == 2.0


def test_what_latex_would_misread_is_escaped() -> None:
    text = latex_table(["m"], [[Mark("a_b & 50% {x}^2 \\ # $ ~ <1")]], "c")
    assert r"a\_b \& 50\% \{x\}\textasciicircum{}2 \textbackslash{} \# \$ \textasciitilde{} $<$1" in text
    assert marked_markdown(["a"], [[Mark("x|y", " z", 2)]]).splitlines()[-1] == r"| <u>x\|y</u> z |"
