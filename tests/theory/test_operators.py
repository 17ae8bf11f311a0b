from __future__ import annotations

import numpy as np
import pytest

from panacea.theory.named import check_a_graph
from panacea.theory.operators import (
    adjacency,
    all_graphs,
    by_columns,
    by_rows,
    clique,
    component_ones,
    connected,
    cycle,
    hubs,
    path,
    power,
    projection,
    random_graphs,
    rank,
    remainder,
    squared,
    star,
)


def test_mean_aggregation_of_a_path_by_hand() -> None:
    expected = np.array([[1 / 2, 1 / 3, 0], [1 / 2, 1 / 3, 1 / 2], [0, 1 / 3, 1 / 2]])
    np.testing.assert_allclose(by_columns(path(3)), expected)
    np.testing.assert_allclose(by_rows(path(3)), expected.T)
    np.testing.assert_allclose(power(by_columns(path(3)), 2), expected @ expected)


def test_columns_make_every_client_the_mean_of_its_closed_neighbourhood() -> None:
    graph = check_a_graph()
    V = np.random.default_rng(0).standard_normal((3, 12))
    moved = V @ by_columns(graph)
    for client in range(12):
        closed = [client, *np.flatnonzero(graph[client])]
        np.testing.assert_allclose(moved[:, client], V[:, closed].mean(axis=1))


def test_named_graphs() -> None:
    assert path(5).sum() == 2 * 4
    assert cycle(5).sum() == 2 * 5
    assert clique(5).sum() == 20
    assert star(5)[0].tolist() == [0, 1, 1, 1, 1]
    assert hubs(6, 2).sum() == 2 * 2 * 4
    assert hubs(6, 2)[0, 1] == 0
    assert check_a_graph().sum() == 2 * 14
    assert adjacency(3, [(2, 0)])[0, 2] == 1


@pytest.mark.parametrize(("n", "count", "linked"), [(2, 2, 1), (3, 8, 4), (4, 64, 38), (5, 1024, 728)])
def test_all_graphs_are_all_different(n: int, count: int, linked: int) -> None:
    graphs = all_graphs(n)
    assert len(np.unique(graphs.reshape(len(graphs), -1), axis=0)) == count == len(graphs)
    assert (graphs == np.swapaxes(graphs, 1, 2)).all()
    assert len(connected(graphs)) == linked  # 1, 4, 38, 728 labelled connected graphs


def test_remainder_against_the_definition() -> None:
    for graph in (path(8), star(8), clique(8), hubs(8, 3), np.zeros((8, 8))):
        for m in (1, 3, 7):
            G = power(by_columns(graph), 2)
            P, Q = G[:, m:], G[:, :m]
            expected = (np.eye(8) - P @ np.linalg.pinv(P)) @ Q
            np.testing.assert_allclose(remainder(G, m), expected, atol=1e-12)


def test_remainder_of_two_linked_clients_by_hand() -> None:
    # both columns are (1/2, 1/2): nothing is left of one outside the other
    assert squared(remainder(by_columns(path(2)), 1)) == pytest.approx(0, abs=1e-30)
    # a path of three, end attacked: g = (1/2, 1/2, 0) outside span{(1/3, 1/3, 1/3), (0, 1/2, 1/2)} has r = 1/8
    assert squared(remainder(by_columns(path(3)), 1)) == pytest.approx(1 / 8)


def test_many_graphs_at_once_equal_one_by_one() -> None:
    graphs = random_graphs(np.random.default_rng(1), 20, 7)
    G = power(by_columns(graphs), 3)
    for one, many in zip(graphs, squared(remainder(G, 2)), strict=True):
        assert squared(remainder(power(by_columns(one), 3), 2)) == pytest.approx(many, abs=1e-14)


def test_projection_of_dependent_columns() -> None:
    P = np.array([[1.0, 2.0], [1.0, 2.0], [0.0, 0.0]])
    np.testing.assert_allclose(projection(P), [[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 0]], atol=1e-15)


def test_components() -> None:
    graph = adjacency(6, [(0, 1), (1, 2), (3, 4)])
    expected = np.zeros((6, 6))
    expected[:3, :3] = expected[3:5, 3:5] = expected[5, 5] = 1
    np.testing.assert_array_equal(component_ones(graph), expected)
    assert component_ones(path(40)).min() == 1


def test_rank_is_that_of_both_readings() -> None:
    for graph in (cycle(6), path(8), clique(4), check_a_graph()):
        assert rank(graph) == np.linalg.matrix_rank(by_rows(graph)) == np.linalg.matrix_rank(by_columns(graph))
