"""The relation graph: which clients are related to which."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from panacea.errors import RequestError

__all__ = ["ClientGraph", "npz_arrays"]

Ids: TypeAlias = npt.NDArray[np.int64]
Weights: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True)
class ClientGraph:
    """A graph over clients 0 .. n-1, undirected unless it says otherwise.

    Self loops are never stored: what is given is dropped with a note, and a method that lets a client listen to itself
    adds that by its own rule. So `degree`, `dense` and `neighbours` never count the client itself.

    Attributes:
        n: number of clients.
        edges: ``[E, 2]`` int64, sorted. Undirected: each edge once with ``edges[:, 0] < edges[:, 1]``. Directed:
            ``(a, b)`` means that b listens to a (a is an in-neighbour of b); ``(b, a)`` is another edge.
        weights: ``[E]`` float32, positive, 1 for a plain graph.
        directed: whether edges have a direction.
    """

    n: int
    edges: Ids
    weights: Weights
    directed: bool = False

    @classmethod
    def from_edges(
        cls,
        n: int,
        edges: Iterable[Sequence[int]] | Ids,
        weights: Iterable[float] | npt.NDArray[Any] | None = None,
        source: str = "edges",
        *,
        directed: bool = False,
    ) -> tuple[ClientGraph, tuple[str, ...]]:
        """Build a graph from pairs; returns it with notes on what was dropped (self loops).

        Raises:
            RequestError: an end is not a client, an edge is given twice (undirected: in either direction), a weight
                is not a positive finite number; the message names the source and the row.
        """
        pairs = _pairs(edges, source)
        weight = _weights(weights, len(pairs), source)
        wrong = np.flatnonzero(((pairs < 0) | (pairs >= n)).any(axis=1))
        if len(wrong):
            a, b = pairs[wrong[0]]
            place = f"{source}: edge {wrong[0] + 1} ({a}, {b})"
            raise RequestError(f"{place} names an unknown client; clients are 0..{n - 1}")
        loops = pairs[:, 0] == pairs[:, 1]
        notes = (f"{source}: {int(loops.sum())} self loop(s) dropped",) if loops.any() else ()
        graph = cls._sorted(n, pairs[~loops], weight[~loops], directed)
        twice = np.flatnonzero((graph.edges[1:] == graph.edges[:-1]).all(axis=1))
        if len(twice):
            a, b = graph.edges[twice[0]]
            between = f"from {a} to {b}" if directed else f"between {a} and {b}"
            raise RequestError(f"{source}: the edge {between} is given twice; give each pair once")
        return graph, notes

    @classmethod
    def _sorted(cls, n: int, edges: Ids, weights: Weights, directed: bool) -> ClientGraph:
        """Edges known to be right, in any order and (undirected) either way round."""
        edges = edges if directed else np.sort(edges, axis=1)
        order = np.lexsort((edges[:, 1], edges[:, 0]))
        return cls(n, edges[order], weights[order], directed)

    # --- what it is ---------------------------------------------------------------------------------------------

    @property
    def weighted(self) -> bool:
        """Whether some edge counts differently from another: any weight is not 1."""
        return bool((self.weights != 1).any())

    @cached_property
    def _arcs(self) -> tuple[Ids, Ids, Weights]:
        a, b, weights = self.edges[:, 0], self.edges[:, 1], self.weights
        if not self.directed:
            a, b, weights = np.concatenate([a, b]), np.concatenate([b, a]), np.concatenate([weights, weights])
        order = np.lexsort((a, b))
        found = a[order], b[order], weights[order]
        for part in found:
            part.flags.writeable = False  # everyone gets the same arrays
        return found

    def arcs(self) -> tuple[Ids, Ids, Weights]:
        """Who listens to whom, ``(sources, targets, weights)``: target listens to source.

        An undirected edge gives both directions. Sorted by (target, source); read-only.
        """
        return self._arcs

    @cached_property
    def _starts(self) -> Ids:
        """``[n + 1]``: where the arcs of every target begin."""
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(self.degree)])

    @property
    def degree(self) -> Ids:
        """Number of neighbours of every client, ``[n]``; directed: of clients it listens to (in-degree)."""
        ends = self.edges[:, 1] if self.directed else self.edges.ravel()
        return np.bincount(ends, minlength=self.n).astype(np.int64)

    def dense(self) -> Weights:
        """The weighted adjacency matrix ``[n, n]``: entry ``[i, j]`` is the weight with which i listens to j."""
        sources, targets, weights = self.arcs()
        matrix = np.zeros((self.n, self.n), np.float32)
        matrix[targets, sources] = weights
        return matrix

    def neighbours(self, client: int) -> Ids:
        """Sorted ids of a client's neighbours; directed: of those it listens to."""
        if not 0 <= client < self.n:
            raise RequestError(f"client {client} does not exist; clients are 0..{self.n - 1}")
        return self.arcs()[0][self._starts[client] : self._starts[client + 1]]

    # --- graphs from it -----------------------------------------------------------------------------------------

    def take(self, clients: Ids) -> ClientGraph:
        """The graph between the chosen clients, renumbered in the order given."""
        place = np.full(self.n, -1, np.int64)
        place[clients] = np.arange(len(clients))
        moved = place[self.edges]
        keep = (moved >= 0).all(axis=1)
        return ClientGraph._sorted(len(clients), moved[keep], self.weights[keep], self.directed)

    def without(self, clients: Iterable[int] | Ids) -> ClientGraph:
        """The same nodes, without every edge that touches one of these clients."""
        ids = _known(clients, self.n, "clients")
        gone = np.zeros(self.n, np.bool_)
        gone[ids] = True
        keep = ~gone[self.edges].any(axis=1)
        return ClientGraph(self.n, self.edges[keep], self.weights[keep], self.directed)

    def with_node(self, neighbours: Iterable[int] | Ids, weights: Iterable[float] | None = None) -> ClientGraph:
        """One more client, number n, linked to these; in a directed graph it listens to them and nobody to it.

        Raises:
            RequestError: a neighbour is no client or is named twice, a weight is not a positive number.
        """
        ids = _known(neighbours, self.n, "neighbours")
        values, counts = np.unique(ids, return_counts=True)
        if (counts > 1).any():
            raise RequestError(f"neighbours: client {values[counts > 1][0]} is named twice")
        weight = _weights(weights, len(ids), "neighbours")
        new = np.stack([ids, np.full(len(ids), self.n, np.int64)], axis=1)
        edges = np.concatenate([self.edges, new])
        return ClientGraph._sorted(self.n + 1, edges, np.concatenate([self.weights, weight]), self.directed)

    def undirected(self) -> ClientGraph:
        """An edge wherever there is one in either direction, with the larger weight."""
        if not self.directed:
            return self
        both = ClientGraph._sorted(self.n, self.edges, self.weights, directed=False)
        order = np.lexsort((-both.weights, both.edges[:, 1], both.edges[:, 0]))  # the larger weight first
        edges, weights = both.edges[order], both.weights[order]
        first = np.ones(len(edges), np.bool_)
        first[1:] = (edges[1:] != edges[:-1]).any(axis=1)
        return ClientGraph(self.n, edges[first], weights[first])

    def binary(self) -> ClientGraph:
        """The same edges, all of weight 1."""
        return ClientGraph(self.n, self.edges, np.ones(len(self.edges), np.float32), self.directed)

    # --- files --------------------------------------------------------------------------------------------------

    def save(self, file: Path | IO[bytes]) -> None:
        """Write an npz file: n, edges, weights, directed."""
        content: dict[str, Any] = {"n": np.int64(self.n), "edges": self.edges, "weights": self.weights}
        np.savez(file, **content, directed=np.bool_(self.directed))

    @classmethod
    def load(cls, path: Path) -> ClientGraph:
        """A graph that `save` wrote, checked like any other input.

        Raises:
            RequestError: there is no such file, or it does not hold a graph.
        """
        return cls.from_arrays(npz_arrays(path), str(path))[0]

    @classmethod
    def from_arrays(cls, arrays: dict[str, npt.NDArray[Any]], source: str) -> tuple[ClientGraph, tuple[str, ...]]:
        """A graph from the arrays of an npz file (n, edges, and possibly weights and directed), with notes."""
        if "n" not in arrays or "edges" not in arrays:
            raise RequestError(f"{source}: needs the arrays n and edges, found {', '.join(sorted(arrays)) or 'none'}")
        n = arrays["n"]
        if n.ndim or n.dtype.kind not in "iu" or int(n) < 1:
            raise RequestError(f"{source}: n is the number of clients, a whole number of at least 1, not {n}")
        directed = arrays.get("directed", np.bool_(False))
        if directed.ndim or directed.dtype.kind not in "biu":
            raise RequestError(f"{source}: directed is true or false, not {directed}")
        return cls.from_edges(int(n), arrays["edges"], arrays.get("weights"), source, directed=bool(directed))


def npz_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """The arrays of an npz file, by name; pickled objects are not read."""
    try:
        stored = np.load(path, allow_pickle=False)
        if isinstance(stored, np.ndarray):
            raise ValueError  # a single array, not a file of named ones
        with stored:
            return {key: stored[key] for key in stored.files}
    except FileNotFoundError:
        raise RequestError(f"{path}: no such file") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        raise RequestError(f"{path}: not an npz file of plain arrays") from None


def _pairs(edges: Iterable[Sequence[int]] | Ids, source: str) -> Ids:
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


def _weights(weights: Iterable[float] | npt.NDArray[Any] | None, count: int, source: str) -> Weights:
    """One positive finite number per edge."""
    if weights is None:
        return np.ones(count, np.float32)
    try:
        with np.errstate(over="ignore"):
            given = np.asarray(weights if isinstance(weights, np.ndarray) else list(weights))
            given = given.astype(np.float32, casting="unsafe" if given.dtype.kind != "c" else "same_kind")
    except (TypeError, ValueError):
        raise RequestError(f"{source}: weights are positive numbers, one per edge") from None
    if given.shape != (count,):
        many = str(len(given)) if given.ndim == 1 else f"an array {list(given.shape)} of"
        raise RequestError(f"{source}: {count} edges but {many} weights")
    bad = np.flatnonzero(~(np.isfinite(given) & (given > 0)))
    if len(bad):
        raise RequestError(f"{source}: edge {bad[0] + 1} has weight {given[bad[0]]}; weights are positive numbers")
    return given


def _known(clients: Iterable[int] | Ids, n: int, what: str) -> Ids:
    """Numbers of clients that exist."""
    given = np.asarray(clients if isinstance(clients, np.ndarray) else list(clients))
    if given.size == 0:
        return np.zeros(0, np.int64)
    if given.ndim != 1 or not np.issubdtype(given.dtype, np.integer):
        raise RequestError(f"{what}: client numbers are needed, not {np.array2string(given, threshold=5)}")
    wrong = given[(given < 0) | (given >= n)]
    if len(wrong):
        raise RequestError(f"{what}: client {wrong[0]} does not exist; clients are 0..{n - 1}")
    return given.astype(np.int64)
