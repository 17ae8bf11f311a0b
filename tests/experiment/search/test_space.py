"""What a file may say about a key, what is drawn from it, and what is refused in one line."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from panacea.errors import RequestError
from panacea.experiment.search.space import Choice, Integer, Range, parse_space


def _one(flat: dict[str, Any]) -> Any:
    (dimension,) = parse_space(flat, ["fedavg"])["fedavg"].dimensions.values()
    return dimension


@pytest.mark.parametrize(
    ("flat", "dimension"),
    [
        ({"lr": [0.1, 1]}, Choice((0.1, 1))),
        ({"lr": ["1e-3", "0.1"]}, Choice((0.001, 0.1))),  # YAML reads 1e-3 as text
        ({"lr.choice": [0.1]}, Choice((0.1,))),
        ({"graph": ["given", "empty"]}, Choice(("given", "empty"))),
        ({"model.hidden": [[16, 16], [32]]}, Choice(([16, 16], [32]))),
        ({"method.soft_test": [True, False]}, Choice((True, False))),
        ({"lr.log_uniform": ["1e-4", 1]}, Range(1e-4, 1, log=True)),
        ({"momentum.uniform": [0, 0.9]}, Range(0, 0.9)),
        ({"local_steps.int": [1, 8]}, Integer(1, 8)),
        ({"fedavg.local_steps.int": [1, 8]}, Integer(1, 8)),
    ],
)
def test_forms(flat: dict[str, Any], dimension: Any) -> None:
    assert _one(flat) == dimension


@pytest.mark.parametrize(
    ("flat", "words"),
    [
        ({"lr": 0.1}, ["space.lr=0.1", "list", "base"]),
        ({"lr": []}, ["space.lr", "empty"]),
        ({"lr": [0.1, 0.1]}, ["space.lr=0.1,0.1", "twice"]),
        ({"lr": [0.1], "lr.choice": [1]}, ["lr", "twice"]),
        ({"lr.log_uniform": [0, 1]}, ["space.lr.log_uniform=0,1", "above 0"]),
        ({"lr.log_uniform": [1, 0.1]}, ["space.lr.log_uniform=1,0.1", "smaller first"]),
        ({"lr.uniform": [0, math.inf]}, ["space.lr.uniform=0,inf", "two numbers"]),
        ({"lr.uniform": ["a", "b"]}, ["space.lr.uniform=a,b", "two numbers"]),
        ({"lr.uniform": [True, 2]}, ["two numbers"]),
        ({"lr.uniform": 0.1}, ["space.lr.uniform=0.1", "two numbers"]),
        ({"local_steps.int": [1, 2.5]}, ["whole numbers"]),
        ({"lr.loguniform": [0.1, 1]}, ["space.lr", "loguniform", "did you mean 'log_uniform'"]),
        ({"method.lam.unifrom": [0.1, 1]}, ["space.method.lam", "did you mean 'uniform'"]),
        ({"seed": [0, 1]}, ["space.seed", "seeds=0..2"]),
        ({"method": ["fedavg", "ditto"]}, ["space.method", "methods="]),
        ({"threads": [1, 2]}, ["space.threads", "changes no result"]),
    ],
)
def test_what_is_no_space_is_said(flat: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(RequestError) as caught:
        parse_space(flat, ["fedavg"])
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_methods_own_values_win_and_go_nowhere_else() -> None:
    flat = {"lr": [0.1, 1], "ditto.lr": [0.5], "ditto.method.lam": [1, 2], "my.module:Mine.lr": [7]}
    spaces = parse_space(flat, ["fedavg", "ditto", "my.module:Mine"])
    assert list(spaces["fedavg"].grid()) == [{"lr": 0.1}, {"lr": 1}]
    assert list(spaces["ditto"].grid()) == [{"lr": 0.5, "method.lam": 1}, {"lr": 0.5, "method.lam": 2}]
    assert list(spaces["my.module:Mine"].grid()) == [{"lr": 7}]


def test_the_last_key_of_a_grid_changes_fastest() -> None:
    space = parse_space({"lr": [1, 2], "clip": [3, 4, 5]}, ["fedavg"])["fedavg"]
    assert space.size == 6
    assert [tuple(setting.values()) for setting in space.grid()] == [(1, 3), (1, 4), (1, 5), (2, 3), (2, 4), (2, 5)]


def test_a_distribution_has_no_grid() -> None:
    space = parse_space({"lr.uniform": [0, 1]}, ["fedavg"])["fedavg"]
    assert space.size is None
    with pytest.raises(RequestError, match=r"space\.lr is a distribution.*search=random"):
        list(space.grid())


def test_draws_follow_their_distributions() -> None:
    flat = {"lr.log_uniform": [1e-4, 1], "momentum.uniform": [0.5, 0.9], "local_steps.int": [1, 4], "clip": [0, 10]}
    space, numbers = parse_space(flat, ["fedavg"])["fedavg"], np.random.default_rng(0)
    drawn = [space.draw(numbers) for _ in range(4000)]
    exponents = np.log10([setting["lr"] for setting in drawn])
    assert exponents.min() >= -4
    assert exponents.max() <= 0
    assert np.histogram(exponents, bins=4, range=(-4, 0))[0] == pytest.approx([1000] * 4, rel=0.15)
    momenta = np.array([setting["momentum"] for setting in drawn])
    assert (momenta.min() >= 0.5, momenta.max() <= 0.9) == (True, True)
    assert momenta.mean() == pytest.approx(0.7, abs=0.01)
    counts = np.bincount([setting["local_steps"] for setting in drawn], minlength=6)
    assert counts[[0, 5]].tolist() == [0, 0]  # both bounds belong to it, nothing beyond does
    assert counts[1:5] == pytest.approx([1000] * 4, rel=0.15)
    assert {setting["clip"] for setting in drawn} == {0, 10}
    assert all(len(f"{setting['lr']:.10g}".strip("0.").replace(".", "").split("e")[0]) <= 4 for setting in drawn)


def test_corners_show_every_value_and_bound() -> None:
    space = parse_space({"lr": [1, 2, 3], "clip.uniform": [4, 5]}, ["fedavg"])["fedavg"]
    assert list(space.corners()) == [
        {"lr": 1, "clip": 4}, {"lr": 2, "clip": 4}, {"lr": 3, "clip": 4}, {"lr": 1, "clip": 5},
    ]  # fmt: skip
