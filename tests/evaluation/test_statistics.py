"""The interval covers what it should; the tests say what scipy and a pencil say."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from panacea.evaluation.statistics import bootstrap_interval, holm, paired_test

Values = npt.NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, ...]], Values]

KINDS: dict[str, tuple[Draw, float, float]] = {  # draw, true mean, standard deviation
    "normal": (lambda r, shape: r.normal(0, 1, shape), 0.0, 1.0),
    "beta": (lambda r, shape: r.beta(9, 1, shape), 0.9, 0.09),
    "some_bad": (
        lambda r, shape: np.where(r.random(shape) < 0.2, r.uniform(0.3, 0.7, shape), r.uniform(0.9, 1, shape)),
        0.86,
        0.19,
    ),
}


def _coverage(draw: Draw, truth: float, seeds: int, between: float, repeats: int = 1000) -> float:
    rng, hits = np.random.default_rng(11), 0
    for repeat in range(repeats):
        values = draw(rng, (seeds, 48)) + rng.normal(0, between, (seeds, 1)) if between else draw(rng, (seeds, 48))
        found = bootstrap_interval(list(values), resamples=500, seed=repeat)
        assert found is not None
        hits += found[0] <= truth <= found[1]
    return hits / repeats


@pytest.mark.parametrize("kind", KINDS)
def test_the_interval_covers_the_truth_with_one_seed(kind: str) -> None:
    draw, truth, _ = KINDS[kind]
    assert 0.93 <= _coverage(draw, truth, 1, 0.0) <= 0.97


@pytest.mark.parametrize(
    ("kind", "seeds", "share"), [("beta", 2, 0.2), ("normal", 5, 0.0), ("beta", 5, 0.2), ("some_bad", 3, 1.0)]
)
def test_the_interval_covers_the_truth_with_several_seeds(kind: str, seeds: int, share: float) -> None:
    draw, truth, deviation = KINDS[kind]
    assert 0.93 <= _coverage(draw, truth, seeds, share * deviation) <= 0.97


def test_the_interval_is_the_same_every_time_and_moves_with_the_values() -> None:
    values = np.random.default_rng(0).normal(size=48)
    low, high = bootstrap_interval([values]) or (0, 0)
    assert bootstrap_interval([values]) == (low, high)
    moved = bootstrap_interval([3 + 2 * values])
    assert moved == pytest.approx((3 + 2 * low, 3 + 2 * high))
    assert bootstrap_interval([values], bounds=(0.0, 0.1)) == (max(low, 0.0), min(high, 0.1))


def test_the_interval_is_near_what_scipy_gives() -> None:
    values = np.random.default_rng(3).gamma(2, size=200)
    theirs = stats.bootstrap((values,), np.mean, method="BCa", n_resamples=9999, rng=1).confidence_interval
    ours = bootstrap_interval([values], resamples=9999)
    assert ours == pytest.approx((theirs.low, theirs.high), abs=0.02)


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([], None),
        ([[5.0]], None),
        ([[math.nan, 4.0]], None),
        ([[4.0, 4.0, 4.0]], (4.0, 4.0)),
        ([[4.0, 4.0], [4.0, 4.0]], (4.0, 4.0)),
        ([[1.0], [2.0]], (0.0, 1.5 + stats.t.ppf(0.975, 1) / 2)),  # two runs of one client each say little
        ([[100.0] * 9, [100.0] * 9, [100.0] * 8 + [91.0]], (99.0 + 2 / 3 - stats.t.ppf(0.975, 2) / 3, 100.0)),
    ],
)
def test_where_nothing_or_everything_is_known(groups: list[list[float]], expected: tuple[float, float] | None) -> None:
    assert bootstrap_interval([np.array(group) for group in groups], bounds=(0.0, 100.0)) == (
        expected and pytest.approx(expected)
    )


def test_signed_ranks_by_hand() -> None:
    """Differences 2, -1, 4, 0: ranks of the first three 2, 1, 3; W+ = 5, W- = 1; 4 of 8 signs are as extreme."""
    test = paired_test(np.array([3.0, 5.0, 9.0, 4.0]), np.array([1.0, 6.0, 5.0, 4.0]))
    assert test is not None
    assert (test.pairs, test.zeros, test.median, test.p) == (4, 1, 1.0, 0.5)
    assert test.effect == pytest.approx(4 / 6)
    assert test.few


def test_tied_ranks_by_hand() -> None:
    """Differences 1, 1, -1, 2: three share rank 2, the last has 4; W+ = 8, W- = 2."""
    test = paired_test(np.array([1.0, 1.0, -1.0, 2.0]), np.zeros(4))
    assert test is not None
    assert test.effect == pytest.approx(0.6)


@pytest.mark.parametrize("size", [8, 20, 48, 200])
@pytest.mark.parametrize("rounded", [False, True])
def test_against_scipy(size: int, rounded: bool) -> None:
    rng = np.random.default_rng(size)
    first, second = rng.normal(0.3, 1, size), rng.normal(0, 1, size)
    if rounded:  # ties and zeros
        first, second = np.round(first), np.round(second)
    test = paired_test(first, second)
    assert test is not None
    theirs = stats.wilcoxon(first, second, zero_method="wilcox")
    assert test.p == pytest.approx(theirs.pvalue)
    ranks = stats.rankdata(np.abs((first - second)[first != second]))
    assert theirs.statistic == pytest.approx(ranks.sum() * (1 - abs(test.effect)) / 2)
    swapped = paired_test(second, first)
    assert swapped is not None
    assert (swapped.p, swapped.effect, swapped.median) == pytest.approx((test.p, -test.effect, -test.median))


def test_no_difference_and_no_pair() -> None:
    same = paired_test(np.ones(10), np.ones(10))
    assert same is not None
    assert (same.p, same.effect, same.zeros, same.few) == (1.0, 0.0, 10, True)
    assert paired_test(np.array([np.nan, 1.0]), np.array([1.0, np.nan])) is None


def test_six_differences_can_be_significant_and_five_cannot() -> None:
    five, six = (paired_test(np.arange(1.0, n + 1), np.zeros(n)) for n in (5, 6))
    assert five is not None and six is not None  # noqa: PT018
    assert (five.few, six.few) == (True, False)
    assert five.p > 0.05 > six.p


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.4]) == pytest.approx([0.8, 0.8])
    assert holm([0.9, 0.001]) == pytest.approx([0.9, 0.002])
    assert holm([]) == []
