r"""Theorem 3.3: the risk of Panacea when m of n clients send no gradient.

V is learned from the columns P = G[:, m:] of the unattacked clients, from V0 ~ N(0, 1):

    Vhat = V0 + (V* - V0) P P^+,   R = (1/n) ||W* (V* - Vhat) G||_F^2,   M = (I - P P^+) Q,   r = ||M||_F^2.

Printed:    E R = (2 d k / n) r.
Corrected:  E R = (d k / n) [r + tr(M^T C M)], C the covariance between clients of a row of V* (ones on the diagonal).

(V* - Vhat) G is (V* - V0) M on the attacked clients and 0 elsewhere. V0 gives d k r / n, V* gives d k tr(M^T C M) / n.
The printed formula is C = I: independent clients. But the assumption V* G = V* leaves only V* that are constant on
connected components, where C is a block of ones.

Check A has independent clients, and the models of the graph by construction: Theta* = W* V* G. Both formulas agree.
There pFedHN, whose attacked clients keep W* v_i, has the risk (d k / n) sum_{i<=m} (1 + ||g_i||^2).
Check B has V* G = V* exactly.
"""

from __future__ import annotations

import numpy as np

from panacea.theory.absence import batches
from panacea.theory.named import check_a_graph
from panacea.theory.operators import (
    by_columns,
    by_rows,
    component_ones,
    path,
    power,
    projection,
    remainder,
    squared,
    star,
)
from panacea.theory.statement import Finding, Floats, Row, Settings, Table, compare

__all__ = ["CHECK_B", "check_recovery", "corrected_risk", "descend", "hypernetwork_risk", "printed_risk", "simulate"]

_D, _K = 20, 3
_SHUFFLED = [0, 1, 6, 7, 2, 3, 4, 5, 8, 9, 10, 11]  # so that each path has two attacked clients at its start


def _two_paths() -> Floats:
    graph = np.zeros((12, 12))
    graph[:6, :6] = graph[6:, 6:] = path(6)
    return graph[np.ix_(_SHUFFLED, _SHUFFLED)]


CHECK_B: dict[str, tuple[Floats, int, int]] = {  # graph, attacked, layers
    "path 8, first 3, L=1": (path(8), 3, 1),
    "path 12, first 6, L=1": (path(12), 6, 1),
    "path 12, first 6, L=2": (path(12), 6, 2),
    "star 8, centre, L=1": (star(8), 1, 1),
    "two paths of 6, first 2 of each, L=1": (_two_paths(), 4, 1),
}


def printed_risk(G: Floats, m: int, d: int, k: int) -> float:
    """(2 d k / n) r."""
    return 2 * d * k / len(G) * float(squared(remainder(G, m)))


def corrected_risk(G: Floats, m: int, d: int, k: int, C: Floats) -> float:
    """(d k / n) [r + tr(M^T C M)]."""
    M = remainder(G, m)
    return d * k / len(G) * float(squared(M) + np.trace(M.T @ C @ M))


def hypernetwork_risk(G: Floats, m: int, d: int, k: int) -> float:
    """PFedHN's risk where Theta* = W* V* G with independent clients: (d k / n) sum_{i<=m} (1 + ||g_i||^2)."""
    return d * k / len(G) * (m + float(squared(G[:, :m])))


def simulate(
    G: Floats, m: int, d: int, k: int, C: Floats, trials: int, stream: np.random.Generator
) -> tuple[Floats, Floats]:
    """Draw W*, V* (rows with covariance C) and V0, learn the unattacked clients, and score Theta* = W* V* G.

    Returns:
        R(Theta) of Panacea and of pFedHN in every trial.
    """
    values, vectors = np.linalg.eigh(C)
    root = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    onto = projection(G[:, m:])
    panacea, pfedhn = [], []
    for size in batches(trials):
        W = stream.standard_normal((size, d, k))
        truth = stream.standard_normal((size, k, len(G))) @ root
        start = stream.standard_normal((size, k, len(G)))
        learned = start + (truth - start) @ onto
        panacea.append(squared(W @ ((truth - learned) @ G)) / len(G))
        pfedhn.append(squared(W @ (truth @ G[:, :m] - start[:, :, :m])) / len(G))
    return np.concatenate(panacea), np.concatenate(pfedhn)


def descend(G: Floats, m: int, d: int, k: int, stream: np.random.Generator, steps: int = 200_000) -> float:
    """Largest entry of V - Vhat after gradient descent on the unattacked clients from V0, with W = W*."""
    W, truth, start = (stream.standard_normal(shape) for shape in ((d, k), (k, len(G)), (k, len(G))))
    P = G[:, m:]
    left, right = W.T @ W, P @ P.T
    left *= 1.8 / (np.linalg.norm(left, ord=2) * np.linalg.norm(right, ord=2))
    V = start.copy()
    for _ in range(steps):
        step = left @ (truth - V) @ right
        V += step
        if np.abs(step).max() < 1e-16:
            break
    return float(np.abs(V - (start + (truth - start) @ projection(P))).max())


def check_recovery(settings: Settings) -> Finding:
    """Theorem 3.3 by Check A and Check B."""
    stream = settings.stream("recovery")
    rows_b = []
    for case, (graph, m, layers) in CHECK_B.items():
        G, C = power(by_columns(graph), layers), component_ones(graph)
        samples, _ = simulate(G, m, _D, _K, C, settings.trials, stream)
        formulas = printed_risk(G, m, _D, _K), corrected_risk(G, m, _D, _K, C)
        rows_b.append(compare(case, *formulas, samples, reference=2 * _D * _K * m / len(G)))
    return Finding(
        "theorem-3.3",
        "Theorem 3.3: Panacea's risk with m absent clients is (2 d k / n) r",
        "The formula needs clients whose embeddings are independent (Check A), but the stated consistency V* G = V* "
        "makes all clients of a connected component equal (Check B), and there the risk is another one.",
        [
            Table("Check A: independent clients, Theta* = W* V* G; n=12, d=20, k=3, m=4, L=2", _check_a(settings)),
            Table(
                f"Check B: V* G = V*; d={_D}, k={_K}",
                rows_b,
                {"printed": "printed (2dk/n) r", "measured": "Monte-Carlo", "reference": "pFedHN 2dk m/n"},
            ),
        ],
    )


def _check_a(settings: Settings) -> list[Row]:
    stream, graph, m = settings.stream("recovery A"), check_a_graph(), 4
    rows = []
    for word, normalised in (("columns", by_columns), ("rows", by_rows)):
        G = power(normalised(graph), 2)
        panacea, pfedhn = simulate(G, m, _D, _K, np.eye(12), settings.trials, stream)
        formulas = printed_risk(G, m, _D, _K), corrected_risk(G, m, _D, _K, np.eye(12))
        rows.append(compare(f"Panacea, G with {word} to one", *formulas, panacea))
        if word == "columns":
            rows.append(compare("pFedHN there", 2 * _D * _K * m / 12, hypernetwork_risk(G, m, _D, _K), pfedhn))
            gap = descend(G, m, _D, _K, stream)
            right = gap < 1e-8
            verdict = "descent ends at Vhat" if right else "DESCENT ENDS ELSEWHERE"
            rows.append(Row("largest |V - Vhat| after descent from V0", 0, 0, gap, None, None, right, right, verdict))
    return rows
