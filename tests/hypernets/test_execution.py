"""Dense, sparse and around a few clients: the same numbers and the same gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from panacea.core.records import named_leaves
from panacea.graphs import ClientGraph
from panacea.hypernets import Encoder, HypernetworkState, Planner, Propagation
from tests.hypernets.build import (
    KINDS,
    cohort_of,
    complete_graph,
    graph_of,
    graphs,
    path_graph,
    random_graph,
    rounds,
    server,
    tensor,
    uploads_of,
)

EXECUTIONS = ("dense", "sparse", "neighbourhood")


def encoded(graph: ClientGraph, encoder: Encoder, execution: Any, nodes: Any) -> list[Tensor]:
    """Codes of some nodes, and the gradients of a fixed function of them in the table and all weights."""
    parts = {name: part.requires_grad_() for name, part in encoder.init(torch.Generator().manual_seed(5)).items()}
    table = tensor(graph.n, encoder.inputs, seed=1).requires_grad_()
    plan = Planner(graph, encoder, table, execution).encode(np.array(nodes))
    z = encoder(parts, table if plan.rows is None else table[plan.rows], plan.blocks)[plan.clients]
    probe = tensor(graph.n, encoder.outputs, seed=2)[nodes]
    return [z, *torch.autograd.grad((z * probe).sum(), [table, *parts.values()])]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_three_ways_to_compute_the_same(data: st.DataObject) -> None:
    graph = data.draw(graphs())
    kind, layers = data.draw(st.sampled_from(KINDS)), data.draw(st.integers(1, 3))
    encoder = Encoder(kind, layers, 4, 4, data.draw(st.booleans()), data.draw(st.booleans()))
    order = data.draw(st.permutations(range(graph.n)))
    nodes = order[: data.draw(st.integers(1, graph.n))]
    reference = encoded(graph, encoder, "dense", nodes)
    for execution in EXECUTIONS[1:]:
        for ours, theirs in zip(encoded(graph, encoder, execution, nodes), reference, strict=True):
            assert torch.allclose(ours, theirs, rtol=1e-9, atol=1e-10)


def test_blocks_shrink_towards_the_clients() -> None:
    """On a path 0-1-2-3-4-5, what client 1 hears in two layers is 1; 0, 2; 3. Nothing else is touched."""
    inputs, blocks = Propagation(path_graph(6), "mean", tensor(1)).around(np.array([1]), 2)
    assert inputs.tolist() == [1, 0, 2, 3]
    assert [(block.n_in, block.n_out) for block in blocks] == [(4, 3), (3, 1)]
    assert torch.allclose(blocks[1].matrix, torch.full((1, 3), 1 / 3, dtype=torch.float64))
    first = [[1 / 3, 1 / 3, 1 / 3, 0], [0.5, 0.5, 0, 0], [1 / 3, 0, 1 / 3, 1 / 3]]
    assert torch.allclose(blocks[0].matrix, torch.tensor(first, dtype=torch.float64))


def test_around_can_be_asked_again() -> None:
    arcs = Propagation(random_graph(9, 0), "mean", tensor(1))
    before = [block.matrix for block in arcs.around(np.array([2, 5]), 2)[1]]
    arcs.around(np.array([1, 0, 4]), 3)
    again = [block.matrix for block in arcs.around(np.array([2, 5]), 2)[1]]
    assert all(torch.equal(a, b) for a, b in zip(before, again, strict=True))


def test_sparse_where_asked_and_large() -> None:
    like, graph = tensor(1), path_graph(1100)
    assert Propagation(graph, "mean", like, dense=True).whole().transposed is None
    assert Propagation(graph, "mean", like).whole().transposed is not None  # 1100^2 is beyond a dense matrix
    assert Propagation(path_graph(20), "mean", like).whole().transposed is None
    sizes = {n: Planner(path_graph(n), Encoder("mean", 1, 2, 2), like).execution for n in (3, 1024, 1025, 10_001)}
    assert list(sizes.values()) == ["dense", "sparse", "sparse", "neighbourhood"]
    linked = ClientGraph(1000, np.argwhere(np.triu(np.ones((1000, 1000)), 1)), np.ones(499_500, np.float32))
    assert Planner(linked, Encoder("mean", 1, 2, 2), like).execution == "dense"


# --- whole rounds of the server -------------------------------------------------------------------------------------


def after(
    name: str, graph: ClientGraph, execution: str, cohorts: list[list[int]], parameters: dict[str, Any]
) -> HypernetworkState:
    method, state = server(name, graph, parameters | {"execution": execution})
    return rounds(method, state, cohorts)


def gap(a: HypernetworkState, b: HypernetworkState) -> float:
    pairs = zip(dict(named_leaves(a)).values(), dict(named_leaves(b)).values(), strict=True)
    return max(float((x - y).abs().max()) for x, y in pairs if x.numel())


COHORTS = [[0, 3], [1, 2, 4], [0, 5]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["panacea", "panacea_gn"])
def test_dense_is_sparse_over_rounds(name: str, kind: str) -> None:
    graph = random_graph(7, 4, weighted=True, directed=True)
    parameters = {
        "encoder": kind, "newcomer_view": 0.5, "newcomer_links": "some", "newcomer_practice": 0.5, "optimiser": "adam",
    }  # fmt: skip
    dense, sparse = (after(name, graph, execution, COHORTS, parameters) for execution in EXECUTIONS[:2])
    assert gap(dense, sparse) < 1e-10


@pytest.mark.parametrize("optimiser", ["momentum", "adam"])
@pytest.mark.parametrize(
    ("graph", "layers"),
    [(complete_graph(6), 1), (path_graph(6), 5), (graph_of(6, [(i, (i + 1) % 6) for i in range(6)]), 3)],
)
@pytest.mark.parametrize("view", [0.0, 0.5])
def test_a_neighbourhood_that_is_everything(graph: ClientGraph, layers: int, view: float, optimiser: str) -> None:
    """All rows are heard, in another order; L_d looks at all pairs."""
    parameters = {
        "layers": layers, "pairs": "all", "newcomer_view": view, "newcomer_links": "some", "newcomer_practice": 0.5,
        "optimiser": optimiser, "weight_decay": 0.01,
    }  # fmt: skip
    dense, around = (after("panacea", graph, e, COHORTS, parameters) for e in ("dense", "neighbourhood"))
    assert gap(dense, around) < 1e-10
    del parameters["pairs"]  # without L_d the rows come in the order they are heard in
    dense, around = (after("panacea_gn", graph, e, COHORTS, parameters) for e in ("dense", "neighbourhood"))
    assert gap(dense, around) < 1e-10


@pytest.mark.parametrize("ids", [[2], [0, 4]])
def test_all_pairs_are_all_pairs_around_any_cohort(ids: list[int]) -> None:
    """A cohort of one among clients it never hears: with pairs=all L_d needs every client's code nonetheless."""
    graph = graph_of(6, [(0, 1), (2, 3)])
    dense, around = (
        after("panacea", graph, e, [ids], {"pairs": "all", "layers": 1}) for e in ("dense", "neighbourhood")
    )
    assert gap(dense, around) < 1e-10


def test_sampled_pairs_are_the_same_in_every_execution() -> None:
    graph = random_graph(9, 8)
    parameters = {"pairs": "sampled", "random_nodes": 3, "optimiser": "sgd"}  # without momentum nothing drifts
    states = [after("panacea", graph, execution, COHORTS, parameters) for execution in EXECUTIONS]
    assert gap(states[0], states[1]) < 1e-10
    assert gap(states[0], states[2]) < 1e-10


def test_random_nodes_join_the_sampled_pairs() -> None:
    """As many as asked for, others in another round."""
    found = {}
    for count in (0, 4):
        method, _ = server("panacea", graph_of(500, []), {"pairs": "sampled", "random_nodes": count})
        plans = [method.plan(cohort_of(method, [7], number)) for number in (1, 2)]  # type: ignore[attr-defined]
        found[count] = [set(plan.pairs.tolist()) for plan in plans]
    assert found[0] == [{7}, {7}]
    assert [len(nodes) for nodes in found[4]] == [5, 5]
    assert found[4][0] != found[4][1]


@pytest.mark.parametrize("optimiser", ["momentum", "adam", "sgd"])
def test_rows_beyond_the_neighbourhood_stay(optimiser: str) -> None:
    """Client 2 of a path hears 0..4 in two layers; rows 5.. and their momentum are not touched, even with decay."""
    method, start = server(
        "panacea_gn", path_graph(9),
        {"layers": 2, "execution": "neighbourhood", "optimiser": optimiser, "weight_decay": 0.1},
    )  # fmt: skip
    state = rounds(method, start, [[7], [2]])
    first = rounds(method, start, [[7]])
    moved = (state.table != first.table).any(dim=1)
    assert moved.tolist() == [True] * 5 + [False] * 4
    for memory, before in zip(state.moments, first.moments, strict=True):
        if memory.dim() == 2:
            assert (memory != before).any(dim=1).tolist() == [True] * 5 + [False] * 4


def test_only_the_cohorts_rows_move_without_a_graph() -> None:
    method, start = server("panacea_mlp", None, {"weight_decay": 0.1}, n=5)
    first = rounds(method, start, [[0, 1]])
    second = rounds(method, start, [[0, 1], [3]])
    assert (first.table != start.table).any(dim=1).tolist() == [True, True, False, False, False]
    assert (second.table != first.table).any(dim=1).tolist() == [False, False, False, True, False]


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_generation_around_some_clients(execution: str) -> None:
    graph = random_graph(8, 3)
    method, state = server("panacea", graph, {"execution": execution})
    whole = method.generated(state, np.arange(8))
    some = method.generated(state, np.array([1, 4, 6]))
    assert torch.allclose(whole[[1, 4, 6]], some, rtol=0, atol=1e-12)
    assert not some.requires_grad


@pytest.mark.parametrize("name", ["panacea", "panacea_gn", "panacea_mlp", "pfedhn", "pfedhn_pc"])
def test_nothing_on_the_server_asks_for_gradients(name: str) -> None:
    method, state = server(name, random_graph(6, 3), {"newcomer_view": 0.5} if name == "panacea" else None)
    for number in (1, 2):
        cohort = cohort_of(method, [0, 2, 3], number)
        state = method.aggregate(state, uploads_of(method, state, cohort), cohort)
        assert not any(value.requires_grad for _, value in named_leaves(state))
        assert not any(value.requires_grad for _, value in named_leaves(method.download(state, cohort)))
