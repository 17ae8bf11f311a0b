"""A graph in numbers, by hand and against networkx."""

from __future__ import annotations

import json

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import panacea as pn
from panacea.data.profile import client_profiles, label_shares
from panacea.experiment.relations import graph_summary
from panacea.graphs import ClientGraph, build
from panacea.graphs import summary as module
from panacea.graphs.summary import components, homophily, summarise


def path(n: int) -> ClientGraph:
    return ClientGraph.from_edges(n, [(i, i + 1) for i in range(n - 1)])[0]


def test_every_number_of_a_small_graph():
    graph, _ = ClientGraph.from_edges(7, [(0, 1), (1, 2), (3, 4), (4, 5)], [1.0, 2.0, 1.0, 1.0])
    novel = np.array([0, 0, 0, 0, 1, 0, 0], bool)
    found = summarise(graph, np.array([[0.0], [0.0], [0.0], [1.0], [1.0], [1.0], [1.0]]), novel)
    assert found.to_dict() == {
        "nodes": 7, "edges": 4, "directed": False, "weighted": True, "density": 4 / 21, "components": 3,
        "isolated": 1, "degree_min": 0, "degree_mean": 8 / 7, "degree_max": 2, "rank": 7, "homophily": 1.0,
        "trained": 6, "novel": 1, "cut_off": 2,
    }  # fmt: skip
    json.dumps(found.to_dict(), allow_nan=False)


def test_a_directed_graph_counts_both_directions_and_listens_one_way():
    graph, _ = ClientGraph.from_edges(4, [(0, 1), (1, 0), (2, 1)], directed=True)
    found = summarise(graph)
    assert (found.directed, found.density, found.components, found.isolated) == (True, 3 / 12, 2, 1)
    assert (found.degree_min, found.degree_max, found.homophily) == (0, 2, None)
    assert summarise(graph, novel=np.array([1, 0, 1, 0], bool)).cut_off == 1  # client 1 heard only 0 and 2


@pytest.mark.parametrize(("graph", "rank"), [(build.complete(6), 1), (build.empty(6), 6), (path(6), 6), (path(5), 4)])
def test_rank_of_averaging_with_oneself(graph: ClientGraph, rank: int):
    assert summarise(graph).rank == rank


@pytest.mark.parametrize("n", [3, 4, 6, 7, 9, 12])
def test_cycles_of_a_multiple_of_three_lose_two(n: int):
    cycle, _ = ClientGraph.from_edges(n, [(i, (i + 1) % n) for i in range(n)])
    assert summarise(cycle).rank == (n - 2 if n % 3 == 0 else n)


def test_no_rank_of_a_large_graph():
    assert summarise(build.empty(2001)).rank is None


@given(st.integers(1, 40), st.floats(0, 0.2), st.integers(0, 99))
@settings(max_examples=50, deadline=None)
def test_components_as_networkx_finds_them(n: int, density: float, seed: int):
    graph = build.random(n, density, seed=seed)
    other = nx.Graph(graph.edges.tolist())
    other.add_nodes_from(range(n))
    found = components(graph)
    assert sorted(map(sorted, nx.connected_components(other))) == sorted(
        np.flatnonzero(found == part).tolist() for part in range(found.max() + 1)
    )


def test_a_long_path_in_any_order_is_one_part():
    order = np.random.default_rng(0).permutation(20_000)
    assert components(path(20_000).take(order)).max() == 0


def test_homophily_by_hand():
    points = np.array([[0.0], [1.0], [3.0]])  # distances 1, 2, 3, mean 2
    assert homophily(path(3), points) == pytest.approx(1 - 1.5 / 2)
    far, _ = ClientGraph.from_edges(3, [(0, 2)])
    assert homophily(far, points) == pytest.approx(-0.5)
    assert homophily(build.complete(3), points) == pytest.approx(0.0)
    assert homophily(build.empty(3), points) is None
    assert homophily(path(3), np.ones((3, 2))) is None


def test_homophily_from_drawn_pairs_is_near_the_exact_one(monkeypatch: pytest.MonkeyPatch):
    points = np.random.default_rng(0).standard_normal((80, 2))
    graph = build.knn(points, 3)
    exact = homophily(graph, points)
    monkeypatch.setattr(module, "_ALL_PAIRS_UP_TO", 2000)
    assert homophily(graph, points) == pytest.approx(exact, abs=0.03)
    assert homophily(graph, points) == homophily(graph, points)


def test_profiles_come_from_the_train_split_alone():
    fed = pn.load("digits", clients=6, groups=3, seed=1)
    shares = label_shares(fed)
    for i in range(6):
        labels = fed.client(i, "train")[1].numpy()
        assert shares[i].tolist() == (np.bincount(labels, minlength=10) / len(labels)).tolist()
    points = client_profiles(fed)
    hellinger = np.sqrt(((np.sqrt(shares[0]) - np.sqrt(shares[1])) ** 2).sum() / 2)
    assert np.linalg.norm(points[0] - points[1]) == pytest.approx(hellinger)
    x = [np.ones((10, 2), np.float32)] * 3
    y = [np.full(10, value, np.float32) for value in (0.0, 2.0, 4.0)]
    amounts = pn.Federation.from_arrays(x, y, edges=[(0, 1)])
    assert client_profiles(amounts)[:, 0].tolist() == pytest.approx([0, 2 / np.sqrt(8 / 3), 4 / np.sqrt(8 / 3)])


def test_a_federation_of_groups_is_homophilous():
    summary = graph_summary(pn.load("digits"))
    assert summary is not None
    assert summary.homophily is not None
    assert summary.homophily > 0.4
    assert graph_summary(pn.load("digits", split="iid")) is None
