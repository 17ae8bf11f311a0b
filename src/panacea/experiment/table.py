"""The comparison table: one row per method from the summaries of its runs."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = [
    "TABLE_COLUMNS",
    "attack_title",
    "average",
    "between",
    "comparison_rows",
    "data_title",
    "markdown_table",
    "shown",
]

_FAIRNESS = ("gini", "jain", "gap")
TABLE_COLUMNS = (
    "method", "seeds", "mean", "std_clients", "std_seeds", "final_mean", "worst_decile", "novel_mean", "novel_std",
    "rounds_per_second", *_FAIRNESS,
)  # fmt: skip


def data_title(summary: Mapping[str, Any]) -> str:
    """The data set of a run and, where it is not all of it, what part it is.

    >>> data_title({"data": "metr_la", "partial": "PARTIAL 29 of 207 sensors"})
    'metr_la (PARTIAL 29 of 207 sensors)'
    """
    return f"{summary['data']} ({summary['partial']})" if summary.get("partial") else str(summary["data"])


def attack_title(summary: Mapping[str, Any]) -> str:
    """What a title adds about attack and defence; nothing where there is neither.

    >>> attack_title({"attack": "alie", "defence": "median", "attackers": 12}), attack_title({"attack": "none"})
    (', attack=alie (12 clients), defence=median', '')
    """
    attack, defence = (str(summary.get(key, "none")) for key in ("attack", "defence"))
    many = f" ({summary.get('attackers', 0)} clients)"
    return (f", attack={attack}{many}" if attack != "none" else "") + (f", defence={defence}" * (defence != "none"))


def comparison_rows(summaries: Iterable[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Rows in the order of `TABLE_COLUMNS`; methods in the order of their first run.

    `mean` is over (honest) clients and then over seeds, at the round each run chose on validation data; `std_clients`
    is the spread over clients averaged over seeds, `std_seeds` the spread of the runs' means.
    """
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for summary in summaries:
        groups.setdefault(str(summary["method"]), []).append(summary)
    return [_row(method, runs) for method, runs in groups.items()]


def _row(method: str, runs: Sequence[Mapping[str, Any]]) -> tuple[Any, ...]:
    columns = ("final_mean", "worst_decile", "novel_mean", "novel_std", "rounds_per_second", *_FAIRNESS)
    seeds = between([run["mean"] for run in runs])
    return (method, len(runs), average(runs, "mean"), average(runs, "std"), seeds, *(average(runs, c) for c in columns))


def average(runs: Iterable[Mapping[str, Any]], key: str) -> float | None:
    """The mean of a number over the runs that have it."""
    known = [run[key] for run in runs if run.get(key) is not None]
    return statistics.fmean(known) if known else None


def between(values: Iterable[float | None]) -> float | None:
    """The standard deviation of known values, as an estimate for other seeds; None of fewer than two."""
    known = [value for value in values if value is not None]
    return statistics.stdev(known) if len(known) > 1 else None


def shown(value: float | None, digits: int = 2) -> str:
    """A number in a table.

    >>> shown(81.254), shown(0.00123456), shown(None), shown(-0.004)
    ('81.25', '0.00123', '-', '-0.004')
    """
    if value is None:
        return "-"
    return f"{value:.{digits}f}" if abs(value) >= 1 or value == 0 else f"{value:.3g}"


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    r"""A table in Markdown.

    >>> print(markdown_table(["a", "b"], [["1|2", "3"]]), end="")
    | a | b |
    | --- | --- |
    | 1\|2 | 3 |
    """
    clean = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    lines = [header, ["---"] * len(header), *clean]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
