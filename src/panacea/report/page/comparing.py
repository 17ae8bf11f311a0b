"""Is the difference real? Intervals of means, and tests between every two series."""

from __future__ import annotations

import itertools

import numpy as np

from panacea.evaluation.statistics import PairedTest, bootstrap_interval, holm, paired_test
from panacea.report.page.reading import Floats
from panacea.report.page.series import Series, Suite
from panacea.report.page.tables import PageTable

__all__ = ["intervals", "paired_metrics", "pairs_table"]

_MOST = 12  # series; more have hundreds of pairs, and a correction for so many leaves nothing


def intervals(suite: Suite) -> list[tuple[float, float] | None]:
    """A 95 % bootstrap interval of every series' mean over clients and seeds; None where nothing can be resampled."""
    bounds = (0.0, 100.0) if suite.higher_is_better else (0.0, float("inf"))
    return [
        bootstrap_interval([run.columns["metric"][run.counted] for run in one.runs], bounds=bounds)
        for one in suite.series
    ]


def paired_metrics(first: Series, second: Series) -> tuple[Floats, Floats]:
    """The metric of the clients that count in both, client by client of the same data seed."""
    pairs: list[tuple[Floats, Floats]] = []
    for run in first.runs:
        seed = run.config.get("data.seed", run.seed)
        other = next((one for one in second.runs if one.config.get("data.seed", one.seed) == seed), None)
        if other is not None and other.names == run.names:
            both = run.counted & other.counted
            pairs.append((run.columns["metric"][both], other.columns["metric"][both]))
    if not pairs:
        return np.zeros(0), np.zeros(0)
    return np.concatenate([one for one, _ in pairs]), np.concatenate([one for _, one in pairs])


def pairs_table(suite: Suite) -> PageTable | None:
    """Wilcoxon's signed-rank test between every two series; None where there is nothing to test."""
    if not 2 <= len(suite.series) <= _MOST:
        return None
    found: list[tuple[Series, Series, PairedTest]] = []
    for first, second in itertools.combinations(suite.series, 2):
        test = paired_test(*paired_metrics(first, second))
        if test is not None:
            found.append((first, second, test))
    if not found:
        return None
    corrected = holm([test.p for _, _, test in found])
    rows = [
        (f"{first.label} / {second.label}", _difference(test.median), f"{test.effect:+.2f}", str(test.pairs),
         str(test.zeros), _p(test.p), _p(p), _verdict(suite, first, second, test, p))
        for (first, second, test), p in zip(found, corrected, strict=True)
    ]  # fmt: skip
    raw = [
        (row[0], test.median, test.effect, test.pairs, test.zeros, test.p, p, row[-1])
        for row, (_, _, test), p in zip(rows, found, corrected, strict=True)
    ]
    header = ("pair", "median difference", "effect", "pairs", "ties", "p", "p (Holm)", "better at 5 %")
    note = (
        "Two-sided Wilcoxon signed-rank test over clients, paired by data seed and client; ties are left out. "
        "Difference: first minus second. Effect: matched-pairs rank-biserial correlation, from -1 to 1. "
        "Holm: corrected for all pairs of this table."
    )
    return PageTable(f"{suite.title}: tests between methods", note, header, tuple(rows), tuple(raw), {})


def _difference(value: float) -> str:
    return f"{value:+.2f}" if abs(value) >= 1 or value == 0 else f"{value:+.3g}"


def _p(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else f"{value:.1e}"


def _verdict(suite: Suite, first: Series, second: Series, test: PairedTest, p: float) -> str:
    """Which of the two, if any."""
    if test.few:
        return "too few differ"
    if p >= 0.05 or test.effect == 0:
        return "neither"
    return first.label if (test.effect > 0) == suite.higher_is_better else second.label
