r"""Remark 1: Panacea's risk is at most pFedHN's, whatever the graph.

Printed:    (2 d k / n) r <= 2 d k m / n, by Lemma III.4, with rows of Gtil summing to one.
Corrected:  with columns summing to one, and with the risks that each model really has:

    Check A (independent clients):   2 r <= sum_{i<=m} (1 + ||g_i||^2), since r <= sum ||g_i||^2 and ||g_i||^2 <= 1
    Check B (V* G = V*):             r + tr(M^T C M) <= 2 m, C = ones within components: on all small graphs and on
                                     random ones, but not always

In Check B the term of client i is (1 - sum of x_i)^2 in a connected graph, x_i the coefficients by which the unattacked
columns stand in for g_i. Two layers on hubs with many leaves make that sum larger than 2: the network extrapolates, and
an attacked hub ends further from the truth than where it started.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from panacea.theory.operators import (
    all_graphs,
    by_columns,
    by_rows,
    component_ones,
    connected,
    hubs,
    power,
    random_graphs,
    remainder,
    squared,
)
from panacea.theory.recovery import simulate
from panacea.theory.statement import Finding, Floats, Row, Settings, Table, compare

__all__ = ["check_ordering", "quotient_a", "quotient_b", "quotient_printed"]

_ROUNDING = 1e-9
_LAYERS = (1, 2, 3)
_D, _K = 20, 3
_HUBS = ((200, 3, 1), (78, 3, 2), (79, 3, 2), (200, 3, 2), (200, 3, 3))  # clients, hubs, layers
_RANDOM = {6: 1_000, 9: 800, 12: 700, 20: 500}  # clients: graphs


def quotient_printed(graph: Floats, m: int, layers: int) -> Floats:
    """The printed order: r / m with rows that sum to one."""
    return squared(remainder(power(by_rows(graph), layers), m)) / m


def quotient_a(graph: Floats, m: int, layers: int) -> Floats:
    """Panacea's risk over pFedHN's, independent clients."""
    G = power(by_columns(graph), layers)
    return np.asarray(2 * squared(remainder(G, m)) / (m + squared(G[..., :, :m])))


def quotient_b(graph: Floats, m: int, layers: int) -> Floats:
    """Panacea's risk over pFedHN's, clients of a component alike."""
    M = remainder(power(by_columns(graph), layers), m)
    return np.asarray((squared(M) + np.einsum("...ia,...ij,...ja->...", M, component_ones(graph), M)) / (2 * m))


Quotient = Callable[[Floats, int, int], Floats]


def _largest(quotient: Quotient, families: Iterable[tuple[Floats, list[int]]]) -> float:
    return max(
        float(quotient(graphs, m, layers).max())
        for graphs, attacked in families
        for m in attacked
        for layers in _LAYERS
    )


def check_ordering(settings: Settings) -> Finding:
    """The order on every small graph, on random ones and on hubs with leaves."""
    stream = settings.stream("ordering")
    some = {n: sorted({1, n // 4, n // 2, n - 1}) for n in _RANDOM}
    small = [all_graphs(n) for n in range(2, settings.search + 1)]
    random = [random_graphs(stream, count, n) for n, count in _RANDOM.items()]
    families: dict[str, list[tuple[Floats, list[int]]]] = {
        f"all graphs, n <= {settings.search}": [(graphs, list(range(1, graphs.shape[-1]))) for graphs in small],
        f"connected graphs, n <= {settings.search}": [
            (connected(graphs), list(range(1, graphs.shape[-1]))) for graphs in small
        ],
        f"{sum(_RANDOM.values())} random graphs, n = 6..20": [(graphs, some[graphs.shape[-1]]) for graphs in random],
        "1 to 3 hubs, n <= 60": [(hubs(n, h), [h]) for n in (10, 20, 30, 60) for h in (1, 2, 3)],
    }
    rows = []
    for family, graphs in families.items():
        printed = _largest(quotient_printed, graphs)
        for check, quotient in (("A", quotient_a), ("B", quotient_b)):
            rows.append(_row(f"Check {check}, {family}", printed, _largest(quotient, graphs)))
    headings = {
        "printed": "r / m, rows to one (printed)",
        "corrected": "quotient, columns to one",
        "reference": "bound",
    }
    return Finding(
        "ordering",
        "Remark 1: Panacea's risk is at most pFedHN's",
        "With columns that sum to one the order is a theorem in Check A; in Check B it holds on every small or random "
        "graph tried, but two layers on hubs with many leaves break it.",
        [
            Table("largest risk of Panacea / risk of pFedHN, L = 1, 2, 3", rows, headings),
            Table(
                "Check B, hubs attacked: risk of Panacea / risk of pFedHN",
                [_hub_row(settings, n, h, layers) for n, h, layers in _HUBS],
                {
                    "printed": "r / m (printed)",
                    "corrected": "corrected",
                    "measured": "Monte-Carlo",
                    "reference": "bound",
                },
            ),
        ],
        _curves(),
    )


def _curves() -> dict[str, list[float]]:
    sizes = (5, 10, 20, 40, 60, 80, 100, 140, 180, 220, 260, 300)
    curves = {f"L={layers}": [float(quotient_b(hubs(n, 3), 3, layers)) for n in sizes] for layers in _LAYERS}
    return {"n": [float(n) for n in sizes], **curves}


def _hub_row(settings: Settings, n: int, h: int, layers: int) -> Row:
    """The quotient on hubs with leaves, simulated too: a counter-example counts only if it is seen."""
    graph = hubs(n, h)
    G = power(by_columns(graph), layers)
    stream = settings.stream(f"ordering {n} {h} {layers}")
    trials = max(100, settings.trials // 20)  # of n clients each
    risks, _ = simulate(G, h, _D, _K, component_ones(graph), trials, stream)
    printed, corrected = float(squared(remainder(G, h))) / h, float(quotient_b(graph, h, layers))
    row = compare(f"{h} hubs, {n - h} leaves, L={layers}", printed, corrected, risks / (2 * _D * _K * h / n), 1.0)
    if not row.holds:
        return row
    words = f"order broken: {corrected:.2f}x pFedHN's risk" if corrected > 1 + _ROUNDING else "order holds"
    return replace(row, verdict=words, printed_holds=corrected <= 1 + _ROUNDING)


def _row(case: str, printed: float, corrected: float) -> Row:
    printed_holds, holds = printed <= 1 + _ROUNDING, corrected <= 1 + _ROUNDING
    if not holds:
        verdict = f"THE ORDER IS BROKEN: {corrected:.3f}"
    elif printed_holds:
        verdict = "holds"
    else:
        verdict = f"printed order is broken: {printed:.2f} > 1; holds when transposed"
    return Row(case, printed, corrected, None, None, 1.0, printed_holds, holds, verdict)
