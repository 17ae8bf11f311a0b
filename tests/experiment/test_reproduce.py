from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from panacea.errors import RequestError
from panacea.experiment.batch import Finished
from panacea.experiment.reproduce import (
    Entry,
    Plan,
    Reproduction,
    Request,
    check_claims,
    entry_names,
    find_entry,
    gather,
    judge,
    make_plan,
    plan,
    tolerance,
)  # fmt: skip
from panacea.experiment.reproduce.library import read_entry
from panacea.experiment.reproduce.measures import DERIVED, client_metrics
from panacea.experiment.reproduce.printed import Printed, parse_printed, parse_table
from panacea.experiment.reproduce.verdict import Measured
from panacea.report.reproduction import legend, result_tables

NAMES = {
    "panacea-table2", "panacea-table3", "panacea-table4", "panacea-table5", "panacea-figure3", "panacea-figure4",
    "fedamp-table1", "fedamp-table2", "fedamp-table3", "fedamp-figure2", "fedamp-figure3", "fedcg-table3",
    "fedcg-table4", "fedcg-table5", "ablation-ks", "ablation-graph", "generator-gain", "theory",
}  # fmt: skip


# --- the files ------------------------------------------------------------------------------------------------------


def test_all_are_there() -> None:
    assert set(entry_names()) == NAMES


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_file_is_whole(name: str) -> None:
    entry = find_entry(name)
    assert entry.name == name
    assert "TIME" not in entry.time.values()
    assert entry.where
    assert entry.claims or entry.published or entry.theory


# read from the papers by hand, apart from the files
CELLS = {
    ("panacea-table2", "FedAvg", "FL-60"): "97.9±9.7",
    ("panacea-table2", "pFedMe", "PEMS-BAY"): "75.7±126.1",
    ("panacea-table2", "Ditto", "TPT-48"): "2.1±0.5",
    ("panacea-table2", "SFL", "CompCars"): "77.0±7.9",
    ("panacea-table2", "pFedHN", "METR-LA"): "67.3±21.4",
    ("panacea-table2", "Panacea", "PEMS-BAY"): "0.4±0.4",
    ("panacea-table3", "FedAvg-finetune", "CompCars"): "83.0±2.7",
    ("panacea-table3", "pFedMe", "FL-60"): "42.5±37.5",
    ("panacea-table3", "Per-FedAvg", "METR-LA"): "274.8±80.1",
    ("panacea-table3", "Panacea", "TPT-48"): "2.8±0.9",
    ("panacea-table4", "Panacea-MLP", "PEMS-BAY"): "3.6±4.9",
    ("panacea-table4", "Panacea-GN", "CompCars"): "89.1±1.2",
    ("panacea-table5", "Ditto", "Acc"): "90.9",
    ("panacea-table5", "Panacea", "ASR tuned"): "47.1",
    ("fedamp-table1", "Separate", "CIFAR100"): "9.82",
    ("fedamp-table1", "FedAMP", "FMNIST"): "92.05",
    ("fedamp-table2", "FedAvg", "EMNIST"): "19.44",
    ("fedamp-table2", "SCAFFOLD", "CIFAR100"): "2.04",
    ("fedamp-table3", "HeurFedAMP", "EMNIST"): "81.47",
    ("fedamp-table3", "FedProx-FT", "MNIST"): "94.10",
    ("fedcg-table3", "Domain-specific models", "CelebA"): "33.61",
    ("fedcg-table3", "FedCG-H W ReLU", "CelebA"): "89.57",
    ("fedcg-table4", "last eye Clf D=4 soft", "CelebA"): "89.18",
    ("fedcg-table4", "all rand Clf D=2", "CelebA"): "88.73",
    ("fedcg-table5", "FedCG", "FEMNIST"): "83.41",
}


@pytest.mark.parametrize(("where", "text"), CELLS.items(), ids=lambda value: "-".join(value) if value else "")
def test_published_numbers_are_the_papers(where: tuple[str, str, str], text: str) -> None:
    name, row, column = where
    assert str(find_entry(name).printed[row][column]) == text


def test_tables_have_all_their_cells() -> None:
    sizes = {name: sum(map(len, find_entry(name).printed.values())) for name in NAMES}
    expected = {"panacea-table2": 40, "panacea-table3": 40, "panacea-table4": 9, "panacea-table5": 12}
    expected |= {"fedamp-table1": 36, "fedamp-table2": 36, "fedamp-table3": 36}
    expected |= {"fedcg-table3": 9, "fedcg-table4": 16, "fedcg-table5": 6}
    assert {name: size for name, size in sizes.items() if size} == expected


@pytest.mark.parametrize("word", ["here", "stand-in"])
@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("name", sorted(NAMES - {"theory"}))
def test_every_run_is_a_valid_request(name: str, quick: bool, word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the data are at hand or not: nothing is loaded for this."""
    monkeypatch.setattr(plan, "whereabouts", lambda block, root=None: (word if block.stand_in else "here", ""))
    entry = find_entry(name)
    everything = [block.name for block in entry.blocks]  # by name also what --quick leaves out is run
    made = make_plan(entry, Request(quick=quick, data=everything, seeds=() if quick else [0]))
    assert made.planned
    assert len({one.job.label for one in made.planned}) == len(made.planned)
    for part in made.parts:
        assert part.reduced if quick else part.reduced == "1 seed instead of 5"
        assert bool(part.label.startswith("stand-in")) == (word == "stand-in" and part.block.stand_in is not None)
    if quick:
        assert len(made.planned) <= 50


def test_table_2_and_3_and_figure_3_share_their_runs() -> None:
    jobs = [
        {
            one.job.label: one.job.config
            for one in make_plan(find_entry(name), Request(quick=True, data=["fl60"])).planned
        }
        for name in ("panacea-table2", "panacea-table3", "panacea-figure3")
    ]
    assert jobs[0] == jobs[1] == jobs[2]


# --- the verdict ----------------------------------------------------------------------------------------------------


def _ours(mean: float, spread: float | None = 1.0, between: float | None = None, seeds: int = 1) -> Measured:
    return Measured(mean, spread, between, clients=100, seeds=seeds)


def test_tolerance_by_hand() -> None:
    """Spreads of 3 and 4 over 100 clients each: standard errors 0.3 and 0.4, together 0.5; twice that and rounding."""
    assert tolerance(Printed(50.0, 3.0, 1), _ours(50, 4.0)) == pytest.approx(0.05 + 2 * 0.5)
    assert tolerance(Printed(50.0, 3.0, 1), _ours(50, 4.0), clients=25) == pytest.approx(
        0.05 + 2 * (0.36 + 0.16) ** 0.5
    )
    with_seeds = _ours(50, 4.0, between=1.2, seeds=4)  # 1.2 / sqrt(4) = 0.6
    assert tolerance(Printed(50.0, 0.0, 2), with_seeds) == pytest.approx(0.005 + 2 * (0.16 + 0.36) ** 0.5)
    assert tolerance(Printed(50.0, None, 2), _ours(50, 4.0)) == pytest.approx(0.005 + 2 * (2 * 0.16) ** 0.5)
    assert tolerance(Printed(50.0, None, 0), _ours(50, None)) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("mean", "higher", "verdict"),
    [
        (51.05, True, "reproduced"), (51.06, True, "better"), (48.95, True, "reproduced"), (48.94, True, "worse"),
        (51.06, False, "worse"), (48.94, False, "better"), (50.0, False, "reproduced"),
    ],
)  # fmt: skip
def test_reproduced_better_worse(mean: float, higher: bool, verdict: str) -> None:
    assert judge(Printed(50.0, 3.0, 1), _ours(mean, 4.0), higher_is_better=higher) == verdict


def test_what_is_not_judged() -> None:
    printed = Printed(50.0, 3.0, 1)
    assert judge(None, _ours(1), higher_is_better=True) == "-"
    assert judge(printed, None, higher_is_better=True) == "not run"
    assert judge(printed, _ours(50), higher_is_better=True, label="stand-in: x") == "not comparable"
    assert judge(printed, _ours(50), higher_is_better=True, impossible="why") == "cannot be right"
    assert judge(printed, None, higher_is_better=True, impossible="why") == "cannot be right"


def test_printed_cells() -> None:
    assert parse_printed("2.10±0.50") == Printed(2.1, 0.5, 2)
    assert str(parse_printed("100.0±0.0")) == "100.0±0.0"
    assert parse_printed("7 ± 2") == Printed(7.0, 2.0, 0)
    for bad in ("1.0+-2", "abc", "1±", "1.0 2.0"):
        with pytest.raises(RequestError, match="published"):
            parse_printed(bad)
    with pytest.raises(RequestError, match="has 1 cells"):
        parse_table("m | A | B\nx | 1")
    with pytest.raises(RequestError, match="twice"):
        parse_table("m | A\nx | 1\nx | 2")


# --- from runs to cells and claims ----------------------------------------------------------------------------------


def _finished(made: Plan, folder: Path, numbers: Mapping[str, Any]) -> list[Finished]:
    """Runs with `mean` by row (or by row and axis value), std 1, 100 clients."""
    done = []
    for number, one in enumerate(made.planned):
        value = numbers[one.row.name]
        value = value[one.value] if isinstance(value, dict) else value
        directory = folder / str(number)
        directory.mkdir()
        lines = ["client,name,novel,malicious,n_test,metric"]
        lines += [f"{i},c{i},{i % 2},0,{i + 1},{value + i}" for i in range(20)]
        (directory / "clients.csv").write_text("\n".join(lines))
        steps = [{"round": r, "mean": value * r / 100} for r in (0, 10, 50, 90, 100)]
        (directory / "metrics.jsonl").write_text("\n".join(json.dumps(line) for line in steps))
        summary = {"mean": value, "std": 1.0, "novel_mean": value, "novel_std": 1.0, "clients": 100}
        done.append(Finished(one.job, {**summary, "novel_clients": 25, "partial": ""}, directory))
    return done


def _table2(tmp_path: Path, **numbers: float) -> Reproduction:
    names = {"FedAvg": "fedavg", "Ditto": "ditto", "Panacea": "Panacea"}
    request = Request(data=["FL-60"], methods=list(names.values()), seeds=[0, 1])
    made = make_plan(find_entry("panacea-table2"), request)
    return gather(made, _finished(made, tmp_path, numbers))


def test_cells_of_runs(tmp_path: Path) -> None:
    found = _table2(tmp_path, FedAvg=97.0, Ditto=90.0, Panacea=100.0)
    cells = {cell.row.name: cell for cell in found.of("FL-60")}
    assert list(cells) == ["FedAvg", "Ditto", "Panacea"]
    assert {name: cell.verdict for name, cell in cells.items()} == {
        "FedAvg": "reproduced", "Ditto": "worse", "Panacea": "reproduced",
    }  # fmt: skip
    assert cells["Ditto"].difference == pytest.approx(-10)
    assert cells["FedAvg"].ours == Measured(97.0, 1.0, 0.0, 100, 2)
    assert "2 seeds instead of 5" in cells["FedAvg"].reduced
    claims = {claim.text: claim for claim in check_claims(found)}
    best = claims["Panacea matches the best on FL-60"]
    assert (best.printed, best.ours) == ("holds", "holds")
    assert best.numbers == "Panacea 100.0, best other FedAvg 97.0"
    assert claims["Panacea is better than pFedHN"].ours == "not run"


def test_a_claim_that_fails_and_a_tie(tmp_path: Path) -> None:
    found = _table2(tmp_path, FedAvg=99.98, Ditto=100.0, Panacea=99.96)
    best = next(claim for claim in check_claims(found) if "matches" in claim.text)
    assert best.ours == "holds"  # 100.0 beside 100.0 at the printed precision
    (tmp_path / "more").mkdir()
    found = _table2(tmp_path / "more", FedAvg=99.98, Ditto=100.0, Panacea=99.94)
    best = next(claim for claim in check_claims(found) if "matches" in claim.text)
    assert best.ours == "does not hold"


def test_a_failed_run_leaves_its_cell_empty(tmp_path: Path) -> None:
    request = Request(data=["FL-60"], methods=["fedavg", "ditto"], seeds=[0, 1])
    made = make_plan(find_entry("panacea-table2"), request)
    done = _finished(made, tmp_path, {"FedAvg": 98.0, "Ditto": 100.0})
    done[1] = Finished(done[1].job, None, done[1].directory, "training diverged")
    cells = {cell.row.name: cell for cell in gather(made, done).of("FL-60")}
    assert (cells["FedAvg"].verdict, cells["FedAvg"].why) == ("not run", "training diverged")
    assert cells["FedAvg"].ours is None
    assert cells["Ditto"].verdict == "reproduced"
    assert gather(made, done).failures == ["FL-60 FedAvg seed 1: training diverged"]


def test_partial_data_are_not_compared(tmp_path: Path) -> None:
    request = Request(data=["FL-60"], methods=["fedavg"], seeds=[0])
    made = make_plan(find_entry("panacea-table2"), request)
    (run,) = _finished(made, tmp_path, {"FedAvg": 97.9})
    assert run.summary is not None
    part = Finished(run.job, {**run.summary, "partial": "PARTIAL 29 of 207 sensors"}, run.directory)
    (cell,) = gather(made, [part]).of("FL-60")
    assert (cell.verdict, cell.why) == ("not comparable", "PARTIAL 29 of 207 sensors")
    assert cell.difference is None


def test_fewer_clients_are_not_compared() -> None:
    request = Request(data=["FL-60"], keys={"data.clients": 6})
    (part,) = make_plan(find_entry("panacea-table2"), request).parts
    assert part.label == "6 clients only"


def test_gain_along_an_axis(tmp_path: Path) -> None:
    made = make_plan(find_entry("generator-gain"), Request(quick=True))
    numbers = {"Panacea": {15: 90.0, 60: 92.0, 325: 95.0}, "Panacea-GN": {15: 90.0, 60: 91.0, 325: 92.0}}
    (main, novel) = check_claims(gather(made, _finished(made, tmp_path, numbers)))
    assert main.ours == novel.ours == "holds"
    assert main.numbers == "gain at 15: +0.00, 60: +1.00, 325: +3.00"
    numbers["Panacea"][325] = 92.0
    (tmp_path / "more").mkdir()
    assert check_claims(gather(made, _finished(made, tmp_path / "more", numbers)))[0].ours == "does not hold"


def test_best_along_an_axis_where_less_is_better(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "whereabouts", lambda block, root=None: ("here", ""))
    made = make_plan(find_entry("ablation-ks"), Request(data=["TPT-48 K_s"], seeds=[0]))
    values = {"Panacea": {1: 0.009, 2: 0.004, 5: 0.003, 10: 0.0021, 20: 0.0022}}
    found = gather(made, _finished(made, tmp_path, values))
    (claim,) = check_claims(found)
    assert claim.ours == "holds"
    assert claim.numbers == "1: 9.00, 2: 4.00, 5: 3.00, 10: 2.10, 20: 2.20"
    values["Panacea"][20] = 0.002
    (tmp_path / "more").mkdir()
    (claim,) = check_claims(gather(made, _finished(made, tmp_path / "more", values)))
    assert claim.ours == "does not hold"


def test_the_star_is_explained_where_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "whereabouts", lambda block, root=None: ("here", ""))
    values = {"Panacea": dict.fromkeys((1, 2, 5, 10, 20), 0.001)}
    for seeds, said in ((None, False), ([0, 1], True)):
        request = Request(data=["TPT-48 K_s"]) if seeds is None else Request(data=["TPT-48 K_s"], seeds=seeds)
        made = make_plan(find_entry("ablation-ks"), request)
        (tmp_path / str(said)).mkdir()
        found = gather(made, _finished(made, tmp_path / str(said), values))
        assert bool(legend(result_tables(found, check_claims(found)))) is said


def test_a_value_at_which_a_run_failed_is_not_the_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "whereabouts", lambda block, root=None: ("here", ""))
    made = make_plan(find_entry("ablation-ks"), Request(data=["TPT-48 K_s"], seeds=[0, 1]))
    values = {"Panacea": {1: 0.009, 2: 0.004, 5: 0.001, 10: 0.0021, 20: 0.0022}}
    done = _finished(made, tmp_path, values)
    (five,) = (n for n, one in enumerate(made.planned) if (one.value, one.seed) == (5, 1))
    done[five] = Finished(done[five].job, None, done[five].directory, "training diverged")
    found = gather(made, done)
    (claim,) = check_claims(found)
    assert claim.ours == "holds"
    assert claim.numbers == "1: 9.00, 2: 4.00, 5: failed 1 of 2, 10: 2.10, 20: 2.20"
    assert "failed 1 of 2" in result_tables(found, [claim])[0].markdown()
    (ten,) = (n for n, one in enumerate(made.planned) if (one.value, one.seed) == (10, 0))
    done[ten] = Finished(done[ten].job, None, done[ten].directory, "training diverged")
    (claim,) = check_claims(gather(made, done))
    assert claim.ours == "does not hold"


def test_most_at_one_value(tmp_path: Path) -> None:
    request = Request(quick=True, data=["FL-60"], methods=["fedavg", "ditto", "sfl", "panacea"])
    made = make_plan(find_entry("panacea-figure4"), request)
    same = {0.0: 90.0, 0.2: 90.0, 0.5: 60.0}
    numbers = {"FedAvg": same, "Ditto": same, "SFL": same, "Panacea": {0.0: 50.0, 0.2: 90.0, 0.5: 61.0}}
    half, fifth = check_claims(gather(made, _finished(made, tmp_path, numbers)))
    assert (half.ours, fifth.ours) == ("holds", "does not hold")
    assert half.numbers.endswith("better than 3 of 3")


def test_signed_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "whereabouts", lambda block, root=None: ("here", ""))
    request = Request(quick=True, data=["MNIST"], methods=["fedamp", "separate"], seeds=[0, 1])
    made = make_plan(find_entry("fedamp-figure2"), request)
    found = gather(made, _finished(made, tmp_path, {"FedAMP": 60.0, "Separate": 50.0}))
    (claim,) = check_claims(found)  # the others speak of data that are not asked for
    assert claim.ours == "holds"
    assert claim.numbers.startswith("20 pairs")  # ten clients of each seed that are not novel
    assert claim.numbers.endswith("(+10.00)")


def test_derived_measures(tmp_path: Path) -> None:
    """Clients 0 and 2 train with 1 and 3 test samples, client 1 is novel, client 4 attacks."""
    (tmp_path / "clients.csv").write_text(
        "client,name,novel,malicious,n_test,metric\n0,a,0,0,1,80\n1,b,1,0,5,40\n2,c,0,0,3,60\n4,d,0,1,9,0\n"
    )
    lines = [
        {"round": 10, "mean": 50.0}, {"round": 20, "mean": 88.0}, {"round": 30, "mean": 91.0},
        {"round": 40, "mean": 95.0, "group_weight": 0.7},
    ]  # fmt: skip
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert DERIVED["pooled"](tmp_path) == pytest.approx((80 + 3 * 60) / 4)
    assert DERIVED["pooled_novel"](tmp_path) == 40
    assert DERIVED["curve_mean"](tmp_path) == pytest.approx(81)
    assert DERIVED["group_weight"](tmp_path) == pytest.approx(70)
    assert client_metrics(tmp_path) == {"a": 80.0, "c": 60.0}


# --- wrong files and wrong requests -----------------------------------------------------------------------------------

FILE = """
name: mine
title: t
paper: p
short: s
where: w
what: x
time: {quick: a, full: b}
blocks: [{name: A, data: fl60}]
rows: [{name: FedAvg, method: fedavg}]
published: |
  m      | A
  FedAvg | 97.9±9.7
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("FedAvg | 97.9±9.7", "FedAvgg | 97.9±9.7", "unknown row 'FedAvgg'; did you mean 'FedAvg'?"),
        ("m      | A", "m      | B", "unknown column 'B'"),
        ("97.9±9.7", "ninety", "'ninety' is neither MEAN±SPREAD"),
        ("title: t", "titel: t", "mine.yaml: titel"),
        ("where: w\n", "", "where is missing"),
        ("full: b", "slow: b", "mine.yaml: time"),
        ("rows: [{name: FedAvg, method: fedavg}]", "", "needs blocks and rows, or theory"),
        ("name: mine", "name: Mine Own", "mine.yaml: name=Mine Own"),
        ("[{name: A, data: fl60}]", "[{name: A, data: fl60}, {name: A, data: digits}]", "the block 'A' is given twice"),
        ("data: fl60", "data: fl60, better: up", "better"),
        ("name: FedAvg,", "name: 'FedAvg, ours',", "a row's name has no comma"),
    ],
)
def test_wrong_files_get_one_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in FILE
    path = tmp_path / "mine.yaml"
    path.write_text(FILE.replace(old, new))
    with pytest.raises(RequestError) as caught:
        find_entry(str(path))
    assert message in str(caught.value)
    assert "mine.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_file_of_the_documentation(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "reproduce.md"
    path = tmp_path / "mine.yaml"
    path.write_text(page.read_text().split("```yaml\n")[1].partition("```")[0])
    assert len(make_plan(find_entry(str(path)), Request(data=["digits"], seeds=[0])).rows) == 2


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(FILE)
    assert isinstance(read_entry(path), Entry)
    for content in ("- a\n", "a: [", "\x00"):
        path.write_text(content)
        with pytest.raises(RequestError, match=r"mine\.yaml"):
            read_entry(path)
    with pytest.raises(RequestError, match="no such file"):
        find_entry(str(tmp_path / "none.yaml"))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"data": "fl66"}, "unknown data 'fl66'"),
        ({"methods": "panaceaa"}, "unknown methods 'panaceaa'"),
        ({"seeds": "x"}, "seeds=x"),
        ({"method": "fedavg"}, "methods=fedavg chooses rows"),
        ({"seed": 3}, "seed=3"),
        ({"rouns": 3}, "unknown key 'rouns'; did you mean 'rounds'?"),
        ({"rounds": 0}, "rounds=0"),
    ],
)
def test_wrong_requests(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        make_plan(find_entry("panacea-table2"), Request.of(keys, quick=True, out=None))
    assert message in str(caught.value)


def test_an_empty_folder_is_no_data(tmp_path: Path) -> None:
    (tmp_path / "tpt48").mkdir()
    request = Request(data=["TPT-48", "FL-60"], keys={"data.root": str(tmp_path)})
    made = make_plan(find_entry("panacea-table2"), request)
    assert {part.block.name: bool(part.missing) for part in made.parts} == {"FL-60": False, "TPT-48": True}


def test_values_of_an_axis_can_be_chosen() -> None:
    request = Request.of({"attack.ratio": [0.1, 0.3], "data": "FL-60"}, quick=True, out=None)
    made = make_plan(find_entry("panacea-figure4"), request)
    assert {one.value for one in made.planned} == {0.1, 0.3}


def test_keys_given_by_hand_win_over_the_rows() -> None:
    request = Request(quick=True, data=["FL-60"], methods=["Panacea"], keys={"method.preset": "default", "rounds": 7})
    (one,) = make_plan(find_entry("panacea-table2"), request).planned
    assert one.job.config.method.keys["preset"] == "default"
    assert one.job.config.rounds == 7
