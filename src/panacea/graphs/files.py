"""Graphs from files: CSV, npz and GraphML."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from panacea.errors import RequestError
from panacea.graphs._edges import Found, Row, graph_of_rows, wrong_size
from panacea.graphs.client_graph import ClientGraph, npz_arrays
from panacea.graphs.convert import graph_of_adjacency, graph_of_networkx

__all__ = ["GRAPH_SUFFIXES", "read_csv", "read_graph"]

GRAPH_SUFFIXES = (".csv", ".npz", ".graphml")


def read_graph(path: Path, names: Sequence[str], *, directed: bool | None = None) -> Found:
    """A graph over clients from a file; its suffix says what is in it.

    * ``.csv``: the header ``source,target`` or ``source,target,weight``, clients by name or by position from 0.
    * ``.npz``: ``n``, ``edges`` and possibly ``weights`` and ``directed`` (what `ClientGraph.save` and a run write);
      or an ``adjacency`` matrix; or what `scipy.sparse.save_npz` writes.
    * ``.graphml``: nodes are clients by name or by position.

    Args:
        path: the file.
        names: the clients' names, in order.
        directed: whether the edges of a CSV file have a direction (target listens to source); by default they have
            none. Other files say so themselves.

    Raises:
        RequestError: something is wrong; one line names the file and the place.
    """
    path = Path(path).expanduser()
    if path.suffix.lower() not in GRAPH_SUFFIXES:
        raise RequestError(f"{path}: a graph file ends in {', '.join(GRAPH_SUFFIXES)}")
    if not path.is_file():
        raise RequestError(f"{path}: no such file")
    if path.suffix.lower() == ".csv":
        return read_csv(path, names, directed=bool(directed))
    if directed is not None:
        raise RequestError(f"{path.name}: directed is for CSV files; a {path.suffix} file says itself what it is")
    return _read_npz(path, len(names)) if path.suffix.lower() == ".npz" else _read_graphml(path, names)


def read_csv(path: Path, names: Sequence[str], *, directed: bool = False) -> Found:
    """A graph from a CSV file with the header ``source,target`` or ``source,target,weight``.

    All ends are names of clients, or all are positions from 0; where both would do they are names.
    """
    try:
        reader = csv.reader(io.StringIO(path.read_text(encoding="utf-8-sig")))
    except UnicodeDecodeError:
        raise RequestError(f"{path.name}: not a text file in UTF-8") from None
    header = [cell.strip().lower() for cell in next(reader, [])]
    if header not in (["source", "target"], ["source", "target", "weight"]):
        raise RequestError(
            f"{path.name} line 1: the header must be source,target or source,target,weight, not {','.join(header)!r}"
        )
    rows: list[Row] = []
    try:
        for cells in reader:
            where = f"{path.name} line {reader.line_num}"
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) != len(header):
                raise RequestError(f"{where}: {len(cells)} values, the header has {len(header)}")
            rows.append((where, tuple(cell.strip() for cell in cells)))
    except csv.Error as error:
        raise RequestError(f"{path.name} line {reader.line_num}: not readable as CSV ({error})") from None
    return graph_of_rows(rows, names, path.name, directed=directed, text=True)


def _read_npz(path: Path, clients: int) -> Found:
    arrays = npz_arrays(path)
    if "adjacency" in arrays:
        return graph_of_adjacency(arrays["adjacency"], clients, path.name)
    if "format" in arrays and "shape" in arrays:
        return graph_of_adjacency(_Sparse(arrays, path.name), clients, path.name)
    if "n" not in arrays or "edges" not in arrays:
        found = ", ".join(sorted(arrays)) or "nothing"
        raise RequestError(f"{path.name}: needs n and edges, an adjacency, or a scipy.sparse matrix, but holds {found}")
    graph, notes = ClientGraph.from_arrays(arrays, path.name)
    if graph.n != clients:
        raise wrong_size(path.name, graph.n, clients)
    return graph, notes


class _Sparse:
    """What `scipy.sparse.save_npz` writes (csr, csc or coo), read without SciPy."""

    def __init__(self, arrays: dict[str, npt.NDArray[Any]], source: str) -> None:
        kind = str(arrays["format"].item().decode() if arrays["format"].dtype.kind == "S" else arrays["format"])
        needed = {"coo": ("row", "col"), "csr": ("indices", "indptr"), "csc": ("indices", "indptr")}
        if kind not in needed or any(name not in arrays for name in (*needed[kind], "data")):
            raise RequestError(f"{source}: a sparse matrix in the form csr, csc or coo is needed, not {kind!r}")
        for name in ("shape", "data", *needed[kind]):
            if arrays[name].ndim != 1 or arrays[name].dtype.kind not in ("biuf" if name == "data" else "iu"):
                raise RequestError(f"{source}: not a sound sparse matrix ({name} is not a list of numbers that fit)")
        self.shape = tuple(int(size) for size in arrays["shape"]) or (0,)
        self.data = arrays["data"]
        if kind == "coo":
            self.row, self.col = arrays["row"], arrays["col"]
        else:
            starts = arrays["indptr"].astype(np.int64)
            if len(starts) < 2 or starts[0] != 0 or starts[-1] != len(self.data) or (np.diff(starts) < 0).any():
                raise RequestError(f"{source}: not a sound sparse matrix (indptr and data do not fit)")
            outer = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
            inner = arrays["indices"]
            self.row, self.col = (outer, inner) if kind == "csr" else (inner, outer)
            if len(starts) - 1 != self.shape[0 if kind == "csr" else -1]:
                raise RequestError(f"{source}: not a sound sparse matrix (indptr and shape do not fit)")
        if not len(self.row) == len(self.col) == len(self.data):
            raise RequestError(f"{source}: not a sound sparse matrix (indices and data do not fit)")

    def tocoo(self) -> _Sparse:
        return self


def _read_graphml(path: Path, names: Sequence[str]) -> Found:
    try:
        import networkx as nx  # noqa: PLC0415  (heavy)
    except ImportError:
        raise RequestError(f"{path.name}: reading GraphML needs networkx; run `pip install networkx`") from None
    try:
        graph = nx.read_graphml(path)
    except Exception as error:  # networkx lets through whatever its parsers raise
        reason = str(error).partition("\n")[0]
        raise RequestError(f"{path.name}: not a readable GraphML file ({reason})") from None
    return graph_of_networkx(graph, names, path.name)
