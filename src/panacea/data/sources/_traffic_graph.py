r"""Who is near whom on the road: DCRNN's adjacency, or road distances through a Gaussian kernel.

    w_ij = exp(-d_ij^2 / sigma^2)  where that is at least the threshold, d_ij the road distance from i to j

In DCRNN sigma is the standard deviation of the listed distances and the threshold 0.1; a pair that is not listed is
infinitely far. An edge (i, j) means that j listens to i, from which its traffic comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from panacea.data.pickles import read_pickle
from panacea.data.reading import file_text, npz_arrays
from panacea.data.sources._tables import csv_lines, csv_places
from panacea.errors import RequestError
from panacea.graphs import ClientGraph

__all__ = ["Roads", "kernel_graph", "read_roads"]

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Roads:
    """A directed, weighted graph over sensors, and the file it comes from."""

    ids: tuple[str, ...]
    graph: ClientGraph
    source: str

    def between(self, ids: Sequence[str], path: Path) -> ClientGraph:
        """The graph of these sensors, in this order; `path` is where they are from."""
        place = {sensor: node for node, sensor in enumerate(self.ids)}
        unknown = [(column, sensor) for column, sensor in enumerate(ids) if sensor not in place]
        if unknown:
            column, sensor = unknown[0]
            raise RequestError(
                f"{path}: sensor '{sensor}' (column {column}, from 0) is not in the graph of {self.source}, which has "
                f"{len(self.ids)} sensors" + (f"; {len(unknown)} such sensors" if len(unknown) > 1 else "")
            )
        return self.graph.take(np.array([place[sensor] for sensor in ids], np.int64))


def kernel_graph(distances: Floats, sigma: float | None = None, threshold: float = 0.1) -> ClientGraph:
    """The directed graph of a matrix of distances ``[from, to]``, infinite where none is known; see the module.

    >>> kernel_graph(np.array([[0, 1, 5], [2, 0, 1], [np.inf, 9, 0]], np.float32), sigma=2).edges.tolist()
    [[0, 1], [1, 0], [1, 2]]
    """
    known = distances[np.isfinite(distances)]
    width = np.float32(known.std() if sigma is None and known.size else sigma or 0)
    if not width > 0:
        raise RequestError("distances: all are the same, so their standard deviation gives no kernel")
    with np.errstate(over="ignore"):
        weights = np.exp(-np.square(distances / width))
    np.fill_diagonal(weights, 0)
    edges = np.argwhere(weights >= threshold)
    return ClientGraph(len(distances), edges, weights[edges[:, 0], edges[:, 1]].astype(np.float32), directed=True)


def read_roads(
    adjacency: Path | None, distances: Path | None, listed: Path | None, arrays: Path | None, ids: Sequence[str]
) -> Roads | None:
    """The graph from the first of these files that is there.

    Args:
        adjacency: DCRNN's pickle (ids, positions, matrix).
        distances: lines ``from,to,metres``.
        listed: the sensors that the kernel of the distances is for: ids in a line, or a table of places.
        arrays: an npz with `adj_mx` and `sensor_ids`.
        ids: the sensors for the distances where nothing lists them.
    """
    if adjacency is not None:
        return _of_pickle(adjacency)
    if distances is not None:
        sensors = tuple(ids) if listed is None else _once(listed, _listed(listed))
        metres = _distances(distances, sensors)
        try:
            return Roads(sensors, kernel_graph(metres), distances.name)
        except RequestError as error:
            raise RequestError(f"{distances}: {error}") from None
    if arrays is not None and len(found := npz_arrays(arrays, (), ("adj_mx", "sensor_ids"))) == 2:
        sensors = tuple(str(sensor) for sensor in found["sensor_ids"].ravel().tolist())
        return _of_matrix(arrays, sensors, found["adj_mx"])
    return None


def _of_pickle(path: Path) -> Roads:
    content = read_pickle(path)
    if (
        not isinstance(content, list | tuple)
        or len(content) != 3
        or not isinstance(content[0], list | tuple)
        or not all(isinstance(item, str | bytes | int) for item in content[0])
    ):
        raise RequestError(f"{path}: needs a list of sensor ids, their positions and the adjacency matrix")
    ids = tuple(item.decode("latin-1") if isinstance(item, bytes) else str(item) for item in content[0])
    return _of_matrix(path, ids, content[2])


def _of_matrix(path: Path, ids: tuple[str, ...], matrix: Any) -> Roads:
    if not isinstance(matrix, np.ndarray) or matrix.shape != (len(ids), len(ids)) or matrix.dtype.kind not in "fiu":
        what = f"{matrix.dtype} {list(matrix.shape)}" if isinstance(matrix, np.ndarray) else type(matrix).__name__
        raise RequestError(f"{path}: the adjacency matrix is {what}, not numbers [{len(ids)}, {len(ids)}]")
    _once(path, ids)
    matrix = np.array(matrix, np.float32)
    np.fill_diagonal(matrix, 0)  # every sensor is near itself; no edge
    wrong = np.argwhere(~(np.isfinite(matrix) & (matrix >= 0)))
    if len(wrong):
        row, column = wrong[0]
        raise RequestError(
            f"{path}: the adjacency matrix has {matrix[row, column]} at [{row}, {column}]; weights are at least 0"
        )
    edges = np.argwhere(matrix)
    return Roads(ids, ClientGraph(len(ids), edges, matrix[edges[:, 0], edges[:, 1]], directed=True), path.name)


def _once(path: Path, ids: tuple[str, ...]) -> tuple[str, ...]:
    """The ids, none of which may be there twice."""
    if len(set(ids)) < len(ids):
        twice = next(sensor for place, sensor in enumerate(ids) if sensor in ids[:place])
        raise RequestError(f"{path}: sensor '{twice}' is listed twice")
    return ids


def _listed(path: Path) -> tuple[str, ...]:
    if path.suffix == ".txt":
        return tuple(part.strip() for part in file_text(path).replace("\n", ",").split(",") if part.strip())
    return tuple(csv_places(path))


def _distances(path: Path, ids: Sequence[str]) -> Floats:
    """``[from, to]`` in metres; lines about other sensors do not matter."""
    place = {sensor: node for node, sensor in enumerate(ids)}
    found = np.full((len(ids), len(ids)), np.inf, np.float32)
    lines = csv_lines(path)
    header = int(lines[0].lower().replace(" ", "").startswith("from,to"))
    for number, line in enumerate(lines[header:], header + 1):
        parts = line.split(",")
        try:
            first, second, metres = parts[0].strip(), parts[1].strip(), float(parts[2])
            if len(parts) != 3 or not 0 <= metres < np.inf:
                raise ValueError
        except (ValueError, IndexError):
            raise RequestError(f"{path} line {number}: needs from,to,metres; it is '{line[:60]}'") from None
        if first in place and second in place:
            found[place[first], place[second]] = metres
    return found
