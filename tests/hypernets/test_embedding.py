"""What the encoder is given: initial embeddings, and those of newcomers on a graph of five."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from panacea.core.random import Streams
from panacea.errors import RequestError
from panacea.hypernets.embedding import initial_rows, newcomer_rows
from panacea.methods import make_method
from tests.hypernets.build import complete_graph, graph_of, random_graph

# newcomers 3 (linked to 0 with weight 1, to 2 with weight 3, and to newcomer 4) and 4 (linked to 3 only)
GRAPH = graph_of(5, [(0, 1), (0, 3), (2, 3), (3, 4)], [1, 1, 3, 1])
TABLE = torch.tensor([[1.0, 10], [2, 20], [6, 60]], dtype=torch.float64)
KNOWN, NEW = np.array([0, 1, 2]), np.array([3, 4])
FEATURES = np.array([[0.0], [3.0], [6.0], [9.0], [3.0]], np.float32)
STREAMS = Streams(1)


def newcomers(h0: Any, rule: Any = "auto", graph: Any = GRAPH, table: torch.Tensor = TABLE) -> list[Any]:
    return newcomer_rows(h0, rule, table, KNOWN, NEW, graph, FEATURES, STREAMS).tolist()


def test_neighbours_are_averaged_by_weight() -> None:
    """3: (1 * 1 + 3 * 6) / 4 = 4.75; 4 knows no client that trained and gets the mean, (1 + 2 + 6) / 3 = 3."""
    for h0, rule in (("learned", "neighbours"), ("learned", "auto"), ("laplacian", "auto"), ("fixed", "neighbours")):
        assert newcomers(h0, rule) == [[4.75, 47.5], [3.0, 30.0]]


def test_direction_counts() -> None:
    """3 listens to 0; 2 listens to 3, which tells 3 nothing."""
    graph = graph_of(5, [(0, 3), (3, 2), (3, 4)], directed=True)
    assert newcomers("learned", "neighbours", graph) == [[1.0, 10.0], [3.0, 30.0]]


def test_the_mean() -> None:
    assert newcomers("learned", "mean") == [[3.0, 30.0]] * 2
    assert newcomers("learned", "neighbours", None) == [[3.0, 30.0]] * 2


def test_a_random_row_is_the_clients_own() -> None:
    rows = np.array(newcomers("fixed"))
    assert rows.tolist() == newcomers("learned", "random") == newcomers("fixed", "random")
    everyone = initial_rows("fixed", np.arange(5), None, None, 2, STREAMS)
    assert np.array_equal(rows, everyone[3:])  # as if it had been there from the start


def test_features_are_standardised_by_those_that_train() -> None:
    """Mean 3 and deviation sqrt(6) of 0, 3, 6."""
    s = 6**0.5
    rows = initial_rows("features", KNOWN, GRAPH, FEATURES, 7, STREAMS)
    assert rows[:, 0] == pytest.approx([-3 / s, 0, 3 / s])
    assert [row[0] for row in newcomers("features", table=TABLE[:, :1])] == pytest.approx([6 / s, 0.0])


def test_a_constant_feature_is_only_centred() -> None:
    rows = initial_rows("features", KNOWN, None, np.full((5, 2), 4, np.float32), 7, STREAMS)
    assert not rows.any()


def test_random_walks_return() -> None:
    """Probability to be home after one and two steps on 0-1-2 with weights 1 and 3: 0 always; 1/4 + 3/4 of 1 at the
    middle; an end is home after two steps if the middle turns back to it: 1/4 and 3/4."""
    graph = graph_of(3, [(0, 1), (1, 2)], [1, 3])
    rows = initial_rows("random_walk", np.arange(3), graph, None, 2, STREAMS)
    raw = np.array([0.25, 1.0, 0.75])
    assert rows[:, 0].tolist() == [0.0, 0.0, 0.0]
    assert rows[:, 1] == pytest.approx((raw - raw.mean()) / raw.std())


def test_a_newcomer_walks_on_the_full_graph() -> None:
    """Of GRAPH: 0 has 1, 3 (strength 2), 1 has 0, 2 has 3, 3 has 0, 2, 4 (strength 5), 4 has 3; two steps:

    3: 1/5 * 1/2 + 3/5 + 1/5 = 0.9;  4: 1/5. The training rows were standardised on the graph of 0, 1, 2 alone, where
    0 and 1 have only each other and 2 nobody.
    """
    reference = np.array([1.0, 1.0, 0.0])
    expected = (np.array([0.9, 0.2]) - reference.mean()) / reference.std()
    rows = newcomers("random_walk")
    assert [row[0] for row in rows] == [0.0, 0.0]
    assert [row[1] for row in rows] == pytest.approx(expected.tolist(), rel=1e-6)


def test_laplacian_rows_are_eigenvectors() -> None:
    graph = random_graph(8, 1, weighted=True, alone=0)
    adjacency = graph.dense().astype(float)
    scale = np.diag(adjacency.sum(axis=1) ** -0.5)
    laplacian = np.eye(8) - scale @ adjacency @ scale
    values = np.linalg.eigvalsh(laplacian)
    rows = initial_rows("laplacian", np.arange(8), graph, None, 3, STREAMS)
    assert rows.shape == (8, 3)
    assert rows.mean(axis=0) == pytest.approx([0, 0, 0], abs=1e-12)
    assert rows.std(axis=0) == pytest.approx([1, 1, 1])
    for column, value in zip(rows.T, values[1:4], strict=True):  # an eigenvector, shifted and scaled
        offsets = np.stack([laplacian @ column - value * column, laplacian @ np.ones(8) - value], axis=1)
        assert np.linalg.svd(offsets, compute_uv=False)[-1] == pytest.approx(0, abs=1e-6)
    assert np.array_equal(rows, initial_rows("laplacian", np.arange(8), graph, None, 3, Streams(9)))


def test_learned_rows_are_normal_and_keyed_by_client() -> None:
    rows = initial_rows("learned", np.arange(4000), None, None, 5, STREAMS)
    assert rows.shape == (4000, 5)
    assert rows.mean() == pytest.approx(0, abs=0.02)
    assert np.allclose(np.cov(rows.T), np.eye(5), atol=0.08)
    assert (rows**4).mean() == pytest.approx(3, abs=0.15)
    assert np.array_equal(rows[[7, 30]], initial_rows("learned", np.array([7, 30]), None, None, 5, STREAMS))


@pytest.mark.parametrize("name", ["panacea", "panacea_gn"])
@pytest.mark.parametrize(
    ("alias", "h0", "novel_h0"),
    [
        ("E1", "learned", "random"),
        ("E2", "learned", "neighbours"),
        ("E3", "fixed", "random"),
        ("e4", "laplacian", "neighbours"),
        ("E5", "features", "auto"),
    ],
)
def test_aliases_of_the_specification(name: str, alias: str, h0: str, novel_h0: str) -> None:
    parameters: Any = make_method(name, {"h0": alias}).parameters
    assert (parameters.h0, parameters.novel_h0) == (h0, novel_h0)
    parameters = make_method(name, {"h0": alias, "preset": "paper"}).parameters
    assert (parameters.h0, parameters.novel_h0) == (h0, novel_h0)


def test_a_key_given_by_hand_wins() -> None:
    parameters: Any = make_method("panacea", {"h0": "E1", "novel_h0": "mean"}).parameters
    assert (parameters.h0, parameters.novel_h0) == ("learned", "mean")
    parameters = make_method("panacea", {"preset": "paper", "layers": 2, "residual": True}).parameters
    assert (parameters.layers, parameters.residual, parameters.novel_h0) == (2, True, "neighbours")


@pytest.mark.parametrize(
    ("h0", "graph", "features", "message"),
    [
        ("features", GRAPH, None, "knows no features"),
        ("laplacian", None, None, "needs a relation graph"),
        ("random_walk", None, None, "needs a relation graph"),
        ("laplacian", graph_of(5001, []), None, "2 to 5000 clients; 5001 train"),
        ("laplacian", graph_of(1, []), None, "2 to 5000 clients; 1 train"),
    ],
)
def test_what_cannot_be_computed(h0: Any, graph: Any, features: Any, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        initial_rows(h0, KNOWN, graph, features, 4, STREAMS)


def test_a_newcomer_without_features() -> None:
    holes = FEATURES.copy()
    holes[4] = np.nan
    for features in (None, FEATURES[:4], holes):
        with pytest.raises(RequestError, match="features of its own"):
            newcomer_rows("features", "auto", TABLE[:, :1], KNOWN, NEW, GRAPH, features, STREAMS)
    with pytest.raises(RequestError, match="links of its own"):
        newcomer_rows("random_walk", "auto", TABLE, KNOWN, NEW, None, None, STREAMS)
    with pytest.raises(RequestError, match="at most 5000"):
        newcomer_rows("random_walk", "auto", TABLE, KNOWN, NEW, graph_of(5001, []), None, STREAMS)


def test_positions_on_graphs_without_structure() -> None:
    for h0 in ("laplacian", "random_walk"):
        for graph in (graph_of(4, []), complete_graph(4), graph_of(2, [(0, 1)])):
            rows = initial_rows(h0, np.arange(graph.n), graph, None, 3, STREAMS)  # type: ignore[arg-type]
            assert np.isfinite(rows).all()
