"""Relation graphs made from what is known of the clients, or from nothing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from panacea.core.random import Streams
from panacea.errors import RequestError
from panacea.graphs._pairs import code_of, number_of_pairs, pair_of, random_codes
from panacea.graphs.client_graph import ClientGraph

__all__ = ["complete", "distance_spread", "empty", "gaussian", "knn", "random"]

_BLOCK = 1 << 22  # distances held at one time
_MOST_EDGES = 20_000_000  # half a gigabyte; more is refused rather than swapped

Floats = npt.NDArray[np.float64]


def knn(features: npt.ArrayLike, k: int = 5) -> ClientGraph:
    """Link every client with its k nearest ones by Euclidean distance; an edge if either names the other.

    Clients at the same distance (to ten digits) are taken in the order i+1, i+2, ... round the list, so that equal
    clients form a ring and not a star around the first one. Memory grows with n, not with n².

    Args:
        features: ``[clients, d]``.
        k: neighbours each client names, at most n - 1.

    >>> knn([[0.0], [1.0], [10.0], [11.5]], k=1).edges.tolist()
    [[0, 1], [2, 3]]
    """
    points = _points(features)
    n = len(points)
    if not 1 <= k < n:
        raise RequestError(f"k={k}: each client can have 1..{n - 1} nearest neighbours, there are {n} clients")
    found = []
    for first, squares in _squared_distances(points):
        rows = np.arange(first, first + len(squares))
        others = (rows[:, None] + np.arange(1, n)) % n  # everyone but oneself, starting behind oneself
        near = np.take_along_axis(squares, others, axis=1)
        limit = np.partition(near, k - 1, axis=1)[:, k - 1 : k]
        closer, level = near < limit, near == limit
        chosen = closer | (level & (np.cumsum(level, axis=1) <= k - closer.sum(axis=1, keepdims=True)))
        client, place = np.nonzero(chosen)
        found.append(np.stack([rows[client], others[client, place]], axis=1))
    edges = np.unique(np.sort(np.concatenate(found), axis=1), axis=0)
    return ClientGraph(n, edges, np.ones(len(edges), np.float32))


def gaussian(features: npt.ArrayLike, sigma: float | None = None, threshold: float = 0.1) -> ClientGraph:
    """Link clients with weight exp(-d² / sigma²) where that is at least the threshold, as in sensor networks.

    Args:
        features: ``[clients, d]``; d is the Euclidean distance.
        sigma: by default the standard deviation of the distances between all pairs.
        threshold: smaller weights are no edge; above 0, at most 1.
    """
    points = _points(features)
    n = len(points)
    sigma = distance_spread(points) if sigma is None else sigma
    if not (np.isfinite(sigma) and sigma > 0):
        raise RequestError(f"sigma={sigma}: a positive number is needed (all clients at one distance give none)")
    if not 0 < threshold <= 1:
        raise RequestError(f"threshold={threshold}: must be above 0 and at most 1")
    edges, weights = [np.zeros((0, 2), np.int64)], [np.zeros(0, np.float32)]
    for first, squares in _squared_distances(points):
        with np.errstate(over="ignore"):  # a tiny sigma: everything but itself is infinitely far
            weight = np.exp(-((np.sqrt(squares) / sigma) ** 2))
        row, column = np.nonzero(
            (weight >= threshold) & (np.arange(n) > np.arange(first, first + len(squares))[:, None])
        )
        edges.append(np.stack([row + first, column], axis=1))
        weights.append(weight[row, column].astype(np.float32))
        _refuse_too_many(sum(len(part) for part in edges), "threshold")
    return ClientGraph(n, np.concatenate(edges).astype(np.int64), np.concatenate(weights))


def distance_spread(features: npt.ArrayLike) -> float:
    """The standard deviation of the Euclidean distances between all pairs of different clients."""
    points = _points(features)
    pairs, total, squared = number_of_pairs(len(points), directed=True), 0.0, 0.0
    for _, squares in _squared_distances(points):
        total += float(np.sqrt(squares).sum())
        squared += float(squares.sum())
    mean = total / max(pairs, 1)
    return float(np.sqrt(max(squared / max(pairs, 1) - mean**2, 0.0)))


def complete(n: int) -> ClientGraph:
    """Everyone is linked with everyone."""
    _refuse_too_many(number_of_pairs(n, directed=False), "complete")
    edges = np.stack(np.triu_indices(n, 1), axis=1).astype(np.int64)
    return ClientGraph(n, edges, np.ones(len(edges), np.float32))


def empty(n: int) -> ClientGraph:
    """No one is linked with anyone."""
    return ClientGraph(n, np.zeros((0, 2), np.int64), np.zeros(0, np.float32))


def random(n: int, density: float | None = None, *, like: ClientGraph | None = None, seed: int = 0) -> ClientGraph:
    """Edges between pairs chosen uniformly, all of weight 1.

    Args:
        n: number of clients.
        density: share of all pairs that are linked; the edges of a lower density are among those of a higher one.
        like: instead of a density: as many edges as this graph has, with directions if it has them.
        seed: decides the pairs.
    """
    if (density is None) == (like is None):
        raise RequestError("density: give a density, or a graph whose number of edges to copy")
    directed = like is not None and like.directed
    if density is not None and not 0 <= density <= 1:
        raise RequestError(f"density={density}: must be from 0 to 1")
    count = len(like.edges) if like is not None else round((density or 0.0) * number_of_pairs(n, directed))
    _refuse_too_many(count, "density")
    stream = Streams(seed).numpy("random graph")
    codes = np.sort(random_codes(stream, n, directed, count, np.zeros(0, np.int64)))
    pairs = pair_of(codes, n, directed)
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    assert (code_of(pairs, n, directed) == codes).all()
    return ClientGraph(n, pairs[order], np.ones(count, np.float32), directed)


def _points(features: npt.ArrayLike) -> Floats:
    points = np.asarray(features, np.float64)
    if points.ndim != 2 or len(points) < 1:
        raise RequestError(f"features: one row of numbers per client is needed, not an array {list(points.shape)}")
    if not np.isfinite(points).all():
        raise RequestError(
            f"features: client {int(np.flatnonzero(~np.isfinite(points).all(axis=1))[0])} has NaN or inf"
        )
    return points


def _squared_distances(points: Floats) -> Iterator[tuple[int, Floats]]:
    """Rows of the matrix of squared distances in blocks, with the number of the first row.

    The product that gives them rounds differently on different machines, so they are cut to ten digits of the largest
    squared norm: equal distances are then equal everywhere.
    """
    points = points - points.mean(axis=0)
    norms = (points**2).sum(axis=1)
    unit = float(norms.max(initial=0.0)) * 1e-10
    size = max(1, _BLOCK // max(len(points), 1))
    for first in range(0, len(points), size):
        block = points[first : first + size]
        squares = norms[first : first + size, None] + norms[None, :] - 2 * block @ points.T
        squares = np.rint(squares / unit) * unit if unit > 0 else np.zeros_like(squares)
        squares[np.arange(len(block)), np.arange(first, first + len(block))] = 0.0
        yield first, np.maximum(squares, 0.0)


def _refuse_too_many(edges: int, what: str) -> None:
    if edges > _MOST_EDGES:
        raise RequestError(f"{what}: more than {_MOST_EDGES:,} edges are too many to hold; choose a sparser graph")
