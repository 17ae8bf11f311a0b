from __future__ import annotations

import numpy as np
import pytest

from panacea.theory import Settings
from panacea.theory.alternation import Attention, Problem, alternate, decreasing, exponential, minimise, root
from panacea.theory.fedamp import check_convex, check_smooth, convexity


def _problem(attention: Attention, clients: int = 4, d: int = 3) -> Problem:
    stream = np.random.default_rng(0)
    return Problem(stream.standard_normal((clients, d)), 0.5 + stream.random((clients, 1)), attention, 0.7)


@pytest.mark.parametrize("attention", [root(0.1), exponential(2.0)])
def test_derivatives_against_finite_differences(attention: Attention) -> None:
    x = np.linspace(0.1, 5, 20)
    for low, high in ((attention.value, attention.slope), (attention.slope, attention.bend)):
        np.testing.assert_allclose((low(x + 1e-6) - low(x - 1e-6)) / 2e-6, high(x), rtol=1e-5)
    problem = _problem(attention)
    W = np.random.default_rng(1).standard_normal(problem.centre.shape)
    gradient = np.zeros(W.size)
    hessian = np.zeros((W.size, W.size))
    for place in range(W.size):
        step = np.zeros(W.size)
        step[place] = 1e-5
        step = step.reshape(W.shape)
        gradient[place] = (problem.value(W + step) - problem.value(W - step)) / 2e-5
        hessian[place] = (2 * problem.pull(W + step) - 2 * problem.pull(W - step)).ravel() / 2e-5
    np.testing.assert_allclose(problem.gradient(W).ravel(), gradient, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(problem.penalty_hessian(W), hessian, rtol=1e-5, atol=1e-8)


def test_one_round_by_hand() -> None:
    """Two clients at 0 and 1 with A' = 1/2 everywhere near: u = 0 + 0.5 s alpha A', then the proximal point."""
    flat = Attention("x/2", lambda x: x / 2, lambda x: np.full_like(x, 0.5), np.zeros_like)
    problem = Problem(np.array([[0.0], [1.0]]), np.array([[1.0], [3.0]]), flat, 2.0)
    for factor in (1, 2):
        trace = alternate(problem, problem.centre, np.array([[0.2]]), factor)
        pulled = 0.2 * factor * 0.5  # u = (pulled, 1 - pulled)
        tie = 2.0 / 0.2
        np.testing.assert_allclose(
            trace.last[0, :, 0], [tie * pulled / (1 + tie), (3 + tie * (1 - pulled)) / (3 + tie)]
        )
        assert trace.value[0, 0] == pytest.approx(2 * 0.5)  # F = 0, lambda A(1)
        assert trace.gradient[0, 0] == pytest.approx(2 * 2.0**2)  # lambda (w_i - w_j) for both
        assert trace.bound[0, 0] == pytest.approx(np.sqrt(8))


def test_the_fixed_point_is_the_minimum_only_with_the_factor() -> None:
    problem = _problem(root(0.1))
    best = minimise(problem, problem.centre)
    assert np.abs(problem.gradient(best)).max() < 1e-12
    steps = np.full((1, 3_000), 0.05)
    np.testing.assert_allclose(alternate(problem, problem.centre, steps, 2).last[0], best, atol=1e-10)
    half = Problem(problem.centre, problem.curvature, problem.attention, problem.weight / 2)
    settled = alternate(problem, problem.centre, steps, 1).last[0]
    np.testing.assert_allclose(settled, minimise(half, problem.centre), atol=1e-10)
    assert problem.value(settled) > problem.value(best) + 1e-3


def test_several_step_sizes_equal_one_by_one() -> None:
    problem = _problem(exponential(2.0))
    alphas = np.stack([np.full(30, 0.1), decreasing(0.5, 30)[0]])
    both = alternate(problem, problem.centre, alphas, 2)
    for run in (0, 1):
        one = alternate(problem, problem.centre, alphas[run : run + 1], 2)
        np.testing.assert_allclose(both.value[run], one.value[0])
        np.testing.assert_allclose(both.gradient[run], one.gradient[0])
    last = both.last[1]
    assert both.value[1, -1] == pytest.approx(float(problem.value(last)))
    assert both.gradient[1, -1] == pytest.approx(float((problem.gradient(last) ** 2).sum()))


def test_schedule() -> None:
    np.testing.assert_allclose(decreasing(6, 3), [[6, 3, 2]])
    np.testing.assert_allclose(decreasing(8, 4, 0.75)[0, 3], 8 / 4**0.75)


def test_where_the_exponential_is_convex() -> None:
    """Two clients on a line: (2 / sigma) (1 - 2 x / sigma) exp(-x / sigma) changes its sign at x = sigma / 2."""
    problem = Problem(np.zeros((2, 1)), np.ones((2, 1)), exponential(2.0), 1.0)

    def least(x: float) -> float:
        return convexity(problem, np.array([[[0.0], [np.sqrt(x)]]]))

    assert least(0.99) > -1e-12
    assert least(1.01) < -1e-3
    for x in (0.0, 1.0, 100.0):
        assert convexity(Problem(np.zeros((2, 1)), np.ones((2, 1)), root(0.1), 1.0), np.array([[[0.0], [x]]])) > -1e-12


def test_theorem_1() -> None:
    finding = check_convex(Settings(seed=0))
    assert finding.holds
    assert not finding.printed_holds
    gaps, bounds = np.array(finding.curves["corrected"]), np.array(finding.curves["bound"])
    assert (gaps <= bounds).all()
    np.testing.assert_allclose(bounds[-1] * 100, bounds[0], rtol=0.2)  # 1 / sqrt(K), up to B
    assert "as printed the bound is broken" in finding.tables[0].rows[-1].verdict


def test_theorem_2() -> None:
    finding = check_smooth(Settings(seed=0))
    assert finding.holds
    assert not finding.printed_holds
    (slope,) = finding.tables[1].rows
    assert slope.corrected is not None
    assert slope.printed is not None
    assert slope.corrected < -0.5 < slope.printed
    assert (np.array(finding.curves["corrected"]) <= np.array(finding.curves["bound"])).all()
