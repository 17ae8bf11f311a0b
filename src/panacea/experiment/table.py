"""What all tables of runs share: titles, averages over runs, numbers as text."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = [
    "attack_title",
    "average",
    "between",
    "data_title",
    "decimals_of",
    "fixed",
    "markdown_table",
    "shown",
]


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


def decimals_of(values: Iterable[float | None]) -> int:
    """The decimals that all numbers of a column are shown with: two, or three digits of the largest if it is below 1.

    >>> decimals_of([0.36, 0.3957]), decimals_of([0.707, 19.09]), decimals_of([0.0012, None]), decimals_of([])
    (3, 2, 5, 2)
    """
    largest = max((abs(value) for value in values if value is not None and math.isfinite(value)), default=0.0)
    return 2 if largest >= 1 or largest == 0 else 2 - math.floor(math.log10(largest))


def fixed(value: float | None, decimals: int) -> str:
    """A number in a column of so many decimals.

    >>> fixed(0.36, 3), fixed(None, 3), fixed(-0.001, 2)
    ('0.360', '-', '0.00')
    """
    return "-" if value is None else f"{round(value, decimals) + 0.0:.{decimals}f}"  # no -0.00


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
