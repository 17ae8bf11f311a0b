"""The rule by hand: which rounds are rungs, who goes on, and that only ranks matter."""

from __future__ import annotations

import math

import pytest

from panacea.experiment.search.stopping import Halving, Standing, ranked


@pytest.mark.parametrize(
    ("rule", "rounds", "eval_every", "rungs"),
    [
        (Halving(), 800, 10, (200, 400)),
        (Halving(factor=3), 900, 10, (230, 680)),  # 225 and 675, moved up to evaluated rounds
        (Halving(grace=100, factor=3), 900, 10, (100, 300)),  # 900 is the end, not a rung
        (Halving(grace=10), 100, 50, (50,)),  # 10, 20, 40 all wait for round 50
        (Halving(grace=95), 100, 10, ()),  # the next evaluated round is the last
        (Halving(grace=100), 100, 10, ()),
        (Halving(grace=1), 1, 1, ()),
    ],
)
def test_rungs_are_evaluated_rounds_before_the_last(
    rule: Halving, rounds: int, eval_every: int, rungs: tuple[int, ...]
) -> None:
    assert rule.rungs(rounds, eval_every) == rungs


def _standings(*scores: float | None) -> list[Standing | None]:
    return [None if score is None else (score, 1.0) for score in scores]


def test_the_better_part_goes_on() -> None:
    scores = _standings(70, 90, 80, 60)
    assert Halving().going_on(scores, higher_is_better=True) == [False, True, True, False]
    assert Halving().going_on(scores, higher_is_better=False) == [True, False, False, True]
    assert Halving(factor=4).going_on(scores, higher_is_better=True) == [False, True, False, False]


def test_one_of_few_always_goes_on() -> None:
    assert Halving(factor=100).going_on(_standings(1, 2, 3), higher_is_better=True) == [False, False, True]
    assert Halving().going_on(_standings(1), higher_is_better=True) == [True]
    assert Halving().going_on([], higher_is_better=True) == []


def test_of_equal_ones_the_lower_loss_and_then_the_first_goes_on() -> None:
    assert Halving().going_on(_standings(5, 5, 5, 5), higher_is_better=True) == [True, True, False, False]
    assert ranked(_standings(1, 2, 2, None), higher_is_better=True) == [1, 2, 0]
    assert ranked(_standings(1, 2, 1, None), higher_is_better=False) == [0, 2, 1]
    assert ranked([(5.0, 0.3), (5.0, 0.1), (4.0, 0.0), (5.0, math.inf)], higher_is_better=True) == [1, 0, 3, 2]
    assert ranked([(5.0, 0.3), (5.0, 0.1), (4.0, 9.0)], higher_is_better=False) == [2, 1, 0]


def test_what_diverged_counts_but_never_goes_on() -> None:
    assert Halving().going_on(_standings(None, None, None, 1), higher_is_better=True) == [False, False, False, True]
    assert Halving().going_on([None, None], higher_is_better=True) == [False, False]
