"""A relation graph in numbers."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from panacea.core.random import Streams
from panacea.graphs._pairs import number_of_pairs, pair_of
from panacea.graphs.client_graph import ClientGraph

__all__ = ["GraphSummary", "components", "homophily", "summarise"]

_RANK_UP_TO = 2000  # clients
_ALL_PAIRS_UP_TO = 1_000_000  # pairs; above, so many are drawn at random


@dataclass(frozen=True)
class GraphSummary:
    """What `summarise` finds, in the order it is shown.

    Attributes:
        nodes: clients, novel ones included.
        edges: edges; in a directed graph each direction counts.
        directed: whether edges have a direction.
        weighted: whether any weight is not 1.
        density: edges divided by possible edges.
        components: connected parts, directions ignored; an isolated client is one.
        isolated: clients without any neighbour in either direction.
        degree_min: smallest number of neighbours (directed: of clients listened to).
        degree_mean: mean of it.
        degree_max: largest.
        rank: rank of the matrix that averages over a client's neighbours and itself with equal weights; None above
            2,000 clients. Below `nodes`, some differences between clients cannot pass through the graph.
        homophily: how much more alike linked clients' data is than that of random clients; see `homophily`.
        trained: clients that take part in training.
        novel: clients held out of it.
        cut_off: training clients that have neighbours, all of them novel: alone while the novel ones are not there.
    """

    nodes: int
    edges: int
    directed: bool
    weighted: bool
    density: float
    components: int
    isolated: int
    degree_min: int
    degree_mean: float
    degree_max: int
    rank: int | None
    homophily: float | None
    trained: int
    novel: int
    cut_off: int

    def to_dict(self) -> dict[str, bool | int | float | None]:
        """By name, for JSON."""
        return dataclasses.asdict(self)


def summarise(
    graph: ClientGraph,
    profiles: npt.NDArray[np.float64] | None = None,
    novel: npt.NDArray[np.bool_] | None = None,
) -> GraphSummary:
    """The numbers of a graph.

    Args:
        graph: what to describe.
        profiles: a point per client ``[n, d]`` whose distances say how different two clients' data is
            (`panacea.data.profile.client_profiles`); None: homophily is not computed.
        novel: ``[n]`` which clients are held out of training; None: nobody.
    """
    degree = graph.degree
    either = degree if not graph.directed else graph.undirected().degree
    held = np.zeros(graph.n, np.bool_) if novel is None else novel
    left = graph.without(np.flatnonzero(held)).degree
    pairs = number_of_pairs(graph.n, graph.directed)
    return GraphSummary(
        nodes=graph.n,
        edges=len(graph.edges),
        directed=graph.directed,
        weighted=graph.weighted,
        density=len(graph.edges) / pairs if pairs else 0.0,
        components=int(components(graph).max()) + 1,
        isolated=int((either == 0).sum()),
        degree_min=int(degree.min()),
        degree_mean=float(degree.mean()),
        degree_max=int(degree.max()),
        rank=_rank(graph),
        homophily=None if profiles is None else homophily(graph, profiles),
        trained=int((~held).sum()),
        novel=int(held.sum()),
        cut_off=int((~held & (degree > 0) & (left == 0)).sum()),
    )


def homophily(graph: ClientGraph, profiles: npt.NDArray[np.float64]) -> float | None:
    """Mean similarity of linked pairs minus mean similarity of all pairs.

    The similarity of clients i and j is ``1 - d_ij / m``, where d is the Euclidean distance of their profiles and m its
    mean over all pairs of different clients (over a million random pairs, always the same ones, where there are more).
    So homophily is ``1 - (mean d over edges) / m``: 1 if linked clients have the same data, 0 if links say nothing,
    below 0 if linked clients differ more than others. Every edge counts once, whatever its weight.

    Returns:
        None where there is no edge, or where all clients are the same (m = 0).
    """
    pairs = number_of_pairs(graph.n, directed=False)
    if len(graph.edges) == 0 or pairs == 0:
        return None
    numbers = np.arange(min(pairs, _ALL_PAIRS_UP_TO), dtype=np.int64)
    if pairs > _ALL_PAIRS_UP_TO:
        numbers = Streams(0).numpy("homophily pairs").integers(0, pairs, _ALL_PAIRS_UP_TO)
    everyone = _mean_distance(profiles, pair_of(numbers, graph.n, directed=False))
    if not everyone > 0:
        return None
    return 1 - _mean_distance(profiles, graph.edges) / everyone


def _mean_distance(profiles: npt.NDArray[np.float64], pairs: npt.NDArray[np.int64]) -> float:
    total, size = 0.0, max(1, (1 << 22) // max(profiles.shape[1], 1))
    for first in range(0, len(pairs), size):
        a, b = pairs[first : first + size].T
        total += float(np.sqrt(((profiles[a] - profiles[b]) ** 2).sum(axis=1)).sum())
    return total / len(pairs)


def components(graph: ClientGraph) -> npt.NDArray[np.int64]:
    """The connected part of every client, ``[n]``, numbered from 0 in the order of their first clients."""
    parent = np.arange(graph.n)
    a, b = graph.edges[:, 0], graph.edges[:, 1]
    while True:
        low = np.minimum(parent[a], parent[b])
        before = parent.copy()
        for end in (parent[a], parent[b], a, b):
            np.minimum.at(parent, end, low)
        while (parent != parent[parent]).any():
            parent = parent[parent]
        if (parent == before).all():
            return np.unique(parent, return_inverse=True)[1].astype(np.int64)


def _rank(graph: ClientGraph) -> int | None:
    if graph.n > _RANK_UP_TO:
        return None
    matrix = (graph.dense() > 0).astype(np.float64) + np.eye(graph.n)
    return int(np.linalg.matrix_rank(matrix / matrix.sum(axis=1, keepdims=True)))
