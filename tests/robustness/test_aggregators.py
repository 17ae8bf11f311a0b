"""Robust means against numbers worked out by hand, NumPy and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import optimize, stats
from torch import Tensor

from panacea.robustness.aggregators import geometric_median, krum_order, median, trimmed_mean

ROWS = torch.tensor(
    [[1.0, 10.0, -1.0], [2.0, 30.0, -3.0], [3.0, 20.0, -2.0], [100.0, -90.0, 50.0]], dtype=torch.float64
)


def drawn(rows: int, width: int = 7, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(rows, width)))


def test_the_median_by_hand() -> None:
    assert median(ROWS).tolist() == [2.5, 15.0, -1.5]  # even: the mean of the two in the middle
    assert median(ROWS[:3]).tolist() == [2.0, 20.0, -2.0]
    assert median(ROWS[:1]).tolist() == ROWS[0].tolist()


def test_the_trimmed_mean_by_hand() -> None:
    assert trimmed_mean(ROWS, 1).tolist() == [2.5, 15.0, -1.5]
    assert trimmed_mean(ROWS[:3], 1).tolist() == [2.0, 20.0, -2.0]
    assert trimmed_mean(ROWS, 0).tolist() == [26.5, -7.5, 11.0]


@pytest.mark.parametrize("rows", [1, 2, 5, 8, 15])
def test_as_numpy_and_scipy_have_it(rows: int) -> None:
    x = drawn(rows)
    np.testing.assert_allclose(median(x), np.median(x, axis=0), rtol=1e-14)
    for cut in range((rows + 1) // 2):
        np.testing.assert_allclose(trimmed_mean(x, cut), stats.trim_mean(x, cut / rows + 1e-9, axis=0), rtol=1e-12)


def test_krum_by_hand() -> None:
    """Points 0, 1, 3 and 100 on a line, f = 1: each looks at its 4 - 1 - 2 = 1 nearest: scores 1, 1, 4, 97^2."""
    line = torch.tensor([[0.0], [1.0], [3.0], [100.0]], dtype=torch.float64)
    assert krum_order(line, 1).tolist() == [0, 1, 2, 3]
    # f = 0: two nearest each: 1 + 9, 1 + 4, 4 + 9, 97^2 + 99^2
    assert krum_order(line, 0).tolist() == [1, 0, 2, 3]
    plane = torch.tensor([[0.0, 0.0], [0.0, 3.0], [4.0, 0.0], [1.0, 1.0], [-50.0, 0.0]], dtype=torch.float64)
    # f = 1: two nearest: 2 + 9, 5 + 9, 10 + 16, 2 + 5, 2500 + 2509
    assert krum_order(plane, 1).tolist() == [3, 0, 1, 2, 4]


@pytest.mark.parametrize(("rows", "liars"), [(9, 2), (6, 1), (5, 3), (2, 1), (1, 1)])
def test_krum_as_a_plain_loop_has_it(rows: int, liars: int) -> None:
    x = drawn(rows, seed=rows).numpy()
    scores = []
    for i in range(rows):
        others = sorted(float(((x[i] - x[j]) ** 2).sum()) for j in range(rows) if j != i)
        scores.append(sum(others[: max(rows - liars - 2, 1)]))
    assert krum_order(torch.from_numpy(x), liars).tolist() == np.argsort(scores, kind="stable").tolist()


def test_the_geometric_median_by_hand() -> None:
    """On a line it is the median; of a triangle with an angle of at least 120 degrees that corner."""
    line = torch.tensor([[0.0], [1.0], [50.0]], dtype=torch.float64)
    assert float(geometric_median(line)) == pytest.approx(1.0, abs=1e-3)
    obtuse = torch.tensor([[0.0, 0.0], [10.0, 1.0], [-10.0, 1.0]], dtype=torch.float64)
    assert geometric_median(obtuse).tolist() == pytest.approx([0.0, 0.0], abs=1e-3)
    square = torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0], [2.0, 2.0]], dtype=torch.float64)
    assert geometric_median(square).tolist() == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize("rows", [3, 8, 15])
def test_the_geometric_median_is_the_minimum(rows: int) -> None:
    x = drawn(rows, 4, seed=rows).numpy()
    x[0] += 100

    def total(z: np.ndarray) -> float:
        return float(np.linalg.norm(x - z, axis=1).sum())

    best = optimize.minimize(total, np.median(x, axis=0), method="BFGS").fun
    assert total(geometric_median(torch.from_numpy(x)).numpy()) <= best * (1 + 1e-5)


@pytest.mark.parametrize(
    "mean", [median, geometric_median, lambda x: trimmed_mean(x, 2), lambda x: x[krum_order(x, 2)[0]]]
)
def test_two_liars_of_nine_cannot_drag_it_away(mean) -> None:
    honest = drawn(7)
    for lie in (1e3, -1e9, 1e9):
        found = mean(torch.cat([honest, torch.full((2, 7), lie, dtype=torch.float64)]))
        assert float((found - honest.mean(dim=0)).abs().max()) < 4
