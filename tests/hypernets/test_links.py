"""The graph generator's loss against torch's cross entropy over explicit pairs, its AUC against scikit-learn's."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from panacea.graphs import ClientGraph
from panacea.hypernets.links import (
    link_auc,
    link_init,
    link_logits,
    link_loss,
    link_slope,
    linked_pairs,
    pair_weights,
)
from tests.hypernets.build import complete_graph, graph_of, graphs, path_graph, tensor


def linked(graph: ClientGraph, nodes: list[int] | None = None) -> Tensor:
    chosen = np.arange(graph.n) if nodes is None else np.array(nodes, np.int64)
    return torch.from_numpy(linked_pairs(graph.edges[:, 0], graph.edges[:, 1], chosen, graph.n))


def loss(logits: Tensor, graph: ClientGraph, balanced: bool) -> float:
    return float(link_loss(logits, *(w.double() for w in pair_weights(linked(graph), balanced))))


def by_hand(logits: Tensor, graph: ClientGraph, balanced: bool) -> float:
    """Pair by pair, u != v."""
    edges = {frozenset(map(int, edge)) for edge in graph.edges}
    terms: dict[bool, list[float]] = {True: [], False: []}
    for u in range(graph.n):
        for v in range(graph.n):
            if u != v:
                label = frozenset((u, v)) in edges
                target = torch.tensor(float(label), dtype=logits.dtype)
                terms[label].append(float(binary_cross_entropy_with_logits(logits[u, v], target)))
    means = [sum(part) / len(part) for part in terms.values() if part]
    if balanced:
        return sum(means) / len(means) if means else 0.0
    every = terms[True] + terms[False]
    return sum(every) / len(every) if every else 0.0


@settings(max_examples=60, deadline=None)
@given(graphs(), st.booleans(), st.sampled_from([0.1, 1.0, 30.0]))
def test_the_loss_is_cross_entropy(graph: ClientGraph, balanced: bool, scale: float) -> None:
    logits = link_logits({}, scale * tensor(graph.n, 3))
    assert loss(logits, graph, balanced) == pytest.approx(by_hand(logits, graph, balanced), rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("balanced", [True, False])
def test_the_slope_is_the_gradient(balanced: bool) -> None:
    logits = (5 * tensor(5, 5)).requires_grad_()
    weights = [w.double() for w in pair_weights(linked(path_graph(5)), balanced)]
    (expected,) = torch.autograd.grad(link_loss(logits, *weights), logits)
    assert torch.allclose(link_slope(logits.detach(), *weights), expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("balanced", [True, False])
@pytest.mark.parametrize("graph", [graph_of(4, []), complete_graph(4), graph_of(1, []), path_graph(2), path_graph(5)])
def test_edge_cases_of_the_classes(graph: ClientGraph, balanced: bool) -> None:
    logits = link_logits({}, tensor(graph.n, 3))
    assert loss(logits, graph, balanced) == pytest.approx(by_hand(logits, graph, balanced), rel=1e-12)


def test_a_single_node_has_no_pairs() -> None:
    z = tensor(1, 3).requires_grad_()
    value = link_loss(link_logits({}, z), *(w.double() for w in pair_weights(linked(graph_of(1, [])), True)))
    assert value.item() == 0.0
    assert float(torch.autograd.grad(value, z)[0].abs().max()) == 0.0


def test_indifferent_logits_cost_a_bit_in_either_balance() -> None:
    """p = 1/2 everywhere: every mean is log 2, however many links there are."""
    for balanced in (True, False):
        assert loss(torch.zeros(5, 5, dtype=torch.float64), path_graph(5), balanced) == pytest.approx(math.log(2))


def test_logits_are_scaled_inner_products() -> None:
    z = torch.tensor([[2.0, 0, 0, 0], [1, 1, 1, 1]])
    assert link_logits({}, z).tolist() == [[2.0, 1.0], [1.0, 2.0]]  # over sqrt(4)


def test_the_transform_is_a_two_layer_network() -> None:
    parts = link_init(3, 5, torch.Generator().manual_seed(0))
    z = tensor(4, 3)
    net = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.Linear(5, 5)).double()
    with torch.no_grad():
        for parameter, value in zip(net.parameters(), parts.values(), strict=True):
            parameter.copy_(value)
        hat = net(z)
    assert torch.allclose(link_logits(parts, z), hat @ hat.T / math.sqrt(5), atol=1e-12)


def test_linked_pairs_by_hand() -> None:
    """In the order of the nodes asked for, symmetric, whichever way an arc points."""
    graph = graph_of(5, [(0, 3), (4, 1), (2, 3)], directed=True)
    assert linked(graph, [3, 0, 4]).int().tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 0]]
    assert linked(graph, [1, 4]).int().tolist() == [[0, 1], [1, 0]]


def test_weights_sum_to_one() -> None:
    for balanced in (True, False):
        every, yes = pair_weights(linked(path_graph(6)), balanced)
        assert float(every.sum()) == pytest.approx(1.0)
        assert float(yes.sum()) == pytest.approx(0.5 if balanced else 10 / 30)
        assert every.diagonal().tolist() == [0.0] * 6


@pytest.mark.parametrize("seed", range(5))
def test_auc_is_that_of_scikit_learn(seed: int) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    generator = np.random.default_rng(seed)
    graph = graph_of(9, [(i, j) for i in range(9) for j in range(i) if generator.random() < 0.3])
    half = np.round(generator.normal(size=(9, 9)), 0 if seed % 2 else 3)  # whole numbers: many ties
    logits = torch.from_numpy(half + half.T)
    upper = np.triu_indices(9, 1)
    expected = metrics.roc_auc_score(linked(graph).numpy()[upper], logits.numpy()[upper])
    assert link_auc(logits, linked(graph)) == pytest.approx(expected)


def test_auc_needs_both_classes() -> None:
    assert math.isnan(link_auc(tensor(4, 4), linked(complete_graph(4))))
    assert math.isnan(link_auc(tensor(4, 4), linked(graph_of(4, []))))
    assert link_auc(torch.zeros(3, 3), linked(path_graph(3))) == 0.5
