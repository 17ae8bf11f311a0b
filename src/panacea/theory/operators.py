r"""Mean aggregation over a graph as a matrix, in both readings, and what attacked clients keep of their own.

With A the adjacency matrix and D the degrees plus one,

    printed:    [Gtil]_ij = 1 / (N(i) + 1) for j in N(i) + {i}        rows sum to one:     D^-1 (A + I)
    corrected:  its transpose                                         columns sum to one:  (A + I) D^-1

Embeddings are columns of V, so client j averages its neighbours by *column* j of V Gtil: columns must sum to one.
G = Gtil^L. Clients 0 .. m-1 are attacked: Q = G[:, :m], P = G[:, m:], M = (I - P P^+) Q, r = ||M||_F^2.
All functions take one graph ``[n, n]`` or many, ``[..., n, n]``.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from panacea.theory.statement import Floats

__all__ = [
    "adjacency",
    "all_graphs",
    "by_columns",
    "by_rows",
    "clique",
    "component_ones",
    "connected",
    "cycle",
    "hubs",
    "path",
    "power",
    "projection",
    "random_graphs",
    "rank",
    "remainder",
    "squared",
    "star",
]


def adjacency(n: int, edges: Iterable[tuple[int, int]]) -> Floats:
    """The symmetric 0/1 matrix of a graph."""
    matrix = np.zeros((n, n))
    for a, b in edges:
        matrix[a, b] = matrix[b, a] = 1
    return matrix


def path(n: int) -> Floats:
    """0 - 1 - ... - n-1."""
    return adjacency(n, ((i, i + 1) for i in range(n - 1)))


def cycle(n: int) -> Floats:
    """A closed path."""
    return adjacency(n, ((i, (i + 1) % n) for i in range(n)))


def star(n: int) -> Floats:
    """Client 0 is linked to all others."""
    return hubs(n, 1)


def clique(n: int) -> Floats:
    """All pairs are linked."""
    return np.ones((n, n)) - np.eye(n)


def hubs(n: int, h: int) -> Floats:
    """Complete bipartite: clients 0 .. h-1 are linked to all the others, and nobody else is linked."""
    return adjacency(n, ((i, j) for i in range(h) for j in range(h, n)))


def all_graphs(n: int) -> Floats:
    """Every labelled graph, ``[2^(n (n-1) / 2), n, n]``; any set of m clients is the first m in some of them."""
    rows, columns = np.triu_indices(n, 1)
    number = np.arange(2 ** len(rows))
    linked = (number[:, None] >> np.arange(len(rows))) & 1
    matrix = np.zeros((len(number), n, n))
    matrix[:, rows, columns] = matrix[:, columns, rows] = linked
    return matrix


def random_graphs(stream: np.random.Generator, count: int, n: int) -> Floats:
    """Graphs whose pairs are linked independently; the probability is drawn for each graph anew."""
    upper = np.triu(stream.random((count, n, n)) < stream.random((count, 1, 1)), 1).astype(np.float64)
    return upper + np.swapaxes(upper, -1, -2)


def by_columns(graph: Floats) -> Floats:
    """Mean aggregation whose columns sum to one."""
    closed = graph + np.eye(graph.shape[-1])
    return np.asarray(closed / closed.sum(axis=-2, keepdims=True))


def by_rows(graph: Floats) -> Floats:
    """Mean aggregation as printed: rows sum to one."""
    return np.swapaxes(by_columns(graph), -1, -2)


def power(matrix: Floats, layers: int) -> Floats:
    """G = Gtil^L."""
    return np.asarray(np.linalg.matrix_power(matrix, layers))


def _orthonormal(columns: Floats) -> Floats:
    """An orthonormal basis of the span; directions below rounding are zeroed."""
    basis, size, _ = np.linalg.svd(columns, full_matrices=False)
    tolerance = size[..., :1] * max(columns.shape[-2:]) * np.finfo(np.float64).eps
    return np.asarray(basis * (size > tolerance)[..., None, :])


def projection(columns: Floats) -> Floats:
    """P P^+, the orthogonal projection on the span of the columns of P."""
    basis = _orthonormal(columns)
    return np.asarray(basis @ np.swapaxes(basis, -1, -2))


def remainder(G: Floats, m: int) -> Floats:
    """M = (I - P P^+) Q: what the first m columns have outside the span of the others, ``[..., n, m]``."""
    basis, Q = _orthonormal(G[..., :, m:]), G[..., :, :m]
    rest = Q - basis @ (np.swapaxes(basis, -1, -2) @ Q)
    return np.asarray(rest - basis @ (np.swapaxes(basis, -1, -2) @ rest))  # twice: no cancellation where r is tiny


def squared(matrix: Floats) -> Floats:
    """Squared Frobenius norm of each matrix."""
    return np.asarray(np.einsum("...ij,...ij->...", matrix, matrix))


def component_ones(graph: Floats) -> Floats:
    """C_ij = 1 if i and j are in one connected component, otherwise 0."""
    n = graph.shape[-1]
    reach = graph + np.eye(n)
    for _ in range(max(1, int(np.ceil(np.log2(max(n, 2)))))):
        reach = np.minimum(reach @ reach, 1.0)
    return reach


def connected(graphs: Floats) -> Floats:
    """Those of many graphs that are connected."""
    return np.asarray(graphs[component_ones(graphs).min(axis=(-2, -1)) > 0])


def rank(graph: Floats) -> int:
    """Rank of Gtil, which is that of A + I in either reading."""
    return int(np.linalg.matrix_rank(graph + np.eye(len(graph))))
