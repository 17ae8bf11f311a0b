r"""Lemma III.4: 0 <= r(G, m) <= m, where r is the part of the attacked columns outside the span of the others.

Printed:    for G = Gtil^L with *rows* summing to one, by "columns sum to one by definition" (Property III.2).
Corrected:  for columns summing to one. Then g_i >= 0 sums to one, so ||g_i||^2 <= 1, and a projection shortens:
            r <= sum_{i<=m} ||g_i||^2 <= m. Rows summing to one bound no column: a hub among n - h leaves has a column
            of about n / (h + 1)^2, and r exceeds m.
"""

from __future__ import annotations

import numpy as np

from panacea.theory.named import fl60_graph, tpt48_graph
from panacea.theory.operators import (
    all_graphs,
    by_columns,
    by_rows,
    clique,
    connected,
    hubs,
    power,
    random_graphs,
    remainder,
    squared,
)
from panacea.theory.statement import Finding, Floats, Row, Settings, Table

__all__ = ["check_lemma", "largest", "ratio"]

_ROUNDING = 1e-9
_LAYERS = (1, 2, 3)
_BLOCK = 4_096


def ratio(graph: Floats, m: int, layers: int, *, rows: bool) -> Floats:
    """r(G, m) / m of one graph or of many."""
    G = power(by_rows(graph) if rows else by_columns(graph), layers)
    return squared(remainder(G, m)) / m


def largest(graphs: Floats) -> tuple[float, float]:
    """Largest r/m over many graphs, all m and L = 1 .. 3: with rows and with columns that sum to one."""
    worst = [0.0, 0.0]
    for start in range(0, len(graphs), _BLOCK):
        for place, normalised in enumerate((by_rows, by_columns)):
            step = normalised(graphs[start : start + _BLOCK])
            for G in (power(step, layers) for layers in _LAYERS):
                found = (float((squared(remainder(G, m)) / m).max()) for m in range(1, graphs.shape[-1]))
                worst[place] = max(worst[place], *found)
    return worst[0], worst[1]


def _bounded(case: str, by_row: float, by_column: float) -> Row:
    printed_holds, holds = by_row <= 1 + _ROUNDING, -_ROUNDING <= by_column <= 1 + _ROUNDING
    if not holds:
        verdict = f"CORRECTED LEMMA FAILS: r = {by_column:.3f} m"
    elif not printed_holds:
        verdict = f"counter-example to the printed lemma: r = {by_row:.3f} m"
    elif abs(by_column - 1) < _ROUNDING:
        verdict = "holds with equality, r = m"
    elif by_column < 1e-20:
        verdict = "holds with equality, r = 0"
    else:
        verdict = "holds"
    return Row(case, by_row, by_column, None, None, 1.0, printed_holds, holds, verdict)


def check_lemma(settings: Settings) -> Finding:
    """The lemma on named graphs, by search, and the property behind it."""
    fl60 = fl60_graph(settings.seed)
    cases: dict[str, tuple[Floats, int, int]] = {
        f"{h} hubs, {n - h} leaves, hubs attacked": (hubs(n, h), h, 1) for n, h in ((30, 2), (60, 2), (60, 3))
    }
    cases |= {
        "no links, n=12, m=4": (np.zeros((12, 12)), 4, 1),
        "clique, n=12, m=1": (clique(12), 1, 1),
        "clique, n=12, m=11": (clique(12), 11, 1),
        "fl60, 12 attacked, L=1": (fl60, 12, 1),
        "fl60, 12 attacked, L=3": (fl60, 12, 3),
    }
    rows = [
        _bounded(case, float(ratio(graph, m, layers, rows=True)), float(ratio(graph, m, layers, rows=False)))
        for case, (graph, m, layers) in cases.items()
    ]
    searched = []
    for n in range(2, settings.search + 1):
        graphs = all_graphs(n)
        searched.append(_bounded(f"all {len(graphs)} graphs with n={n}", *largest(graphs)))
    linked = connected(graphs)
    searched.append(_bounded(f"the {len(linked)} connected ones with n={n}", *largest(linked)))
    stream = settings.stream("lemma")
    for n in (8, 12):
        linked = connected(random_graphs(stream, 500, n))
        searched.append(_bounded(f"{len(linked)} random connected graphs with n={n}", *largest(linked)))
    headings = {"printed": "rows to one (printed)", "corrected": "columns to one", "reference": "bound"}
    return Finding(
        "lemma",
        "Lemma III.4: 0 <= r <= m",
        "The proof needs columns that sum to one; the matrix as printed has rows that do, and hubs with many leaves "
        "then break the bound, while its transpose keeps it always.",
        [
            Table("r / m", rows, headings),
            Table("largest r / m over all attacked sets and L = 1, 2, 3", searched, headings),
            _sums(fl60),
        ],
        _curves(),
    )


def _sums(fl60: Floats) -> Table:
    """Property III.2: the column sums of Gtil, smallest and largest."""
    rows = []
    for name, graph in (("fl60", fl60), ("tpt48", tpt48_graph()), ("2 hubs, 28 leaves", hubs(30, 2))):
        if graph is None:
            continue
        for word, pick in (("smallest", np.min), ("largest", np.max)):
            printed, corrected = (float(pick(step.sum(axis=0))) for step in (by_rows(graph), by_columns(graph)))
            true, holds = abs(printed - 1) < _ROUNDING, abs(corrected - 1) < _ROUNDING
            verdict = "holds" if true else f"printed property is false: {printed:.2f}, not 1"
            case = f"{name}, {word} column sum"
            rows.append(
                Row(case, printed, corrected, None, None, 1.0, true, holds, verdict if holds else "TRANSPOSE FAILS")
            )
    headings = {"printed": "Gtil as printed", "corrected": "its transpose", "reference": "claimed"}
    return Table("Property III.2: every column of Gtil sums to one", rows, headings)


def _curves() -> dict[str, list[float]]:
    sizes = [*range(4, 20, 2), *range(20, 101, 5)]
    curves: dict[str, list[float]] = {"n": [float(n) for n in sizes]}
    for h in (1, 2, 3):
        for word, rows in (("rows", True), ("columns", False)):
            curves[f"{h} hubs, {word}"] = [
                float(ratio(hubs(n, h), h, 1, rows=rows)) if n > h else np.nan for n in sizes
            ]
    return curves
