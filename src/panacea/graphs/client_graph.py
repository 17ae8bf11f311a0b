"""The relation graph: which clients are related to which."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from panacea.errors import RequestError

__all__ = ["ClientGraph"]


@dataclass(frozen=True)
class ClientGraph:
    """An undirected graph over clients 0 .. n-1 without self loops.

    Attributes:
        n: number of clients.
        edges: ``[E, 2]`` int64, each undirected edge once with ``edges[:, 0] < edges[:, 1]``, sorted.
        weights: ``[E]`` float32, 1 for a plain graph.
    """

    n: int
    edges: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float32]

    @classmethod
    def from_edges(
        cls,
        n: int,
        edges: Iterable[Sequence[int]] | npt.NDArray[np.int64],
        weights: Iterable[float] | None = None,
        source: str = "edges",
    ) -> tuple[ClientGraph, tuple[str, ...]]:
        """Build a graph from pairs; returns it with notes on what was dropped (self loops).

        Raises:
            RequestError: an end is not a client, an edge is given twice (in either direction), a weight is not a
                positive finite number; the message names the source and the row.
        """
        pairs = _pairs(edges, source)
        weight = np.ones(len(pairs), np.float32) if weights is None else np.asarray(list(weights), dtype=np.float32)
        if len(weight) != len(pairs):
            raise RequestError(f"{source}: {len(pairs)} edges but {len(weight)} weights")
        wrong = np.flatnonzero(((pairs < 0) | (pairs >= n)).any(axis=1))
        if len(wrong):
            a, b = pairs[wrong[0]]
            place = f"{source}: edge {wrong[0] + 1} ({a}, {b})"
            raise RequestError(f"{place} names an unknown client; clients are 0..{n - 1}")
        bad = np.flatnonzero(~(np.isfinite(weight) & (weight > 0)))
        if len(bad):
            raise RequestError(f"{source}: edge {bad[0] + 1} has weight {weight[bad[0]]}; weights are positive numbers")
        loops = pairs[:, 0] == pairs[:, 1]
        notes = (f"{source}: {int(loops.sum())} self loop(s) dropped",) if loops.any() else ()
        pairs, weight = np.sort(pairs[~loops], axis=1), weight[~loops]
        order = np.lexsort((pairs[:, 1], pairs[:, 0]))
        pairs, weight = pairs[order], weight[order]
        twice = np.flatnonzero((pairs[1:] == pairs[:-1]).all(axis=1))
        if len(twice):
            a, b = pairs[twice[0]]
            raise RequestError(f"{source}: the edge between {a} and {b} is given twice; give each pair once")
        return cls(n, pairs, weight), notes

    @property
    def degree(self) -> npt.NDArray[np.int64]:
        """Number of neighbours of every client, ``[n]``."""
        return np.bincount(self.edges.ravel(), minlength=self.n).astype(np.int64)

    def dense(self) -> npt.NDArray[np.float32]:
        """The symmetric weighted adjacency matrix, ``[n, n]``."""
        matrix = np.zeros((self.n, self.n), np.float32)
        matrix[self.edges[:, 0], self.edges[:, 1]] = self.weights
        matrix[self.edges[:, 1], self.edges[:, 0]] = self.weights
        return matrix

    def neighbours(self, client: int) -> npt.NDArray[np.int64]:
        """Sorted ids of a client's neighbours."""
        here = (self.edges == client).any(axis=1)
        ends = self.edges[here].ravel()
        return np.sort(ends[ends != client])

    def take(self, clients: npt.NDArray[np.int64]) -> ClientGraph:
        """The graph between the chosen clients, renumbered in the order given."""
        place = np.full(self.n, -1, np.int64)
        place[clients] = np.arange(len(clients))
        moved = place[self.edges]
        keep = (moved >= 0).all(axis=1)
        graph, _ = ClientGraph.from_edges(len(clients), moved[keep], self.weights[keep])
        return graph

    def save(self, path: Path) -> None:
        """Write `graph.npz`: n, edges, weights."""
        np.savez(path, n=np.int64(self.n), edges=self.edges, weights=self.weights)


def _pairs(edges: Iterable[Sequence[int]] | npt.NDArray[np.int64], source: str) -> npt.NDArray[np.int64]:
    """Edges as ``[E, 2]`` whole numbers; anything else is refused instead of being reshaped or cut to fit."""
    if not isinstance(edges, np.ndarray):
        edges = list(edges)
        wrong = next((place for place, pair in enumerate(edges) if np.shape(pair) != (2,)), None)
        if wrong is not None:
            raise RequestError(f"{source}: edge {wrong + 1} is {edges[wrong]}; an edge is a pair of clients")
    given = np.asarray(edges)
    if given.size == 0:
        return np.zeros((0, 2), np.int64)
    if given.ndim != 2 or given.shape[1] != 2:
        raise RequestError(f"{source}: edges are [E, 2], not {list(given.shape)}")
    if not np.issubdtype(given.dtype, np.integer):
        raise RequestError(f"{source}: the ends of edges are client numbers, not {given.dtype} values")
    return given.astype(np.int64)
