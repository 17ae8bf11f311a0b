"""The comparison table: one row per method from the summaries of its runs."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = ["TABLE_COLUMNS", "comparison_rows", "data_title"]

TABLE_COLUMNS = (
    "method", "seeds", "mean", "std_clients", "std_seeds", "final_mean", "worst_decile", "novel_mean", "novel_std",
    "rounds_per_second",
)  # fmt: skip


def data_title(summary: Mapping[str, Any]) -> str:
    """The data set of a run and, where it is not all of it, what part it is.

    >>> data_title({"data": "metr_la", "partial": "PARTIAL 29 of 207 sensors"})
    'metr_la (PARTIAL 29 of 207 sensors)'
    """
    return f"{summary['data']} ({summary['partial']})" if summary.get("partial") else str(summary["data"])


def comparison_rows(summaries: Iterable[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Rows in the order of `TABLE_COLUMNS`; methods in the order of their first run.

    `mean` is over clients and then over seeds, at the round each run chose on validation data; `std_clients` is the
    spread over clients averaged over seeds, `std_seeds` the spread of the runs' means.
    """
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for summary in summaries:
        groups.setdefault(str(summary["method"]), []).append(summary)
    return [_row(method, runs) for method, runs in groups.items()]


def _row(method: str, runs: Sequence[Mapping[str, Any]]) -> tuple[Any, ...]:
    def average(key: str) -> float | None:
        known = [run[key] for run in runs if run[key] is not None]
        return statistics.fmean(known) if known else None

    means = [run["mean"] for run in runs if run["mean"] is not None]
    between = statistics.stdev(means) if len(means) > 1 else None
    columns = ("final_mean", "worst_decile", "novel_mean", "novel_std", "rounds_per_second")
    return (method, len(runs), average("mean"), average("std"), between, *(average(c) for c in columns))
