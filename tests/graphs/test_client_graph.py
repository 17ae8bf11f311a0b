"""The relation graph: what it accepts, and its helpers."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from panacea.errors import RequestError
from panacea.graphs import ClientGraph

EDGES = [(3, 1), (0, 1), (4, 3), (0, 4)]
WEIGHTS = [0.5, 1.0, 2.0, 4.0]


def graph() -> ClientGraph:
    return ClientGraph.from_edges(6, EDGES, WEIGHTS)[0]


def refusal(n: int, edges: object, weights: object = None, source: str = "edges") -> str:
    with pytest.raises(RequestError) as caught:
        ClientGraph.from_edges(n, edges, weights, source)
    return str(caught.value)


def test_edges_are_sorted_once_each_with_their_weights():
    found, notes = ClientGraph.from_edges(6, EDGES, WEIGHTS)
    assert found.edges.tolist() == [[0, 1], [0, 4], [1, 3], [3, 4]]
    assert found.weights.tolist() == [1.0, 4.0, 0.5, 2.0]
    assert (found.edges.dtype, found.weights.dtype) == (np.int64, np.float32)
    assert notes == ()


@pytest.mark.parametrize(
    "edges",
    [EDGES, tuple(EDGES), iter(EDGES), np.array(EDGES), np.array(EDGES, np.int32), [np.array(e) for e in EDGES]],
)
def test_any_sequence_of_pairs_will_do(edges: object):
    found, _ = ClientGraph.from_edges(6, edges)
    assert found.edges.tolist() == [[0, 1], [0, 4], [1, 3], [3, 4]]
    assert found.weights.tolist() == [1.0] * 4


@pytest.mark.parametrize("edges", [[], np.zeros((0, 2), np.int64), np.zeros(0)])
def test_a_graph_may_be_empty(edges: object):
    found, notes = ClientGraph.from_edges(3, edges)
    assert found.edges.shape == (0, 2)
    assert found.edges.dtype == np.int64
    assert found.degree.tolist() == [0, 0, 0]
    assert not found.dense().any()
    assert found.neighbours(1).tolist() == []
    assert notes == ()


def test_the_given_array_is_left_as_it_is():
    given = np.array(EDGES)
    ClientGraph.from_edges(6, given)
    assert given.tolist() == [list(edge) for edge in EDGES]


def test_self_loops_are_dropped_aloud():
    found, notes = ClientGraph.from_edges(4, [(2, 2), (0, 1), (3, 3)], [9.0, 2.0, 9.0], "links.csv")
    assert found.edges.tolist() == [[0, 1]]
    assert found.weights.tolist() == [2.0]
    assert notes == ("links.csv: 2 self loop(s) dropped",)


@pytest.mark.parametrize("pair", [(0, 4), (4, 0), (-1, 2), (7, 7)])
def test_an_unknown_client_is_named_with_its_row(pair: tuple[int, int]):
    said = refusal(4, [(0, 1), pair], source="links.csv")
    assert said == f"links.csv: edge 2 ({pair[0]}, {pair[1]}) names an unknown client; clients are 0..3"


@pytest.mark.parametrize("second", [(0, 1), (1, 0)])
def test_an_edge_given_twice_is_refused_in_either_direction(second: tuple[int, int]):
    assert refusal(4, [(2, 3), (0, 1), second]) == (
        "edges: the edge between 0 and 1 is given twice; give each pair once"
    )


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf"), -float("inf")])
def test_weights_are_positive_numbers(weight: float):
    said = refusal(4, [(0, 1), (1, 2), (2, 3)], [1.0, 1.0, weight])
    assert said.startswith("edges: edge 3 has weight ")
    assert said.endswith("weights are positive numbers")


@pytest.mark.parametrize("weights", [[], [1.0], [1.0, 2.0, 3.0]])
def test_there_is_a_weight_for_each_edge(weights: list[float]):
    assert refusal(4, [(0, 1), (1, 2)], weights) == f"edges: 2 edges but {len(weights)} weights"


def test_rows_that_are_not_pairs_are_not_reshaped():
    assert "edge 1 is (0, 1, 2); an edge is a pair" in refusal(9, [(0, 1, 2), (3, 4, 5)])
    assert "edge 2 is (3,); an edge is a pair" in refusal(9, [(0, 1), (3,), (4,)])
    assert "[E, 2], not [2, 3]" in refusal(9, np.array([(0, 1, 2), (3, 4, 5)]))
    assert "[E, 2], not [4]" in refusal(9, np.arange(4))


def test_ends_are_whole_numbers_not_cut_ones():
    assert "client numbers, not float64" in refusal(9, [(0.9, 1.2)])
    assert "client numbers, not bool" in refusal(9, np.array([[True, False]]))


def test_degree_dense_and_neighbours_agree():
    found = graph()
    expected = np.zeros((6, 6), np.float32)
    for (a, b), weight in zip(EDGES, WEIGHTS, strict=True):
        expected[a, b] = expected[b, a] = weight
    assert found.dense().dtype == np.float32
    assert (found.dense() == expected).all()
    assert found.degree.tolist() == [2, 2, 0, 2, 2, 0]
    assert found.degree.dtype == np.int64
    for client in range(6):
        assert found.neighbours(client).tolist() == np.flatnonzero(expected[client]).tolist()


def test_taking_clients_renumbers_them_in_the_order_given():
    found = graph()
    chosen = np.array([4, 0, 5, 3])
    part = found.take(chosen)
    assert part.n == 4
    assert (part.dense() == found.dense()[np.ix_(chosen, chosen)]).all()
    assert part.edges.tolist() == [[0, 1], [0, 3]]
    assert part.weights.tolist() == [4.0, 2.0]
    whole = found.take(np.arange(6))
    assert (whole.edges == found.edges).all()
    assert (whole.weights == found.weights).all()
    assert found.take(np.array([2, 5])).edges.shape == (0, 2)


def test_a_saved_graph_holds_everything(tmp_path: Path):
    graph().save(tmp_path / "graph.npz")
    with np.load(tmp_path / "graph.npz", allow_pickle=False) as stored:
        assert sorted(stored) == ["directed", "edges", "n", "weights"]
        again = ClientGraph(int(stored["n"]), stored["edges"], stored["weights"], bool(stored["directed"]))
    assert again.n == 6
    assert (again.dense() == graph().dense()).all()
    assert again.edges.dtype == np.int64


def test_a_graph_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        graph().n = 3
