r"""The initial embeddings h0 of clients: what the encoder is given, and what a newcomer gets for it.

h0            a client that trains                                  a newcomer                         spec
learned       a row N(0, I), trained with the hypernetwork          novel_h0 (default neighbours)      E1, E2
fixed         a row N(0, I), never trained                          novel_h0 (default random)          E3
laplacian     eigenvectors of the graph's normalised Laplacian      novel_h0 (default neighbours)      E4
random_walk   probability to be back home after 1, 2, ... steps     its own, from the full graph       E4
features      side information of the data set, standardised        its own                            E5

A newcomer's row by novel_h0:

    neighbours    the weighted mean of its training neighbours' rows (E2); the mean of all, if it has none
    mean          the mean of all rows
    random        a fresh row N(0, I) (E1)
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from panacea.core.random import Streams, uniform
from panacea.errors import RequestError
from panacea.graphs import ClientGraph

__all__ = ["FIXED", "H0", "NovelH0", "initial_rows", "newcomer_rows"]

H0: TypeAlias = Literal["learned", "fixed", "laplacian", "random_walk", "features"]
NovelH0: TypeAlias = Literal["auto", "neighbours", "mean", "random"]
FIXED = ("fixed", "laplacian", "random_walk", "features")
OWN = ("random_walk", "features")  # a newcomer has a row of its own

_MANY = 5_000  # nodes above which positional encodings, computed densely, are refused
Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]


def initial_rows(
    h0: H0, ids: Ids, graph: ClientGraph | None, features: npt.NDArray[np.float32] | None, width: int, streams: Streams
) -> Floats:
    """``[rows, width]``: h0 of the clients `ids`, nodes 0 .. rows-1 of `graph`; E4 and E5 have a width of their own."""
    if h0 in ("learned", "fixed"):
        return _random_rows(ids, width, streams)
    if h0 == "features":
        if features is None:
            raise RequestError("method.h0=features: this data set knows no features of its clients; use h0=learned")
        return _standardised(features[ids].astype(np.float64), features[ids].astype(np.float64))
    if graph is None:
        raise RequestError(f"method.h0={h0} needs a relation graph; this run has none")
    if not 2 <= graph.n <= _MANY:
        raise RequestError(f"method.h0={h0} is computed for 2 to {_MANY} clients; {graph.n} train here")
    steps = min(width, 32)
    rows = _laplacian(graph, steps) if h0 == "laplacian" else _returns(graph, min(steps, 16))
    return _standardised(rows, rows)


def newcomer_rows(
    h0: H0,
    rule: NovelH0,
    table: Tensor,
    known: Ids,
    newcomers: Ids,
    graph: ClientGraph | None,
    features: npt.NDArray[np.float32] | None,
    streams: Streams,
) -> Tensor:
    """``[newcomers, width]``: h0 of clients without a row in `table`, whose rows are those of the clients `known`."""
    if h0 in OWN:
        source = features if h0 == "features" else None if graph is None else _returns(graph, table.shape[1])
        if source is None:
            raise RequestError(
                f"method.h0={h0}: a newcomer needs {'features' if h0 == 'features' else 'links'} of its own"
            )
        if len(source) <= int(newcomers.max()) or not np.isfinite(source[newcomers]).all():
            raise RequestError("method.h0=features: a newcomer needs features of its own")
        reference = source[known] if graph is None or h0 == "features" else _returns(graph.take(known), table.shape[1])
        # by the statistics the training rows were standardised with
        rows = _standardised(source[newcomers].astype(np.float64), reference.astype(np.float64))
        return torch.as_tensor(rows, dtype=table.dtype, device=table.device)
    if rule == "auto":
        rule = "random" if h0 == "fixed" else "neighbours"
    if rule == "random":
        rows = _random_rows(newcomers, table.shape[1], streams)
        return torch.as_tensor(rows, dtype=table.dtype, device=table.device)
    middle = table.mean(dim=0)
    if rule == "mean" or graph is None:
        return middle.expand(len(newcomers), -1)
    return _neighbour_means(table, known, newcomers, graph, middle)


def _neighbour_means(table: Tensor, known: Ids, newcomers: Ids, graph: ClientGraph, middle: Tensor) -> Tensor:
    place = np.full(graph.n, -1, np.int64)
    place[newcomers] = np.arange(len(newcomers))
    row = np.full(graph.n, -1, np.int64)
    row[known] = np.arange(len(known))
    sources, targets, weights = graph.arcs()
    here = (place[targets] >= 0) & (row[sources] >= 0)
    to = torch.from_numpy(place[targets[here]]).to(table.device)
    weight = torch.as_tensor(weights[here], dtype=table.dtype, device=table.device)
    said = table[torch.from_numpy(row[sources[here]]).to(table.device)] * weight.unsqueeze(-1)
    total = table.new_zeros(len(newcomers), table.shape[1]).index_add(0, to, said)
    strength = table.new_zeros(len(newcomers)).index_add(0, to, weight).unsqueeze(-1)
    return torch.where(strength > 0, total / strength.clamp_min(1e-30), middle)


def _random_rows(ids: Ids, width: int, streams: Streams) -> Floats:
    """N(0, I) rows keyed by client, so that a client's row does not depend on who else there is."""
    drawn = uniform(streams.keys("client embedding", 0, ids), 2 * ((width + 1) // 2))
    radius, turn = np.sqrt(-2 * np.log1p(-drawn[:, ::2])), 2 * np.pi * drawn[:, 1::2]
    return np.concatenate([radius * np.cos(turn), radius * np.sin(turn)], axis=1)[:, :width]


def _laplacian(graph: ClientGraph, count: int) -> Floats:
    """Eigenvectors of I - D^-1/2 A D^-1/2 with the smallest eigenvalues, the first (constant) one left out."""
    adjacency = graph.dense().astype(np.float64)
    adjacency = np.maximum(adjacency, adjacency.T)
    scale = 1 / np.sqrt(np.maximum(adjacency.sum(axis=1), 1e-12))
    _, vectors = np.linalg.eigh(np.eye(graph.n) - scale[:, None] * adjacency * scale)
    chosen = vectors[:, 1 : count + 1]
    largest = np.abs(chosen).argmax(axis=0)
    signs = np.sign(chosen[largest, np.arange(chosen.shape[1])])  # a sign for certain
    return np.asarray(chosen * signs)


def _returns(graph: ClientGraph, count: int) -> Floats:
    """Probability that a random walk from i is at i after 1 .. count steps."""
    if graph.n > _MANY:
        raise RequestError(f"method.h0=random_walk is computed for at most {_MANY} clients; here are {graph.n}")
    walk = graph.dense().astype(np.float64)
    walk /= np.maximum(walk.sum(axis=1, keepdims=True), 1e-12)
    power, home = np.eye(graph.n), []
    for _ in range(count):
        power = power @ walk
        home.append(np.diagonal(power).copy())
    return np.stack(home, axis=1)


def _standardised(rows: Floats, reference: Floats) -> Floats:
    spread = reference.std(axis=0)
    return np.asarray((rows - reference.mean(axis=0)) / np.where(spread > 1e-9, spread, 1.0))
