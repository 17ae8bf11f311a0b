"""Floors over several data seeds, for all clients, those in training and the novel ones."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np

from panacea.data.federation import Federation
from panacea.evaluation.floors import Floor
from panacea.evaluation.metrics import mean, spread

__all__ = ["FLOOR_GROUPS", "client_floors", "floor_rows"]

FLOOR_GROUPS = ("all", "training", "novel")


def floor_rows(runs: Sequence[tuple[Federation, Sequence[Floor]]]) -> list[dict[str, Any]]:
    """A row per floor: name, meaning, and for each group of clients its numbers.

    `mean` is over clients and then over seeds, `std` the spread over clients averaged over seeds, `std_seeds` that of
    the seeds' means (None for one seed); a group without clients is None.

    Args:
        runs: a federation and its floors per data seed.
    """
    names = [(floor.name, floor.meaning) for floor in runs[0][1]]
    return [
        {"name": name, "meaning": meaning} | {group: _numbers(runs, place, group) for group in FLOOR_GROUPS}
        for place, (name, meaning) in enumerate(names)
    ]


def _numbers(runs: Sequence[tuple[Federation, Sequence[Floor]]], place: int, group: str) -> dict[str, Any] | None:
    values = [floors[place].metric[_ids(federation, group)] for federation, floors in runs]
    means = [mean(one) for one in values if not math.isnan(mean(one))]
    if not means:
        return None
    return {
        "mean": statistics.fmean(means),
        "std": statistics.fmean(spread(one) for one in values if not math.isnan(spread(one))),
        "std_seeds": statistics.stdev(means) if len(means) > 1 else None,
        "clients": len(values[0]),
    }


def _ids(federation: Federation, group: str) -> Any:
    if group == "all":
        return slice(None)
    return federation.train_ids if group == "training" else federation.novel_ids


def client_floors(
    runs: Sequence[tuple[Federation, Sequence[Floor]]], seeds: Sequence[int]
) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Header and rows of a table with every client's values: one row per seed and client."""
    header = ("seed", "client", "name", "novel", "n_test", *(floor.name for floor in runs[0][1]))
    rows = []
    for seed, (federation, floors) in zip(seeds, runs, strict=True):
        columns = np.array([floor.metric for floor in floors]).T
        tested = federation.counts("test")
        for i, values in enumerate(columns.tolist()):
            rows.append((seed, i, federation.names[i], int(federation.novel[i]), int(tested[i]), *values))
    return header, rows
