"""Places in the plane for the clients of a graph that have no coordinates."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from panacea.core.random import Streams
from panacea.graphs.client_graph import ClientGraph
from panacea.graphs.summary import components

__all__ = ["force_layout"]

Points = npt.NDArray[np.float64]


def force_layout(graph: ClientGraph, seed: int = 0) -> Points:
    """A place per client, ``[n, 2]``: linked clients near each other, parts that are not linked beside each other.

    Every connected part is laid out by the forces of Fruchterman and Reingold (1991), linked clients attracting each
    other with d²/k and all repelling each other with k²/d, from a start by the seed; then the parts are put in rows,
    the largest first.
    """
    part = components(graph)
    sizes = np.bincount(part)
    plain = graph.undirected()
    boxes: list[tuple[npt.NDArray[np.int64], Points]] = []
    for which in np.argsort(-sizes, kind="stable"):
        members = np.flatnonzero(part == which)
        places = _forces(plain.take(members), Streams(seed).numpy("graph layout", client=int(which)))
        boxes.append((members, places))
    return _rows(boxes, graph.n)


def _forces(graph: ClientGraph, stream: np.random.Generator) -> Points:
    """One connected part, mean distance of linked clients about 1, lying along the x axis."""
    n = graph.n
    if n == 1:
        return np.zeros((1, 2))
    steps = int(np.clip(40_000_000 / n**2, 60, 300))
    places: npt.NDArray[np.float32] = _start(graph, stream).astype(np.float32)
    a, b = graph.edges[:, 0], graph.edges[:, 1]
    heat = np.sqrt(n) / 4
    for step in range(steps):
        norms = (places**2).sum(axis=1)
        push = 1 / np.maximum(norms[:, None] + norms - 2 * places @ places.T, 1e-2)  # 1 / d², everyone from everyone
        np.fill_diagonal(push, 0)
        force = places * push.sum(axis=1, keepdims=True) - push @ places
        pull = places[a] - places[b]
        pull *= np.sqrt((pull**2).sum(axis=1, keepdims=True))
        np.subtract.at(force, a, pull)
        np.add.at(force, b, pull)
        length = np.sqrt((force**2).sum(axis=1, keepdims=True))
        places += force / np.maximum(length, 1e-6) * np.minimum(length, heat * (1 - step / steps) ** 1.5)
    centred = places.astype(np.float64) - places.mean(axis=0)
    centred = centred @ np.linalg.svd(centred, full_matrices=False)[2].T
    around = np.sqrt(((centred[a] - centred[b]) ** 2).sum(axis=1)).mean()
    return np.asarray(centred / max(float(around), 1e-9), np.float64)


def _start(graph: ClientGraph, stream: np.random.Generator) -> Points:
    """Small parts by the two slowest modes of the graph, which unfolds them; large ones at random."""
    spread = np.sqrt(graph.n)
    noise = stream.standard_normal((graph.n, 2))
    if not 3 < graph.n <= 600:
        return np.asarray(noise * spread / 2)
    adjacency = (graph.dense() > 0).astype(np.float64)
    scale = 1 / np.sqrt(adjacency.sum(axis=1))
    modes = np.linalg.eigh(np.eye(graph.n) - scale[:, None] * adjacency * scale)[1][:, 1:3] * scale[:, None]
    modes /= np.maximum(np.abs(modes).max(axis=0), 1e-12)
    return np.asarray(modes * spread / 2 + 0.05 * noise)


def _rows(boxes: list[tuple[npt.NDArray[np.int64], Points]], n: int) -> Points:
    """Parts side by side in rows; where one part holds most clients, the others go below it."""
    gap = 0.6
    sides = [np.ptp(places, axis=0) + gap for _, places in boxes]
    wide = 0.0 if 2 * len(boxes[0][0]) > n else 1.5 * float(np.sqrt(sum(side[0] * side[1] for side in sides)))
    width = max(float(sides[0][0]), wide)
    found = np.zeros((n, 2))
    x = y = height = 0.0
    for (members, places), side in zip(boxes, sides, strict=True):
        if x > 0 and x + side[0] > width + 1e-9:
            x, y, height = 0.0, y - height, 0.0
        found[members] = places - places.min(axis=0) + [x, y - side[1]]
        x, height = x + float(side[0]), max(height, float(side[1]))
    return found
