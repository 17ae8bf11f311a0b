"""Graphs made worse: what is kept, what is nested, what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from panacea.errors import RequestError
from panacea.graphs import ClientGraph, ablate, build

SHARES = st.floats(0, 1)
SEEDS = st.integers(0, 50)


def graph(n: int = 24, density: float = 0.25, directed: bool = False) -> ClientGraph:
    like = None
    if directed:
        count = round(density * n * (n - 1))
        like = ClientGraph(n, np.zeros((count, 2), np.int64), np.ones(count, np.float32), directed=True)
    base = build.random(n, None if directed else density, like=like, seed=7)
    weights = (1 + np.arange(len(base.edges), dtype=np.float32)) / 4
    return ClientGraph(n, base.edges, weights, directed)


def as_set(graph: ClientGraph) -> set[tuple[int, int]]:
    return {(int(a), int(b)) for a, b in graph.edges}


def sound(found: ClientGraph) -> None:
    again, notes = ClientGraph.from_edges(found.n, found.edges, found.weights, directed=found.directed)
    assert (again.edges == found.edges).all()
    assert not notes


@given(SHARES, SHARES, SEEDS, st.booleans())
@settings(max_examples=40, deadline=None)
def test_dropping_is_nested(one: float, two: float, seed: int, directed: bool):
    full = graph(directed=directed)
    less, more = (ablate.drop(full, share, seed) for share in sorted((one, two)))
    sound(less)
    assert len(full.edges) - len(less.edges) == round(min(one, two) * len(full.edges))
    assert as_set(more) <= as_set(less) <= as_set(full)
    weight = {tuple(edge): w for edge, w in zip(full.edges.tolist(), full.weights.tolist(), strict=True)}
    assert [weight[tuple(edge)] for edge in less.edges.tolist()] == less.weights.tolist()


@given(st.floats(0, 2), st.floats(0, 2), SEEDS, st.booleans())
@settings(max_examples=40, deadline=None)
def test_adding_is_nested_and_false(one: float, two: float, seed: int, directed: bool):
    full = graph(directed=directed)
    less, more = (ablate.add(full, share, seed) for share in sorted((one, two)))
    sound(more)
    assert len(less.edges) == len(full.edges) + round(min(one, two) * len(full.edges))
    assert as_set(full) <= as_set(less) <= as_set(more)
    assert set(more.weights.tolist()) <= set(full.weights.tolist())


@given(SHARES, SHARES, SEEDS, st.booleans())
@settings(max_examples=40, deadline=None)
def test_replacing_keeps_the_number_and_the_weights(one: float, two: float, seed: int, directed: bool):
    full = graph(directed=directed)
    less, more = (ablate.replace(full, share, seed) for share in sorted((one, two)))
    sound(more)
    assert len(as_set(full) - as_set(less)) == round(min(one, two) * len(full.edges))
    assert as_set(full) & as_set(more) <= as_set(full) & as_set(less)
    assert as_set(less) - as_set(full) <= as_set(more) - as_set(full)
    assert sorted(more.weights.tolist()) == sorted(full.weights.tolist())


@given(SHARES, SHARES, SEEDS, st.booleans())
@settings(max_examples=40, deadline=None)
def test_rewiring_keeps_every_degree(one: float, two: float, seed: int, directed: bool):
    full = graph(directed=directed)
    less, more = (ablate.rewire(full, share, seed) for share in sorted((one, two)))
    for found, share in ((less, min(one, two)), (more, max(one, two))):
        sound(found)
        for axis in (0, 1):
            assert (found.dense() > 0).sum(axis=axis).tolist() == (full.dense() > 0).sum(axis=axis).tolist()
        moved = len(as_set(full) - as_set(found))
        assert round(share * len(full.edges)) <= moved <= round(share * len(full.edges)) + 1
        assert sorted(found.weights.tolist()) == sorted(full.weights.tolist())
    assert as_set(full) & as_set(more) <= as_set(full) & as_set(less)


@given(SEEDS, st.booleans())
@settings(max_examples=20, deadline=None)
def test_shuffling_only_changes_places(seed: int, directed: bool):
    full = graph(directed=directed)
    found = ablate.shuffle(full, seed)
    sound(found)
    assert sorted(found.degree.tolist()) == sorted(full.degree.tolist())
    assert sorted(found.weights.tolist()) == sorted(full.weights.tolist())
    assert as_set(found) != as_set(full)


@pytest.mark.parametrize("change", [ablate.drop, ablate.add, ablate.replace, ablate.rewire])
def test_a_seed_decides_and_nothing_is_nothing(change: object):
    full = graph()
    call = change  # type: ignore[assignment]
    assert as_set(call(full, 0.3, 1)) == as_set(call(full, 0.3, 1))  # type: ignore[operator]
    assert as_set(call(full, 0.3, 1)) != as_set(call(full, 0.3, 2))  # type: ignore[operator]
    same = call(full, 0.0, 1)  # type: ignore[operator]
    assert (same.edges == full.edges).all()
    assert (same.weights == full.weights).all()
    assert call(build.empty(5), 0.5, 0).edges.shape == (0, 2)  # type: ignore[operator]
    for share in (-0.1, float("nan")) + ((1.5,) if change is not ablate.add else ()):
        with pytest.raises(RequestError, match="the share of edges must be"):
            call(full, share, 0)  # type: ignore[operator]


def test_a_full_graph_leaves_no_room():
    full = build.complete(6)
    with pytest.raises(RequestError, match=r"add=1.0: 15 false edges are asked for, but only 0 pairs are not linked"):
        ablate.add(full, 1.0)
    with pytest.raises(RequestError, match=r"replace=0.4: 6 false edges"):
        ablate.replace(full, 0.4)
    with pytest.raises(RequestError, match=r"rewire=0.5: only 0 of 8 edges could be moved with all degrees kept"):
        ablate.rewire(full, 0.5)
