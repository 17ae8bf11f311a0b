"""The numbers of one finished run: keys of its summary, and some that its other files give.

Derived are

    pooled, pooled_novel   sum_i n_i metric_i / sum_i n_i over (novel) clients with n_i test samples: accuracy over the
                           union of their samples, as FedCG reports it
    curve_mean             the mean of the metric over all evaluated rounds: the area under the learning curve
    group_weight           of the weight a client gives to others, the share (%) within its own group, at the end
"""

from __future__ import annotations

import csv
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from panacea.core.files import read_lines
from panacea.experiment.reproduce.entry import Measure

__all__ = ["DERIVED", "client_metrics", "curve", "measured_clients", "taken"]


def taken(measure: Measure, summary: Mapping[str, Any], directory: Path) -> tuple[float | None, float | None]:
    """The number and its standard deviation over clients; None where the run has none."""
    if measure.key in DERIVED:
        return DERIVED[measure.key](directory), None
    value = summary.get(measure.key)
    spread = None if measure.spread is None else summary.get(measure.spread)
    return None if value is None else float(value), None if spread is None else float(spread)


def measured_clients(measure: Measure, summary: Mapping[str, Any]) -> int:
    """How many clients the number is a mean over."""
    if "novel" in measure.key:
        return max(int(summary.get("novel_clients") or 0), 1)
    return max(int(summary.get("clients") or 0) - int(summary.get("attackers") or 0), 1)


def client_metrics(directory: Path, *, novel: bool = False) -> dict[str, float]:
    """The test metric of every honest client by its name, at the round chosen on validation data."""
    return {row["name"]: float(row["metric"]) for row in _clients(directory, novel)}


def curve(directory: Path, key: str = "mean") -> tuple[list[int], list[float]]:
    """Rounds and values of a key of `metrics.jsonl`, where it is known."""
    lines = read_lines(directory / "metrics.jsonl")
    known = [(int(line["round"]), float(line[key])) for line in lines if line.get(key) is not None]
    return [round for round, _ in known], [value for _, value in known]


def _clients(directory: Path, novel: bool) -> list[dict[str, str]]:
    with (directory / "clients.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [r for r in rows if r["novel"] == str(int(novel)) and r["malicious"] == "0" and r["metric"] != ""]


def _pooled(directory: Path, novel: bool) -> float | None:
    rows = [(int(row["n_test"]), float(row["metric"])) for row in _clients(directory, novel)]
    total = sum(count for count, _ in rows)
    return sum(count * metric for count, metric in rows) / total if total else None


def _curve_mean(directory: Path) -> float | None:
    _, values = curve(directory)
    return statistics.fmean(values) if values else None


def _group_weight(directory: Path) -> float | None:
    _, values = curve(directory, "group_weight")
    return 100 * values[-1] if values else None


DERIVED: dict[str, Callable[[Path], float | None]] = {
    "pooled": lambda directory: _pooled(directory, novel=False),
    "pooled_novel": lambda directory: _pooled(directory, novel=True),
    "curve_mean": _curve_mean,
    "group_weight": _group_weight,
}
