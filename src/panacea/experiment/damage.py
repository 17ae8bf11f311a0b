"""What an attack did to whom: distances from the attackers, and the same clients in the run without attack."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from panacea.evaluation.hops import HopRow, damage_by_hops, hop_distances
from panacea.experiment.config import Section
from panacea.experiment.experiment import Experiment
from panacea.experiment.rundir import RunDirectory

__all__ = ["clean_metrics", "client_hops", "hop_cell", "hop_rows"]

Floats = npt.NDArray[np.float64]


def client_hops(experiment: Experiment) -> Floats | None:
    """``[clients]`` hops from the nearest attacker; None without attackers or without a graph."""
    graph = experiment.federation.graph
    return None if experiment.attackers is None or graph is None else hop_distances(graph, experiment.malicious)


def hop_cell(hops: Floats | None, client: int) -> float | None:
    """A client's distance in a table: a whole number, infinity, or nothing."""
    if hops is None:
        return None
    return int(hops[client]) if math.isfinite(hops[client]) else math.inf


def _clean_directories(experiment: Experiment, directory: RunDirectory) -> Iterator[RunDirectory]:
    """Where a run lies that differs from this one only in that nobody attacks: `attack=none`, or a ratio of 0."""
    attack = experiment.config.attack
    nobody = Section(name=attack.name, keys={**attack.keys, "ratio": 0.0, "clients": None})
    for section in (Section(name="none"), nobody):
        config = experiment.config.model_copy(update={"attack": section, "out": directory.path.parent})
        yield RunDirectory.of(config, experiment.method.name)


def clean_metrics(experiment: Experiment, directory: RunDirectory) -> Floats | None:
    """``[clients]`` the metric of every client in the same run without attack, if it lies beside this one."""
    for clean in _clean_directories(experiment, directory):
        if clean.finished and clean.clients.exists():
            with clean.clients.open(encoding="utf-8", newline="") as file:
                cells = [row["metric"] for row in csv.DictReader(file)]
            if len(cells) == len(experiment.federation):
                return np.array([float(cell or "nan") for cell in cells])
    return None


def hop_rows(experiment: Experiment, directory: RunDirectory) -> dict[str, list[HopRow]]:
    """Rows by distance for honest training clients and for novel ones; empty without attackers or without a graph.

    Metrics are those of the chosen round, as in `clients.csv`; those of the clean run are of its own chosen round.
    """
    hops, selected = client_hops(experiment), experiment.history.selected
    if hops is None or selected is None:
        return {}
    federation, clean = experiment.federation, clean_metrics(experiment, directory)

    def rows(ids: npt.NDArray[Any], metric: Floats) -> list[HopRow]:
        return damage_by_hops(hops[ids], metric, None if clean is None else clean[ids])

    honest = experiment.history.honest
    found = {
        "training": rows(federation.train_ids[honest], selected.test.metric[honest]),
        "novel": rows(federation.novel_ids, selected.novel.metric),
    }
    return {who: some for who, some in found.items() if some}
