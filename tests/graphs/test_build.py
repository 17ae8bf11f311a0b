"""Graphs made from what is known of the clients, or from nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import pdist, squareform

from panacea.errors import RequestError
from panacea.graphs import ClientGraph, build
from panacea.graphs import _pairs as pairs


def points(n: int = 40, d: int = 3) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((n, d))


@pytest.mark.parametrize("block", [1 << 22, 100])
def test_knn_names_the_k_nearest_in_any_blocks(block: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(build, "_BLOCK", block)
    x = points() + 1000.0  # far from the origin: the product form must not lose digits
    distance = squareform(pdist(x))
    wanted = np.zeros((40, 40), bool)
    for i in range(40):
        wanted[i, np.argsort(distance[i])[1:4]] = True
    graph = build.knn(x, k=3)
    assert ((graph.dense() > 0) == (wanted | wanted.T)).all()
    assert not graph.weighted
    assert (graph.degree >= 3).all()


def test_equal_clients_form_a_ring_not_a_star():
    assert build.knn(np.ones((6, 2)), k=1).degree.tolist() == [2] * 6
    assert build.knn(np.zeros((6, 2)), k=2).degree.tolist() == [4] * 6


@given(st.integers(2, 20), st.integers(0, 10**6), st.data())
@settings(max_examples=30, deadline=None)
def test_knn_does_not_depend_on_the_order_of_clients(n: int, seed: int, data: st.DataObject):
    k = data.draw(st.integers(1, n - 1))
    rng = np.random.default_rng(seed)
    x, order = rng.standard_normal((n, 2)), rng.permutation(n)
    assert (build.knn(x[order], k).dense() == build.knn(x, k).take(order).dense()).all()


@pytest.mark.parametrize("block", [1 << 22, 100])
def test_gaussian_weights_above_the_threshold(block: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(build, "_BLOCK", block)
    x = points()
    distance = pdist(x)
    assert build.distance_spread(x) == pytest.approx(distance.std(), rel=1e-6)
    wanted = squareform(np.exp(-(distance**2) / distance.std() ** 2))
    wanted[wanted < 0.1] = 0
    assert build.gaussian(x).dense() == pytest.approx(wanted, abs=1e-5)
    sharp = squareform(np.exp(-(distance**2) / 4))
    assert build.gaussian(x, sigma=2.0, threshold=0.5).dense() == pytest.approx(np.where(sharp >= 0.5, sharp, 0))


def test_complete_and_empty():
    assert (build.complete(5).dense() == 1 - np.eye(5)).all()
    assert build.complete(1).edges.shape == (0, 2)
    assert build.empty(4).n == 4
    assert not build.empty(4).dense().any()


@given(st.integers(2, 30), st.floats(0, 1), st.integers(0, 99))
@settings(max_examples=50, deadline=None)
def test_a_random_graph_has_the_density_asked_for(n: int, density: float, seed: int):
    graph = build.random(n, density, seed=seed)
    assert len(graph.edges) == round(density * n * (n - 1) / 2)
    again, _ = ClientGraph.from_edges(n, graph.edges)  # sound, sorted, each pair once
    assert (again.edges == graph.edges).all()
    assert (build.random(n, density, seed=seed).edges == graph.edges).all()


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("listed", [1 << 22, 0])
def test_random_graphs_are_nested_and_uniform(directed: bool, listed: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pairs, "_LISTED", listed)
    monkeypatch.setattr(pairs, "_BLOCK", 64)
    n, total = 12, pairs.number_of_pairs(12, directed)
    taken = np.arange(0, total, 5)
    codes = [pairs.random_codes(np.random.default_rng(3), n, directed, m, taken) for m in (1, 10, 40)]
    assert codes[2][:10].tolist() == codes[1].tolist()
    assert codes[1][:1].tolist() == codes[0].tolist()
    assert len(set(codes[2].tolist())) == 40
    assert not set(codes[2].tolist()) & set(taken.tolist())
    counts = np.zeros(total)
    rng = np.random.default_rng(0)
    for _ in range(2000):
        counts[pairs.random_codes(rng, n, directed, 5, taken)] += 1
    free = np.delete(counts, taken)
    expected = 10_000 / len(free)
    assert ((free - expected) ** 2 / expected).sum() < 2 * len(free)  # chi-squared, mean len(free) - 1
    assert counts[taken].sum() == 0


@pytest.mark.parametrize("directed", [False, True])
def test_pairs_are_numbered_without_gaps(directed: bool):
    n = 7
    total = pairs.number_of_pairs(n, directed)
    found = pairs.pair_of(np.arange(total), n, directed)
    assert pairs.code_of(found, n, directed).tolist() == list(range(total))
    assert len({tuple(pair) for pair in found.tolist()}) == total
    assert (found[:, 0] != found[:, 1]).all()
    assert ((found >= 0) & (found < n)).all()
    assert directed or (found[:, 0] < found[:, 1]).all()


def test_random_like_a_graph():
    like, _ = ClientGraph.from_edges(9, [(0, 1), (1, 0), (3, 2)], [2.0, 3.0, 4.0], directed=True)
    graph = build.random(9, like=like, seed=4)
    assert (len(graph.edges), graph.directed, graph.weighted) == (3, True, False)
    assert (build.random(9, like=like, seed=5).edges != graph.edges).any()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: build.knn(points(), 0), "k=0: each client can have 1..39 nearest neighbours"),
        (lambda: build.knn(points(), 40), "k=40"),
        (lambda: build.knn(points()[0]), "one row of numbers per client is needed, not an array [3]"),
        (lambda: build.knn([[0.0], [np.nan]], 1), "client 1 has NaN or inf"),
        (lambda: build.gaussian(np.ones((5, 2))), "sigma=0.0"),
        (lambda: build.gaussian(points(), threshold=0.0), "threshold=0.0"),
        (lambda: build.gaussian(points(), sigma=-1.0), "sigma=-1.0"),
        (lambda: build.random(5), "give a density"),
        (lambda: build.random(5, 1.5), "density=1.5: must be from 0 to 1"),
        (lambda: build.complete(10_000), "complete: more than 20,000,000 edges"),
    ],
)
def test_what_cannot_be_built_is_one_line(call: object, words: str):
    with pytest.raises(RequestError) as caught:
        call()  # type: ignore[operator]
    assert words in str(caught.value)
