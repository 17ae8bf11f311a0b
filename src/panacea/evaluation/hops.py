"""Damage by distance: how far every client is from the nearest attacker on the relation graph.

The distance of client i from the attackers A is the number of links on the shortest way from any of A to i; 0 for an
attacker, infinite where there is no way. Weights do not count. In a directed graph a way leads from a client to those
that listen to it, because that is how far a lie can travel.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from panacea.evaluation.metrics import mean, spread
from panacea.graphs import ClientGraph

__all__ = ["HopRow", "damage_by_hops", "hop_distances"]

Floats = npt.NDArray[np.float64]


def hop_distances(graph: ClientGraph, attackers: npt.NDArray[np.bool_]) -> Floats:
    """``[clients]``: hops from the nearest attacker.

    >>> path, _ = ClientGraph.from_edges(4, [(0, 1), (1, 2)])
    >>> hop_distances(path, np.array([True, False, False, False]))
    array([ 0.,  1.,  2., inf])
    """
    sources, targets, _ = graph.arcs()
    hops, newest, step = np.where(attackers, 0.0, np.inf), attackers, 0
    while newest.any():
        step += 1
        reached = np.zeros(graph.n, np.bool_)
        reached[targets[newest[sources]]] = True
        newest = reached & np.isinf(hops)
        hops[newest] = step
    return hops


@dataclass(frozen=True)
class HopRow:
    """Clients at one distance: how many, their metric, and that of the same clients without attack (NaN: not known)."""

    hops: float
    clients: int
    mean: float
    std: float
    clean_mean: float
    clean_std: float

    @property
    def change(self) -> float:
        """The metric under attack minus that without; NaN where that is not known."""
        return self.mean - self.clean_mean


def damage_by_hops(hops: Floats, metric: Floats, clean: Floats | None = None) -> list[HopRow]:
    """A row per distance, the nearest first; clients without a metric do not count.

    Args:
        hops: ``[clients]`` see `hop_distances`.
        metric: ``[clients]``.
        clean: ``[clients]`` the metric of the run without attack.
    """
    clean = np.full(len(metric), np.nan) if clean is None else clean
    rows = []
    for distance in np.unique(hops[~np.isnan(metric)]):
        at = (hops == distance) & ~np.isnan(metric)
        values = [number(part[at]) for part in (metric, clean) for number in (mean, spread)]
        rows.append(HopRow(float(distance), int(at.sum()), *values))
    return rows
