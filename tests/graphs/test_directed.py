"""Direction, arcs, newcomers, removals, and graphs that come back from a file."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from panacea.errors import RequestError
from panacea.graphs import ClientGraph

ARCS = [(0, 1), (1, 0), (2, 1), (3, 2)]
WEIGHTS = [1.0, 2.0, 3.0, 4.0]


def directed() -> ClientGraph:
    return ClientGraph.from_edges(5, ARCS, WEIGHTS, directed=True)[0]


def undirected() -> ClientGraph:
    return ClientGraph.from_edges(5, [(1, 0), (2, 1), (3, 2)], [2.0, 3.0, 4.0])[0]


def refusal(call: object, *arguments: object) -> str:
    with pytest.raises(RequestError) as caught:
        call(*arguments)  # type: ignore[operator]
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_second_end_of_a_directed_edge_listens_to_the_first():
    graph = directed()
    assert graph.edges.tolist() == [[0, 1], [1, 0], [2, 1], [3, 2]]
    assert graph.degree.tolist() == [1, 2, 1, 0, 0]
    assert [graph.neighbours(i).tolist() for i in range(5)] == [[1], [0, 2], [3], [], []]
    dense = graph.dense()
    assert (dense[1, 0], dense[0, 1], dense[1, 2], dense[2, 1], dense[2, 3]) == (1.0, 2.0, 3.0, 0.0, 4.0)


def test_arcs_go_by_target_then_source():
    sources, targets, weights = directed().arcs()
    assert list(zip(sources.tolist(), targets.tolist(), weights.tolist(), strict=True)) == [
        (1, 0, 2.0), (0, 1, 1.0), (2, 1, 3.0), (3, 2, 4.0),
    ]  # fmt: skip
    sources, targets, weights = undirected().arcs()
    assert list(zip(sources.tolist(), targets.tolist(), weights.tolist(), strict=True)) == [
        (1, 0, 2.0), (0, 1, 2.0), (2, 1, 3.0), (1, 2, 3.0), (3, 2, 4.0), (2, 3, 4.0),
    ]  # fmt: skip


def test_directed_duplicates_are_refused_but_the_way_back_is_not_one():
    said = refusal(lambda: ClientGraph.from_edges(3, [(0, 1), (1, 0), (0, 1)], directed=True))
    assert said == "edges: the edge from 0 to 1 is given twice; give each pair once"


def test_symmetrising_takes_either_direction_and_the_larger_weight():
    graph = directed().undirected()
    assert not graph.directed
    assert graph.edges.tolist() == [[0, 1], [1, 2], [2, 3]]
    assert graph.weights.tolist() == [2.0, 3.0, 4.0]
    assert (graph.dense() == np.maximum(directed().dense(), directed().dense().T)).all()
    assert graph.undirected() is graph


def test_weighted_and_binary():
    assert directed().weighted
    plain = directed().binary()
    assert not plain.weighted
    assert plain.directed
    assert (plain.edges == directed().edges).all()
    assert not ClientGraph.from_edges(3, [])[0].weighted


def test_take_keeps_directions():
    chosen = np.array([2, 1, 0])
    part = directed().take(chosen)
    assert part.directed
    assert (part.dense() == directed().dense()[np.ix_(chosen, chosen)]).all()


def test_a_new_node_is_linked_to_whom_it_names():
    graph = undirected().with_node([3, 0], [0.5, 7.0])
    assert graph.n == 6
    assert graph.neighbours(5).tolist() == [0, 3]
    assert graph.neighbours(0).tolist() == [1, 5]
    assert (graph.dense()[5, 0], graph.dense()[3, 5]) == (7.0, 0.5)
    assert (graph.take(np.arange(5)).dense() == undirected().dense()).all()
    assert undirected().with_node([]).degree[5] == 0
    listener = directed().with_node(np.array([3, 0]))
    assert listener.neighbours(5).tolist() == [0, 3]
    assert listener.degree[:5].tolist() == directed().degree.tolist()  # nobody listens to it


def test_wrong_neighbours_are_named():
    graph = undirected()
    assert refusal(graph.with_node, [0, 5]) == "neighbours: client 5 does not exist; clients are 0..4"
    assert refusal(graph.with_node, [-1]) == "neighbours: client -1 does not exist; clients are 0..4"
    assert refusal(graph.with_node, [1, 2, 1]) == "neighbours: client 1 is named twice"
    assert "client numbers are needed" in refusal(graph.with_node, [1.5])
    assert "weight nan" in refusal(graph.with_node, [1], [float("nan")])
    assert "2 edges but 1 weights" in refusal(graph.with_node, [1, 2], [1.0])
    assert "clients are 0..4" in refusal(graph.neighbours, 5)


def test_without_clients_keeps_the_nodes():
    graph = directed().without([2])
    assert graph.n == 5
    assert graph.edges.tolist() == [[0, 1], [1, 0]]
    assert graph.weights.tolist() == [1.0, 2.0]
    assert undirected().without(np.array([1])).edges.tolist() == [[2, 3]]
    assert (undirected().without([]).edges == undirected().edges).all()
    assert "client 9 does not exist" in refusal(graph.without, [9])


@pytest.mark.parametrize("graph", [directed(), undirected(), ClientGraph.from_edges(3, [])[0]])
def test_a_graph_comes_back_from_its_file(graph: ClientGraph, tmp_path: Path):
    graph.save(tmp_path / "g.npz")
    again = ClientGraph.load(tmp_path / "g.npz")
    assert (again.n, again.directed) == (graph.n, graph.directed)
    assert (again.edges == graph.edges).all()
    assert (again.weights == graph.weights).all()


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"n": 3}, "needs the arrays n and edges, found n"),
        ({"n": 3.5, "edges": [[0, 1]]}, "n is the number of clients"),
        ({"n": 0, "edges": np.zeros((0, 2), int)}, "n is the number of clients"),
        ({"n": 3, "edges": [[0, 3]]}, "edge 1 (0, 3) names an unknown client; clients are 0..2"),
        ({"n": 3, "edges": [[0, 1]], "weights": [-1.0]}, "edge 1 has weight -1.0"),
        ({"n": 3, "edges": [[0, 1]], "weights": [np.nan]}, "edge 1 has weight nan"),
        ({"n": 3, "edges": [[0, 1]], "weights": [1e300]}, "edge 1 has weight inf"),
        ({"n": 3, "edges": [[0, 1]], "weights": ["a"]}, "weights are positive numbers"),
        ({"n": 3, "edges": [[0, 1]], "weights": [[1.0]]}, "1 edges but an array [1, 1] of weights"),
        ({"n": 3, "edges": [[0, 1]], "directed": "yes"}, "directed is true or false"),
    ],
)
def test_a_wrong_file_is_one_line(arrays: dict[str, object], words: str, tmp_path: Path):
    np.savez(tmp_path / "g.npz", **{key: np.asarray(value) for key, value in arrays.items()})
    said = refusal(ClientGraph.load, tmp_path / "g.npz")
    assert words in said
    assert "g.npz" in said


def test_no_file_and_no_pickle(tmp_path: Path):
    assert refusal(ClientGraph.load, tmp_path / "no.npz").endswith("no.npz: no such file")
    (tmp_path / "text.npz").write_text("hello")
    assert "not an npz file" in refusal(ClientGraph.load, tmp_path / "text.npz")
    np.savez(tmp_path / "evil.npz", n=np.array([{}], dtype=object))
    assert "not an npz file of plain arrays" in refusal(ClientGraph.load, tmp_path / "evil.npz")
    np.save(tmp_path / "array.npy", np.arange(3))
    assert "not an npz file" in refusal(ClientGraph.load, tmp_path / "array.npy")


@st.composite
def graphs(draw: st.DrawFn) -> ClientGraph:
    n = draw(st.integers(1, 8))
    is_directed = draw(st.booleans())
    pairs = draw(st.sets(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=20))
    pairs = {(a, b) for a, b in pairs if a != b and (is_directed or a < b)}
    weights = draw(st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=len(pairs), max_size=len(pairs)))
    return ClientGraph.from_edges(n, sorted(pairs), weights, directed=is_directed)[0]


@given(graphs(), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_all_views_of_a_graph_agree(graph: ClientGraph, random: object):
    dense = graph.dense()
    assert graph.degree.tolist() == (dense > 0).sum(axis=1).tolist()
    for i in range(graph.n):
        assert graph.neighbours(i).tolist() == np.flatnonzero(dense[i]).tolist()
    order = np.array(random.sample(range(graph.n), graph.n), np.int64)  # type: ignore[attr-defined]
    assert (graph.take(order).dense() == dense[np.ix_(order, order)]).all()
    assert (graph.undirected().dense() == np.maximum(dense, dense.T)).all()
    assert (graph.binary().dense() == (dense > 0)).all()


def test_taking_half_of_a_hundred_thousand_clients_is_quick():
    n = 100_000
    ends = np.arange(5 * n, dtype=np.int64)
    edges = np.stack([ends % n, (ends % n + 1 + ends // n) % n], axis=1)
    graph, _ = ClientGraph.from_edges(n, edges)
    started = time.perf_counter()
    part = graph.take(np.arange(0, n, 2))
    assert part.neighbours(7).tolist() == [5, 6, 8, 9]
    assert time.perf_counter() - started < 5  # a fraction of a second on an idle machine
