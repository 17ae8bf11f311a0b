"""Neighbours drawn in a round: who is heard, with which weights, and that nothing else changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from panacea.hypernets.encoders import Encoder
from panacea.hypernets.plan import Planner
from panacea.hypernets.propagation import Draw, Propagation
from tests.hypernets.build import KINDS, all_links, cohort_of, complete_graph, random_graph, rounds, server, tensor

LIKE = tensor(1)
NO_IDS = np.zeros(0, np.int64)
MIXINGS: Any = ("mean", "symmetric", "neighbours", "sum", "loops")


def matrix(arcs: tuple[np.ndarray, np.ndarray, np.ndarray], rows: int, n: int) -> np.ndarray:
    found = np.zeros((rows, n))
    found[arcs[0], arcs[1]] = arcs[2]
    return found


@pytest.mark.parametrize("mixing", MIXINGS)
@pytest.mark.parametrize("weighted", [False, True])
def test_few_speak_for_all(mixing: Any, weighted: bool) -> None:
    """As many as asked for, the node itself besides; what a node hears has the weight it had."""
    graph = random_graph(30, 1, weighted=weighted)
    arcs, nodes = Propagation(graph, mixing, LIKE), np.array([3, 17, 8, 29])
    every, some = (matrix(arcs.into(nodes, draw), 4, 30) for draw in (None, Draw(3, 99)))
    own = (np.arange(4), nodes)
    assert ((some != 0) <= (every != 0)).all()
    assert (some[own] == every[own]).all()
    every[own] = some[own] = 0
    assert (some != 0).sum(axis=1).tolist() == np.minimum((every != 0).sum(axis=1), 3).tolist()
    assert (every != 0).sum(axis=1).max() > 6
    np.testing.assert_allclose(some.sum(axis=1), every.sum(axis=1), rtol=1e-12)


def test_on_average_everybody_is_heard() -> None:
    """The mean over rounds of what a node hears is what it would hear of all."""
    arcs, nodes, table = Propagation(complete_graph(9), "neighbours", LIKE), np.arange(9), np.arange(9.0)
    heard = np.mean([matrix(arcs.into(nodes, Draw(3, key)), 9, 9) @ table for key in range(3000)], axis=0)
    np.testing.assert_allclose(heard, matrix(arcs.into(nodes), 9, 9) @ table, atol=0.1)


def test_who_is_heard_depends_on_nobody_else() -> None:
    arcs = Propagation(random_graph(40, 2), "mean", LIKE)
    alone = arcs.into(np.array([5]), Draw(2, 7))[1]
    targets, speakers, _ = arcs.into(np.array([9, 5, 30]), Draw(2, 7))
    assert speakers[targets == 1].tolist() == alone.tolist()
    assert arcs.into(np.array([5]), Draw(2, 8))[1].tolist() != alone.tolist()
    assert set(alone) <= set(arcs.into(np.array([5]), Draw(4, 7))[1])  # those heard further away are among them


@pytest.mark.parametrize("kind", KINDS)
def test_enough_is_everything(kind: Any) -> None:
    """A draw of at least all neighbours in every layer changes nothing, the view and the pairs included."""
    graph, encoder = random_graph(12, 3), Encoder(kind, 3, 4, 4)
    parts, table = encoder.init(torch.Generator().manual_seed(1)), tensor(12, 4)
    codes = []
    for fanout in ("all", 64):
        planner = Planner(graph, encoder, LIKE, "neighbourhood", fanout)  # type: ignore[arg-type]
        plan = planner.round(np.array([1, 6]), links=True, balanced=True, view=all_links([1, 6]), extra=NO_IDS, key=5)
        assert plan.rows is not None
        assert plan.view is not None
        codes.append(encoder(parts, plan.view.of(table[plan.rows], table.mean(dim=0)), plan.blocks)[plan.clients])
    assert torch.allclose(codes[0], codes[1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_copies_hear_those_drawn(kind: Any) -> None:
    """They start from the mean of the drawn neighbours; one that starts from the client's own row is the client."""
    graph, encoder, cohort = random_graph(14, 4), Encoder(kind, 3, 4, 4), np.array([0, 3, 9])
    parts, table = encoder.init(torch.Generator().manual_seed(1)), tensor(14, 4)
    planner = Planner(graph, encoder, LIKE, "neighbourhood", 3)
    drawn = matrix(planner.neighbours.into(cohort, Draw(3, 5)), 3, 14)
    plan = planner.round(cohort, links=False, balanced=True, view=all_links(cohort), extra=NO_IDS, key=5)
    assert plan.view is not None
    h = plan.view.of(table[plan.rows], None)
    assert torch.allclose(h[-3:], torch.from_numpy(drawn) @ table, rtol=0, atol=1e-12)
    codes = encoder(parts, torch.cat([h[:-3], table[cohort]]), plan.blocks)[plan.clients]
    assert torch.allclose(codes[3:], codes[:3], rtol=0, atol=1e-12)
    assert not torch.allclose(encoder(parts, h, plan.blocks)[plan.clients][3:], codes[:3], rtol=0, atol=1e-3)


def test_a_number_means_neighbourhoods_and_auto_means_all_of_few() -> None:
    graph, encoder = random_graph(10, 1), Encoder("mean", 1, 2, 2)
    assert Planner(graph, encoder, LIKE, "auto", 4).execution == "neighbourhood"
    assert Planner(graph, encoder, LIKE).fanout is None
    assert Planner(graph, encoder, LIKE, "neighbourhood").fanout is None
    assert Planner(graph, encoder, LIKE, "neighbourhood", "all").fanout is None


def test_the_download_is_what_the_round_is_about_and_evaluation_hears_all() -> None:
    """The cohort is sent models of the round's draw; what is evaluated does not depend on a draw."""
    method, state = server("panacea", complete_graph(12), {"fanout": 2})
    exact, whole = server("panacea", complete_graph(12), {"fanout": "all"})
    cohort = cohort_of(method, [2, 5], 3)
    sent, personal = method.download(state, cohort).params, method.generated(state, cohort.ids)
    assert not torch.allclose(sent, personal)
    assert torch.equal(sent, method.generated(state, cohort.ids, 3))
    assert torch.allclose(personal, exact.generated(whole, cohort.ids), rtol=0, atol=1e-12)
    moved = rounds(method, state, [[2, 5]] * 4)
    assert float(moved.terms[1]) < float(moved.terms[0])


def test_codes_of_all_are_those_of_some() -> None:
    """Where many are asked for, everybody is encoded once; the codes are the same, and of the state asked about."""
    method, state = server("panacea_gn", random_graph(20, 5), {"execution": "neighbourhood", "layers": 2})
    assert method.planner.crowded(20)  # type: ignore[attr-defined]
    assert not method.planner.crowded(0)  # type: ignore[attr-defined]
    for now in (state, rounds(method, state, [[1, 4]])):
        plan = method.planner.encode(np.array([3, 11]))  # type: ignore[attr-defined]
        some = method._encoded(now, now.table, plan)  # type: ignore[attr-defined]
        assert torch.allclose(method.encode(now, np.arange(20))[[3, 11]], some, rtol=0, atol=1e-12)
