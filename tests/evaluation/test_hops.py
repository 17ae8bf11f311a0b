"""Distances from attackers on graphs small enough to count on one's fingers, and what they are averaged into."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from panacea.evaluation.hops import damage_by_hops, hop_distances
from panacea.graphs import ClientGraph


def _graph(n: int, edges: list[tuple[int, int]], directed: bool = False) -> ClientGraph:
    return ClientGraph.from_edges(n, edges, directed=directed)[0]


def _who(n: int, *attackers: int) -> np.ndarray:
    who = np.zeros(n, bool)
    who[list(attackers)] = True
    return who


def test_distances_by_hand() -> None:
    #  0 - 1 - 2 - 3 - 4    5 - 6    7
    #      |_______|
    graph = _graph(8, [(0, 1), (1, 2), (2, 3), (3, 4), (1, 3), (5, 6)])
    assert hop_distances(graph, _who(8, 0)).tolist() == [0, 1, 2, 2, 3, math.inf, math.inf, math.inf]
    assert hop_distances(graph, _who(8, 0, 6)).tolist() == [0, 1, 2, 2, 3, 1, 0, math.inf]
    assert hop_distances(graph, _who(8, 0, 4)).tolist() == [0, 1, 2, 1, 0, math.inf, math.inf, math.inf]  # the nearest
    assert hop_distances(graph, _who(8)).tolist() == [math.inf] * 8
    assert hop_distances(graph, ~_who(8)).tolist() == [0] * 8


def test_a_lie_travels_to_those_who_listen() -> None:
    graph = _graph(3, [(0, 1), (1, 2)], directed=True)  # 1 listens to 0, 2 listens to 1
    assert hop_distances(graph, _who(3, 0)).tolist() == [0, 1, 2]
    assert hop_distances(graph, _who(3, 2)).tolist() == [math.inf, math.inf, 0]


def test_who_attacks_is_not_changed() -> None:
    who = _who(3, 0)
    hop_distances(_graph(3, [(0, 1)]), who)
    assert who.tolist() == [True, False, False]


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 9), st.data())
def test_distances_equal_powers_of_the_adjacency_matrix(n: int, data: st.DataObject) -> None:
    pairs = [(a, b) for a in range(n) for b in range(a)]
    edges = data.draw(st.lists(st.sampled_from(pairs), unique=True))
    attackers = data.draw(st.sets(st.integers(0, n - 1)))
    graph, who = _graph(n, edges), _who(n, *attackers)
    reach = np.eye(n) + (graph.dense() > 0)
    expected = [
        next((k for k in range(n) if (np.linalg.matrix_power(reach, k)[i, who] > 0).any()), math.inf) for i in range(n)
    ]
    assert hop_distances(graph, who).tolist() == expected


def test_damage_is_averaged_by_distance_beside_the_same_clients_without_attack() -> None:
    hops = np.array([1.0, 2.0, 1.0, math.inf, 2.0, 3.0])
    metric = np.array([40.0, 80.0, 60.0, 90.0, np.nan, np.nan])  # two clients have no test samples
    clean = np.array([90.0, 85.0, 80.0, 90.0, 70.0, 99.0])
    near, far, apart = damage_by_hops(hops, metric, clean)
    assert (near.hops, near.clients, near.mean, near.std) == (1, 2, 50, 10)
    assert (near.clean_mean, near.clean_std, near.change) == (85, 5, -35)
    assert (far.hops, far.clients, far.mean, far.clean_mean, far.change) == (2, 1, 80, 85, -5)  # not 70, not 77.5
    assert (apart.hops, apart.clients, apart.change) == (math.inf, 1, 0)
    alone = damage_by_hops(hops, metric)
    assert [row.mean for row in alone] == [50, 80, 90]
    assert all(math.isnan(row.clean_mean) and math.isnan(row.change) for row in alone)
    assert damage_by_hops(np.zeros(0), np.zeros(0)) == []
    assert near.std == pytest.approx(10)
