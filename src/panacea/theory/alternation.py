r"""FedAMP's alternation on quadratic clients, in closed form and for many step sizes at once.

    G(W) = F(W) + lambda A(W),   F = sum_i 1/2 h_i ||w_i - c_i||^2,   A = sum_{i<j} A(||w_i - w_j||^2)
    server:  u_i = w_i - alpha_k s sum_j A'(||w_i - w_j||^2) (w_i - w_j)
    client:  w_i = argmin F_i(w) + lambda / (2 alpha_k) ||w - u_i||^2

s = 2 is a gradient step on A. Eq. (5) of FedAMP prints s = 1, a gradient step on A / 2: with the same alpha_k at the
client the alternation then minimises F + (lambda / 2) A.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from panacea.theory.statement import Floats

__all__ = ["Attention", "Problem", "Trace", "alternate", "decreasing", "exponential", "minimise", "root"]


@dataclass(frozen=True)
class Attention:
    """A(x) of a squared distance with two derivatives."""

    name: str
    value: Callable[[Floats], Floats]
    slope: Callable[[Floats], Floats]
    bend: Callable[[Floats], Floats]


def exponential(sigma: float) -> Attention:
    """A(x) = 1 - exp(-x / sigma), the one FedAMP adopts; convex in w only where x <= sigma / 2."""
    return Attention(
        "1 - exp(-x/sigma)",
        lambda x: np.asarray(-np.expm1(-x / sigma)),
        lambda x: np.exp(-x / sigma) / sigma,
        lambda x: -np.exp(-x / sigma) / sigma**2,
    )


def root(e: float) -> Attention:
    """A(x) = sqrt(x + e) - sqrt(e): concave in x with a finite slope at 0, and convex in w."""
    return Attention(
        "sqrt(x+e) - sqrt(e)",
        lambda x: np.sqrt(x + e) - np.sqrt(e),
        lambda x: np.asarray(0.5 / np.sqrt(x + e)),
        lambda x: np.asarray(-0.25 * (x + e) ** -1.5),
    )


@dataclass(frozen=True)
class Problem:
    """Quadratic clients with an attention function; W is ``[..., clients, d]``."""

    centre: Floats  # [clients, d]
    curvature: Floats  # [clients, 1]
    attention: Attention
    weight: float  # lambda

    def distances(self, W: Floats) -> tuple[Floats, Floats]:
        """w_i - w_j, ``[..., i, j, d]``, and its squared norm."""
        apart = W[..., :, None, :] - W[..., None, :, :]
        return apart, np.asarray(np.einsum("...d,...d->...", apart, apart))

    def penalty(self, W: Floats) -> Floats:
        """A(W)."""
        return np.asarray(0.5 * self.attention.value(self.distances(W)[1]).sum(axis=(-2, -1)))

    def value(self, W: Floats) -> Floats:
        """G(W)."""
        own = 0.5 * (self.curvature * (W - self.centre) ** 2).sum(axis=(-2, -1))
        return np.asarray(own + self.weight * self.penalty(W))

    def pull(self, W: Floats) -> Floats:
        """sum_j A'(||w_i - w_j||^2) (w_i - w_j): half the gradient of A."""
        apart, x = self.distances(W)
        return np.asarray(np.einsum("...ij,...ijd->...id", self.attention.slope(x), apart))

    def gradient(self, W: Floats) -> Floats:
        """Of G."""
        return np.asarray(self.curvature * (W - self.centre) + 2 * self.weight * self.pull(W))

    def penalty_hessian(self, W: Floats) -> Floats:
        """Of A at one W, ``[clients d, clients d]``."""
        apart, x = self.distances(W)
        clients, d = W.shape
        pair = 2 * self.attention.slope(x)[..., None, None] * np.eye(d)
        pair = pair + 4 * self.attention.bend(x)[..., None, None] * (apart[..., :, None] * apart[..., None, :])
        here = np.arange(clients)
        pair[here, here] = 0
        blocks = -pair
        blocks[here, here] = pair.sum(axis=1)
        return blocks.transpose(0, 2, 1, 3).reshape(clients * d, clients * d)


@dataclass(frozen=True)
class Trace:
    """What happened in k = 0 .. steps, ``[runs, steps + 1]`` each."""

    value: Floats  # G(W^k)
    gradient: Floats  # ||grad G(W^k)||^2
    bound: Floats  # max(||grad F(W^k)||, lambda ||grad A(W^k)||), which Assumption 1 bounds by B
    last: Floats  # [runs, clients, d]


def alternate(problem: Problem, start: Floats, alphas: Floats, factor: float) -> Trace:
    """Run the alternation.

    Args:
        problem: what is minimised.
        start: W^0, ``[clients, d]`` or one for each run.
        alphas: alpha_k, ``[runs, steps]``.
        factor: s of the server step, 2 for a gradient step and 1 as printed.
    """
    runs, steps = alphas.shape
    W = np.array(np.broadcast_to(start, (runs, *problem.centre.shape)))
    value, gradient, bound = (np.empty((steps + 1, runs)) for _ in range(3))
    drawn = problem.curvature * problem.centre
    for k in range(steps + 1):
        apart, x = problem.distances(W)
        pull = np.einsum("...ij,...ijd->...id", problem.attention.slope(x), apart)
        own, whole = problem.curvature * (W - problem.centre), 2 * problem.weight * pull
        fit = 0.5 * np.einsum("...id,...id->...", own, W - problem.centre)
        value[k] = fit + 0.5 * problem.weight * problem.attention.value(x).sum(axis=(-2, -1))
        gradient[k] = np.einsum("...id,...id->...", own + whole, own + whole)
        norms = (np.einsum("...id,...id->...", part, part) for part in (own, whole))
        bound[k] = np.sqrt(np.maximum(*norms))
        if k < steps:
            alpha = alphas[:, k, None, None]
            tie = problem.weight / alpha
            W = (drawn + tie * (W - alpha * factor * pull)) / (problem.curvature + tie)
    return Trace(value.T, gradient.T, bound.T, W)


def decreasing(first: float, steps: int, exponent: float = 1.0) -> Floats:
    """alpha_k = first / k^exponent, ``[1, steps]``: sum infinite, sum of squares finite for 1/2 < exponent <= 1."""
    return np.asarray(first / np.arange(1, steps + 1)[None] ** exponent)


def minimise(problem: Problem, start: Floats) -> Floats:
    """A minimum of G near `start` by Newton's method with halved steps, to rounding."""
    W = start
    clients, d = W.shape
    own = np.diag(np.repeat(problem.curvature.ravel(), d))
    for _ in range(200):
        slope = problem.gradient(W).ravel()
        if np.abs(slope).max() < 1e-13:
            break
        move = np.linalg.solve(own + problem.weight * problem.penalty_hessian(W), slope).reshape(clients, d)
        size = 1.0
        while size > 1e-10 and problem.value(W - size * move) > problem.value(W):
            size /= 2
        W = W - size * move
    return W
