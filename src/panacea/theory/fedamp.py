r"""FedAMP's convergence theorems, on quadratic clients.

Theorem 1, printed: F and A convex, alpha_k = lambda / sqrt(K):  min_k G(W^k) - G* <= (||W0 - W*||^2 + 5 B^2) / sqrt(K).
Theorem 2, printed: gradients Lipschitz with modulus L:  min_k ||grad G||^2 <= 18 (G(W0) - G* + 20 L B^2) / sqrt(K) + O(1/K).
Both: with sum alpha_k infinite and sum alpha_k^2 finite, G(W^k) comes near G* (the gradient near 0) again and again.

Corrected:  the server step needs the factor 2 of the derivative of ||w_i - w_j||^2, which Eq. (5) leaves out. Without
            it the alternation settles at a minimum of F + (lambda / 2) A, and G - G* does not vanish.
            The adopted A(x) = 1 - exp(-x / sigma) is convex in W only where all ||w_i - w_j||^2 <= sigma / 2, so that
            Theorem 1 is about other functions, such as sqrt(x + e) - sqrt(e).
"""

from __future__ import annotations

import numpy as np

from panacea.theory.alternation import Attention, Problem, alternate, decreasing, exponential, minimise, root
from panacea.theory.statement import Finding, Floats, Row, Settings, Table

__all__ = ["check_convex", "check_smooth", "convexity", "problem_of"]

_CLIENTS, _DIMENSION = 6, 4
_ROUNDS = (1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000)
_SHOWN = (1, 10, 100, 1_000, 10_000)
_SIGMA = 8.0


def problem_of(attention: Attention, weight: float, curvature: float, spread: float, stream: np.random.Generator) -> Problem:
    """Six quadratic clients in four dimensions, centres N(0, spread^2), curvatures from half to one and a half."""
    centre = spread * stream.standard_normal((_CLIENTS, _DIMENSION))
    return Problem(centre, curvature * np.linspace(0.5, 1.5, _CLIENTS)[:, None], attention, weight)


def _constant(weight: float) -> Floats:
    """alpha_k = lambda / sqrt(K) for every K of the table, ``[K values, largest K]``."""
    return np.repeat(weight / np.sqrt(np.array(_ROUNDS, float))[:, None], _ROUNDS[-1], axis=1)


def _least(trace: Floats) -> list[float]:
    """min over k <= K for every K of the table, each in its own run."""
    return [float(trace[run, : rounds + 1].min()) for run, rounds in enumerate(_ROUNDS)]


def _most(trace: Floats) -> list[float]:
    return [float(trace[run, : rounds + 1].max()) for run, rounds in enumerate(_ROUNDS)]


def convexity(problem: Problem, points: Floats) -> float:
    """Smallest eigenvalue of the Hessian of A over some W, ``[points, clients, d]``."""
    return min(float(np.linalg.eigvalsh(problem.penalty_hessian(W)).min()) for W in points)
