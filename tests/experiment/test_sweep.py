"""Which lists are several values and which are one value that is a list; the numbers of the table by hand."""

from __future__ import annotations

from typing import Any

import pytest

from panacea.errors import RequestError
from panacea.experiment.sweep import Axis, split_sweep
from panacea.experiment.sweep_table import Outcome, Swept

FL60: dict[str, Any] = {"data": "fl60", "attack": "label_flip"}


def _axes(keys: dict[str, Any], methods: tuple[str, ...] = ("fedavg",)) -> dict[str, tuple[Any, ...]]:
    fixed, axes = split_sweep(keys, methods)
    varied = {axis.key: axis.values for axis in axes}
    assert set(fixed) | set(varied) == set(keys)
    assert not set(fixed) & set(varied)
    return varied


@pytest.mark.parametrize(
    ("keys", "varied"),
    [
        ({"attack.ratio": [0.0, 0.5]}, {"attack.ratio": (0.0, 0.5)}),
        ({"rounds": [10, 20]}, {"rounds": (10, 20)}),
        ({"lr": [0.1]}, {"lr": (0.1,)}),
        ({"data.clients": [6, 12]}, {"data.clients": (6, 12)}),
        ({"graph": ["given", "empty"]}, {"graph": ("given", "empty")}),
        ({"graph": "knn", "graph.k": [1, 3]}, {"graph.k": (1, 3)}),
        ({"attack": ["label_flip", "sign_flip"]}, {"attack": ("label_flip", "sign_flip")}),
        ({"defence": [None, "median"]}, {"defence": ("none", "median")}),
        ({"attack.flip": ["uniform", "invert"]}, {"attack.flip": ("uniform", "invert")}),
        ({"defence": "screen", "defence.factor": [2, 5]}, {"defence.factor": (2, 5)}),
        ({"attack.clients": [3, 17]}, {}),  # these keys take lists
        ({"model": "mlp", "model.hidden": [16, 16]}, {}),
        ({"model.hidden": [16, 16]}, {}),  # whatever model=auto turns out to be
        ({"data": "digits", "data.train_sizes": [10, 20]}, {}),
        ({"model": "mlp", "model.norm": ["none", "batch"]}, {"model.norm": ("none", "batch")}),
        ({"attack.ratio": 0.3}, {}),
        ({"attack.rati0": [0.1, 0.2]}, {}),  # nobody knows it: whoever checks the run says so
    ],
)
def test_lists_where_one_value_is_taken_are_varied(keys: dict[str, Any], varied: dict[str, Any]) -> None:
    assert _axes({**FL60, **keys}) == varied


def test_a_method_key_is_looked_up_in_all_methods() -> None:
    assert _axes({**FL60, "method.mu": [0.1, 1]}, ("fedprox", "fedprox_ft")) == {"method.mu": (0.1, 1)}


def test_curves_go_along_the_ratio_and_else_along_numbers() -> None:
    keys = {**FL60, "defence": ["median", "krum"], "attack.ratio": [0, 0.5]}
    assert [axis.key for axis in split_sweep(keys, ["fedavg"])[1]] == ["attack.ratio", "defence"]
    keys = {**FL60, "graph": ["given", "empty"], "lr": [0.1, 0.2]}
    assert [axis.key for axis in split_sweep(keys, ["fedavg"])[1]] == ["lr", "graph"]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"lr": [0.1, 0.2], "rounds": [1, 2], "cohort": [2, 3]}, ["lr, rounds, cohort", "at most 2"]),
        ({"lr": []}, ["lr", "empty"]),
        ({"lr": [0.1, 0.1]}, ["lr=0.1,0.1", "twice"]),
        ({"out": ["a", "b"]}, ["out=a,b", "one value"]),
        ({"attack": None, "attack.ratio": [0, 0.5]}, ["attack.ratio", "without an attack"]),
        ({"data": "fl6", "data.clients": [1, 2]}, ["fl6", "fl60"]),
    ],
)
def test_what_cannot_be_varied_is_said(keys: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(RequestError) as caught:
        split_sweep({**FL60, **keys}, ["fedavg"])
    for word in words:
        assert word in str(caught.value)


def _summary(mean: float | None, metric: str = "accuracy", **more: Any) -> dict[str, Any]:
    return {"data": "fl60", "metric": metric, "rounds": 5, "attack": "sign_flip", "mean": mean, "std": 1.0, **more}


def _swept(means: dict[tuple[str, float, int], float | None], metric: str = "accuracy") -> Swept:
    outcomes = tuple(
        Outcome(method, (ratio,), seed, None if mean is None else _summary(mean, metric))
        for (method, ratio, seed), mean in means.items()
    )
    ratios = tuple(dict.fromkeys(ratio for _, ratio, _ in means))
    return Swept((Axis("attack.ratio", ratios),), outcomes, "attack=sign_flip")


def test_means_and_drops_by_hand() -> None:
    means = {("a", 0, 0): 90.0, ("a", 0, 1): 80.0, ("a", 0.5, 0): 60.0, ("a", 0.5, 1): 70.0}
    (line,) = _swept(means).lines()
    first, last = line.cells
    assert (first.mean, first.drop, first.drop_spread) == (85, 0, 0)
    assert (last.mean, last.drop) == (65, 20)
    assert last.spread == pytest.approx(50**0.5)
    assert last.drop_spread == pytest.approx(200**0.5)  # 30 and 10, seed by seed
    header, rows = _swept(means).texts()
    assert header == ["attack.ratio:", "0", "0.5"]
    assert rows == [["a", "85.00 ± 7.07", "65.00 ± 7.07 (-20.00)"]]
    assert "honest clients" in _swept(means).caption


def test_errors_grow_under_attack() -> None:
    swept = _swept({("a", 0, 0): 2.0, ("a", 0.5, 0): 5.0}, metric="mse")
    assert swept.lines()[0].cells[1].drop == 3  # worse by 3
    assert swept.texts()[1] == [["a", "2.00", "5.00 (+3.00)"]]


def test_a_failed_run_empties_its_cell_and_no_other() -> None:
    means = {("a", 0, 0): 90.0, ("a", 0, 1): 80.0, ("a", 0.5, 0): 60.0, ("a", 0.5, 1): None}
    swept = _swept(means)
    first, last = swept.lines()[0].cells
    assert (first.mean, last.mean, last.drop) == (85, None, None)
    assert swept.texts()[1][0][2] == "failed"
    record = swept.records()[1]
    assert (record["seeds"], record["mean"], record["std_clients"]) == (1, None, None)


def test_a_second_key_has_lines_of_its_own() -> None:
    axes = (Axis("attack.ratio", (0, 0.5)), Axis("defence", ("none", "median")))
    values = {(0, "none"): 90.0, (0.5, "none"): 50.0, (0, "median"): 88.0, (0.5, "median"): 80.0}
    outcomes = tuple(Outcome("a", pair, 0, _summary(mean)) for pair, mean in values.items())
    lines = Swept(axes, outcomes).lines()
    assert [(line.other, [cell.drop for cell in line.cells]) for line in lines] == [
        ("none", [0, 40]),
        ("median", [0, 8]),
    ]
