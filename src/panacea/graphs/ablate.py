"""A relation graph made worse on purpose, to see how much a method leans on it.

Every share is of the number of edges, rounded. All choices follow from the seed, and a smaller share is part of a
larger one: the edges dropped (added, replaced, rewired) at 0.2 are among those at 0.4.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from panacea.core.random import Streams
from panacea.errors import RequestError
from panacea.graphs._pairs import code_of, number_of_pairs, pair_of, random_codes
from panacea.graphs.client_graph import ClientGraph

__all__ = ["add", "drop", "replace", "rewire", "shuffle"]

_TRIES, _PASSES = 100, 4  # partners tried for an edge, and how often it is tried again


def drop(graph: ClientGraph, share: float, seed: int = 0) -> ClientGraph:
    """The graph without a share of its edges."""
    gone = _chosen(graph, share, "drop", seed)
    keep = np.ones(len(graph.edges), np.bool_)
    keep[gone] = False
    return ClientGraph(graph.n, graph.edges[keep], graph.weights[keep], graph.directed)


def add(graph: ClientGraph, share: float, seed: int = 0) -> ClientGraph:
    """The graph with false edges: as many as this share of its edges, between pairs it does not link.

    Each has the weight of an edge drawn at random.
    """
    count = _count(graph, share, "add", most=None)
    pairs = _false_pairs(graph, share, count, "add", seed)
    drawn = Streams(seed).numpy("weights of added edges").random(count)
    weights = graph.weights[(drawn * len(graph.weights)).astype(np.int64)]
    return _joined(graph, np.ones(len(graph.edges), np.bool_), pairs, weights)


def replace(graph: ClientGraph, share: float, seed: int = 0) -> ClientGraph:
    """A share of the edges removed and as many false ones put in, each with the weight of the one it replaces."""
    gone = _chosen(graph, share, "replace", seed)
    pairs = _false_pairs(graph, share, len(gone), "replace", seed)
    keep = np.ones(len(graph.edges), np.bool_)
    keep[gone] = False
    return _joined(graph, keep, pairs, graph.weights[gone])


def shuffle(graph: ClientGraph, seed: int = 0) -> ClientGraph:
    """The same graph over clients that have changed places at random."""
    return graph.take(Streams(seed).numpy("shuffled graph").permutation(graph.n))


def rewire(graph: ClientGraph, share: float, seed: int = 0) -> ClientGraph:
    """A share of the edges led elsewhere while every client keeps its degree (directed: in- and out-degree).

    Two edges (a, b) and (c, d) become (a, d) and (c, b), or in an undirected graph (a, c) and (b, d), never where an
    edge was before, until the share is reached (edges move in pairs, so one more may). Weights stay with the edge that
    keeps its first end.

    Raises:
        RequestError: so many edges cannot be moved with all degrees kept (in a complete graph none can).
    """
    wanted = _count(graph, share, "rewire")
    order = _chosen(graph, 1.0, "rewire", seed).tolist()
    stream = Streams(seed).numpy("rewired edges")
    edges = [(int(a), int(b)) for a, b in graph.edges]
    before, now, moved = frozenset(edges), set(edges), set[int]()

    def swapped(place: int, partner: int, turn: bool) -> bool:
        (a, b), (c, d) = edges[place], edges[partner]
        if turn and not graph.directed:
            c, d = d, c
        one, two = ((a, d), (c, b)) if graph.directed else ((min(a, d), max(a, d)), (min(c, b), max(c, b)))
        if a == d or c == b or one == two or any(pair in now or pair in before for pair in (one, two)):
            return False
        now.difference_update((edges[place], edges[partner]))
        now.update((one, two))
        edges[place], edges[partner] = one, two
        moved.update((place, partner))
        return True

    for place in order * _PASSES:  # an edge that is stuck may come loose when others have moved
        if len(moved) >= wanted:
            break
        if place not in moved:
            tries = zip(stream.integers(0, len(edges), _TRIES).tolist(), stream.random(_TRIES).tolist(), strict=True)
            partners = sorted(((partner, u < 0.5) for partner, u in tries), key=lambda pair: pair[0] in moved)
            any(partner != place and swapped(place, partner, turn) for partner, turn in partners)
    if len(moved) < wanted:
        found = f"only {len(moved)} of {wanted} edges could be moved with all degrees kept"
        raise RequestError(f"rewire={share}: {found}; choose a smaller share")
    pairs = np.array(edges, np.int64).reshape(-1, 2)
    return ClientGraph.from_edges(graph.n, pairs, graph.weights, "rewire", directed=graph.directed)[0]


def _count(graph: ClientGraph, share: float, what: str, most: float | None = 1.0) -> int:
    if not (np.isfinite(share) and share >= 0 and (most is None or share <= most)):
        allowed = "at least 0" if most is None else f"from 0 to {most:g}"
        raise RequestError(f"{what}={share}: the share of edges must be {allowed}")
    return round(share * len(graph.edges))


def _chosen(graph: ClientGraph, share: float, what: str, seed: int) -> npt.NDArray[np.int64]:
    """Places of a share of the edges, in random order."""
    count = _count(graph, share, what)
    return Streams(seed).numpy(f"{what} edges").permutation(len(graph.edges))[:count].astype(np.int64)


def _false_pairs(graph: ClientGraph, share: float, count: int, what: str, seed: int) -> npt.NDArray[np.int64]:
    taken = code_of(graph.edges, graph.n, graph.directed)
    free = number_of_pairs(graph.n, graph.directed) - len(taken)
    if count > free:
        raise RequestError(f"{what}={share}: {count} false edges are asked for, but only {free} pairs are not linked")
    stream = Streams(seed).numpy(f"{what} false edges")
    return pair_of(random_codes(stream, graph.n, graph.directed, count, taken), graph.n, graph.directed)


def _joined(
    graph: ClientGraph, keep: npt.NDArray[np.bool_], pairs: npt.NDArray[np.int64], weights: npt.NDArray[np.float32]
) -> ClientGraph:
    edges = np.concatenate([graph.edges[keep], pairs])
    values = np.concatenate([graph.weights[keep], weights])
    return ClientGraph.from_edges(graph.n, edges, values, directed=graph.directed)[0]
