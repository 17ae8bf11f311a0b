"""Graphs from objects of other libraries, none of which is imported here."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from panacea.core.values import is_frame, shown
from panacea.errors import RequestError
from panacea.graphs._edges import Edges, Found, Row, graph_of_pairs, graph_of_rows, wrong_size
from panacea.graphs.client_graph import ClientGraph

__all__ = ["GraphLike", "as_graph", "graph_of_adjacency", "graph_of_networkx", "graph_of_pyg"]

GraphLike: TypeAlias = ClientGraph | Edges | str | os.PathLike[str] | Any
"""A `ClientGraph`, pairs or triples of clients, a file, a networkx graph, PyG data, an adjacency matrix."""


def as_graph(value: GraphLike, names: Sequence[str]) -> Found:
    """A graph over clients from whatever describes one, with notes on what was dropped.

    Args:
        value: a `ClientGraph`; pairs (a, b) or triples (a, b, weight) of client names or positions (also a DataFrame);
            a path to a .csv, .npz or .graphml file; a networkx graph; PyG data (``edge_index`` with ``edge_weight`` or
            ``edge_attr``); a SciPy sparse or a dense ``[n, n]`` adjacency matrix. (A dense matrix of 2 or 3 clients
            looks like a list of edges and is read as one; use `graph_of_adjacency`.)
        names: the clients' names, in order.

    Raises:
        RequestError: something is wrong; one line says what and where.
    """
    if isinstance(value, ClientGraph):
        if value.n != len(names):
            raise wrong_size("graph", value.n, len(names))
        return value, ()
    if isinstance(value, str | os.PathLike):
        from panacea.graphs.files import read_graph  # noqa: PLC0415  (it imports this module)

        return read_graph(Path(value), names)
    if hasattr(value, "is_directed") and hasattr(value, "nodes") and hasattr(value, "edges"):
        return graph_of_networkx(value, names)
    if hasattr(value, "edge_index"):
        return graph_of_pyg(value, len(names))
    if hasattr(value, "tocoo") or (_is_square(value) and not is_frame(value)):
        return graph_of_adjacency(value, len(names))
    if not hasattr(value, "__iter__"):
        said = "is not a graph; give pairs of clients, a file or an adjacency matrix"
        raise RequestError(f"graph: {shown(value)} {said}")
    return graph_of_pairs(value, names)


def _is_square(value: Any) -> bool:
    """Whether a value is a matrix that cannot be a list of pairs or triples."""
    shape = tuple(getattr(value, "shape", ()))
    return len(shape) == 2 and shape[0] == shape[-1] > 3


def _array(value: Any) -> npt.NDArray[Any]:
    """A NumPy array, also of a torch tensor wherever it is."""
    return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)


def graph_of_adjacency(matrix: Any, clients: int, source: str = "adjacency") -> Found:
    """A graph from an adjacency matrix, dense or SciPy sparse.

    Entry ``[i, j]`` is the weight with which client i listens to client j, 0 where it does not. A symmetric matrix
    gives an undirected graph, any other one a directed graph.
    """
    if len(matrix.shape) != 2 or matrix.shape[0] != matrix.shape[1]:
        raise RequestError(f"{source}: an adjacency matrix is [clients, clients], not {list(matrix.shape)}")
    if matrix.shape[0] != clients:
        raise wrong_size(source, int(matrix.shape[0]), clients)
    if hasattr(matrix, "tocoo"):
        sparse = matrix.tocoo()
        return _of_entries(clients, sparse.row, sparse.col, sparse.data, source)
    dense = _array(matrix)
    if dense.dtype.kind not in "biuf":
        raise RequestError(f"{source}: an adjacency matrix holds numbers, not {dense.dtype} values")
    rows, columns = np.nonzero(dense)
    return _of_entries(clients, rows, columns, dense[rows, columns], source)


def graph_of_pyg(data: Any, clients: int, source: str = "graph") -> Found:
    """A graph from PyG data: ``edge_index`` ``[2, E]`` goes from source to target, and the target listens.

    Where every edge is there in both directions with one weight, the graph is undirected.
    """
    index = _array(data.edge_index)
    if index.ndim != 2 or len(index) != 2:
        raise RequestError(f"{source}: edge_index is [2, E], not {list(index.shape)}")
    nodes = int(data.num_nodes if getattr(data, "num_nodes", None) is not None else index.max(initial=-1) + 1)
    if nodes != clients:
        raise wrong_size(source, nodes, clients)
    weights = getattr(data, "edge_weight", None)
    weights = weights if weights is not None else getattr(data, "edge_attr", None)
    values = np.ones(index.shape[1], np.float32) if weights is None else _array(weights)
    values = values.reshape(-1) if values.shape == (index.shape[1], 1) else values
    return _of_arcs(clients, index.T, values, source)


def graph_of_networkx(graph: Any, names: Sequence[str], source: str = "graph") -> Found:
    """A graph from networkx: nodes are names of clients or positions, an edge's attribute ``weight`` its weight."""
    if graph.number_of_nodes() != len(names):
        raise wrong_size(source, graph.number_of_nodes(), len(names))
    nodes = list(graph.nodes)
    text = all(isinstance(node, str) for node in nodes)
    everyone: list[Row] = [(f"{source}: node {node!r}", (node, node)) for node in nodes]
    rows: list[Row] = [
        (f"{source}: edge ({a!r}, {b!r})", (a, b, 1.0 if weight is None else weight))
        for a, b, weight in graph.edges(data="weight")
    ]
    graph_of_rows(everyone, names, source, directed=False, text=text)  # every node must be a client, linked or not
    if text and not all(node in set(names) for node in nodes):
        rows = [(where, (int(str(row[0])), int(str(row[1])), row[2])) for where, row in rows]
    return graph_of_rows(rows, names, source, directed=bool(graph.is_directed()))


def _of_entries(
    n: int, rows: npt.NDArray[Any], columns: npt.NDArray[Any], values: npt.NDArray[Any], source: str
) -> Found:
    """A graph from the entries of an adjacency matrix; stored zeros are no edges."""
    if values.dtype.kind not in "biuf":
        raise RequestError(f"{source}: an adjacency matrix holds numbers, not {values.dtype} values")
    there = values != 0
    rows, columns, values = rows[there], columns[there], values[there].astype(np.float64)
    bad = np.flatnonzero(~(np.isfinite(values) & (values > 0)))
    if len(bad):
        place = f"entry [{rows[bad[0]]}, {columns[bad[0]]}] is {values[bad[0]]}"
        raise RequestError(f"{source}: {place}; weights are positive numbers, 0 where there is no edge")
    return _of_arcs(n, np.stack([columns, rows], axis=1).astype(np.int64), values, source)


def _of_arcs(n: int, arcs: npt.NDArray[Any], weights: npt.NDArray[Any], source: str) -> Found:
    """Directed edges; an undirected graph if each is there both ways with one weight."""
    graph, notes = ClientGraph.from_edges(n, arcs, weights, source, directed=True)
    a, b = graph.edges[:, 0], graph.edges[:, 1]
    back = np.lexsort((a, b))  # the edges turned round, sorted
    if (graph.edges == graph.edges[back][:, ::-1]).all() and (graph.weights == graph.weights[back]).all():
        return ClientGraph(n, graph.edges[a < b], graph.weights[a < b]), notes
    return graph, notes
