r"""Theorem 3.2: the risk of pFedHN when m of n clients send no gradient.

Theta* = W* V*, all entries N(0, 1). Unattacked clients are learned exactly; an attacked one keeps its initial
embedding v_i ~ N(0, I), which the learned W turns into a model.

Printed:    E R = 2 d k m / n, with W = W* up to an orthogonal transform.
Corrected:  from the unattacked clients W is learned only up to an *invertible* R, W = W* R, and

                E R = (d m / n) (k + ||R||_F^2),

            since E ||W*(v* - R v)||^2 = d (E ||v*||^2 + E ||R v||^2). ||R||_F^2 = k for an orthogonal R. Where R comes
            out of training and is not independent of W*, the second term is (m / n) E ||W||_F^2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from panacea.theory.operators import squared
from panacea.theory.statement import Finding, Floats, Row, Settings, Table, compare, estimate

__all__ = ["absence_risk", "batches", "check_absence", "learn", "learned_risk"]

_N, _D, _K, _M = 12, 20, 3, 4
_NETWORKS = 400  # trained for the last rows


def batches(trials: int, size: int = 4_000) -> Iterator[int]:
    """Sizes of the batches in which trials are drawn.

    >>> list(batches(9, 4))
    [4, 4, 1]
    """
    for start in range(0, trials, size):
        yield min(size, trials - start)


def absence_risk(R: Floats, n: int, d: int, m: int) -> float:
    """(d m / n) (k + ||R||_F^2)."""
    return d * m / n * (len(R) + float(squared(R)))


def simulate(R: Floats, trials: int, stream: np.random.Generator) -> Floats:
    """R(Theta) of every trial: the unattacked columns of V are exact, the others are R v with v as at the start."""
    risks = []
    for size in batches(trials):
        W = stream.standard_normal((size, _D, _K))
        truth = stream.standard_normal((size, _K, _N))
        learned = truth.copy()
        learned[:, :, :_M] = R @ stream.standard_normal((size, _K, _M))
        risks.append(squared(W @ (truth - learned)) / _N)
    return np.concatenate(risks)


@dataclass(frozen=True)
class Learned:
    """What gradient descent found, for every network that got the unattacked clients right."""

    risk: Floats  # over all clients
    size: Floats  # ||W||_F^2
    R: Floats  # W = W* R


def learn(networks: int, start: float, stream: np.random.Generator, steps: int = 3_000) -> Learned:
    """Gradient descent on W and V with the unattacked clients only; V starts at N(0, 1), W at `start` times that."""
    truth = stream.standard_normal((networks, _D, _K))
    target = truth @ stream.standard_normal((networks, _K, _N))
    W, V = start * stream.standard_normal((networks, _D, _K)), stream.standard_normal((networks, _K, _N))
    step = 0.4 / np.linalg.norm(target, ord=2, axis=(1, 2), keepdims=True)
    here = V[:, :, _M:]
    for _ in range(steps):
        wrong = W @ here - target[:, :, _M:]
        W, here = W - step * (wrong @ np.swapaxes(here, 1, 2)), here - step * (np.swapaxes(W, 1, 2) @ wrong)
        if squared(wrong).max() < 1e-16:
            break
    wrong = target - W @ np.concatenate([V[:, :, :_M], here], axis=2)
    done = squared(wrong[:, :, _M:]) < 1e-6
    return Learned(squared(wrong)[done] / _N, squared(W)[done], (np.linalg.pinv(truth) @ W)[done])


def check_absence(settings: Settings) -> Finding:
    """Theorem 3.2 with orthogonal, invertible and learned transforms."""
    stream = settings.stream("absence")
    turn = np.linalg.qr(stream.standard_normal((_K, _K)))[0]
    transforms = {
        "R = I": np.eye(_K),
        "R orthogonal": turn,
        "R = diag(1/2, 1, 2)": np.diag([0.5, 1.0, 2.0]),
        "R = 2 orthogonal": 2 * turn,
        "R Gaussian, drawn once": stream.standard_normal((_K, _K)),
    }
    printed = 2 * _D * _K * _M / _N
    rows = [
        compare(name, printed, absence_risk(R, _N, _D, _M), simulate(R, settings.trials, stream))
        for name, R in transforms.items()
    ]
    found = {start: learn(_NETWORKS, start, stream) for start in (1.0, 0.1)}
    rows += [
        compare(f"R learned, W from {start:g} N(0, 1)", printed, learned_risk(networks), networks.risk)
        for start, networks in found.items()
    ]
    return Finding(
        "theorem-3.2",
        "Theorem 3.2: pFedHN's risk with m absent clients is 2 d k m / n",
        "Right if W is learned up to an orthogonal transform; nothing in the problem makes it orthogonal, and what "
        "gradient descent finds is not, so the second half of the risk depends on where W starts.",
        [
            Table(
                f"risk, n={_N}, d={_D}, k={_K}, m={_M}", rows, {"printed": "printed 2dk m/n", "measured": "Monte-Carlo"}
            ),
            Table(
                "is the learned R orthogonal? mean ||R'R - I||_F",
                [_orthogonality(f"W from {start:g} N(0, 1)", networks.R) for start, networks in found.items()],
                {"printed": "printed: orthogonal", "measured": "found", "reference": "smallest singular value of R"},
            ),
        ],
    )


def learned_risk(found: Learned) -> float:
    """The expectation over the attacked clients' embeddings, which training never touches."""
    return _M / _N * (_D * _K + float(found.size.mean()))


def _orthogonality(case: str, R: Floats) -> Row:
    mean, error = estimate(np.sqrt(squared(np.swapaxes(R, 1, 2) @ R - np.eye(_K))))
    smallest = float(np.linalg.svd(R, compute_uv=False).min())
    orthogonal, invertible = mean < 1e-6, smallest > 1e-6
    verdict = "orthogonal" if orthogonal else "invertible, not orthogonal" if invertible else "NOT EVEN INVERTIBLE"
    return Row(case, 0.0, None, mean, error, smallest, orthogonal, invertible, verdict)
