"""The newcomers' view, and the nodes whose pairs L_d looks at."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from panacea.hypernets import Encoder, Planner, Propagation
from panacea.hypernets import plan as plan_module
from panacea.hypernets.propagation import Draw
from panacea.hypernets.view import Links
from tests.hypernets.build import KINDS, all_links, graph_of, graphs, tensor

# 0 - 1 (weight 1), 1 - 2 (weight 3), 2 - 3 (weight 1); 4 is alone
GRAPH = graph_of(5, [(0, 1), (1, 2), (2, 3)], [1.0, 3.0, 1.0])
ROWS = torch.tensor([[1.0], [2.0], [4.0], [8.0], [0.0]], dtype=torch.float64)
NO_IDS = np.zeros(0, np.int64)


def planner(execution: Any, layers: int = 1, kind: Any = "mean") -> Planner:
    return Planner(GRAPH, Encoder(kind, layers, 1, 1), ROWS, execution)


def viewed(execution: Any, cohort: list[int], rows: torch.Tensor, layers: int = 1) -> torch.Tensor:
    """The table as the view has it, back in client order; rows that are not read stay NaN."""
    ids = np.array(cohort)
    plan = planner(execution, layers).round(ids, links=False, balanced=True, view=all_links(ids), extra=NO_IDS)
    assert plan.view is not None
    touched = torch.arange(5) if plan.rows is None else plan.rows
    seen, copies = plan.view.of(rows[touched], rows.mean(dim=0)).split([len(touched), plan.view.start.n_out])
    assert torch.equal(seen, rows[touched])
    seen = torch.full_like(rows, torch.nan).index_copy(0, touched, seen)
    return seen.index_copy(0, torch.tensor(cohort), copies[: len(cohort)])


@pytest.mark.parametrize("execution", ["dense", "sparse", "neighbourhood"])
class TestView:
    def test_neighbours_in_one_cohort_see_the_rows_as_they_were(self, execution: str) -> None:
        """1 becomes (1 * 1 + 3 * 4) / 4 = 3.25 and 2 becomes (3 * 2 + 1 * 8) / 4 = 3.5, from the old rows of both."""
        seen = viewed(execution, [1, 2], ROWS)[:4, 0]
        assert seen.tolist() == [1.0, 3.25, 3.5, 8.0]

    def test_order_of_the_cohort(self, execution: str) -> None:
        assert viewed(execution, [2, 0], ROWS, layers=2)[:4, 0].tolist() == [2.0, 2.0, 3.5, 8.0]

    def test_gradients_reach_the_neighbours(self, execution: str) -> None:
        rows = ROWS.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(viewed(execution, [1], rows)[1].sum(), rows)
        assert gradient[:, 0].tolist() == [0.25, 0.0, 0.75, 0.0, 0.0]  # its own row says nothing


def test_a_lonely_client_is_given_the_mean() -> None:
    assert viewed("dense", [0, 4], ROWS)[:, 0].tolist() == [2.0, 2.0, 4.0, 8.0, 3.0]
    around = viewed("neighbourhood", [0, 4], ROWS)[:, 0]  # of all rows, though only those of 0, 4 and 1 are at hand
    assert around[[0, 4, 1]].tolist() == [2.0, 3.0, 2.0]


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_copies_are_new_nodes_that_nobody_hears(data: st.DataObject) -> None:
    """In a graph that has one more node for each of the cohort, which listens to some of its neighbours."""
    graph, some = data.draw(graphs()), data.draw(st.booleans())
    # with some links only, for layers in which it does not matter how many neighbours there were
    kind = data.draw(st.sampled_from(("sage", "gat") if some else KINDS))
    encoder = Encoder(kind, data.draw(st.integers(1, 4)), 3, 3, data.draw(st.booleans()), data.draw(st.booleans()))
    order = data.draw(st.permutations(range(graph.n)))
    cohort = np.array(order[: data.draw(st.integers(1, graph.n))])
    share = data.draw(st.lists(st.floats(0.01, 1), min_size=len(cohort), max_size=len(cohort)))
    links = Links(np.array(share), 11) if some else all_links(cohort)
    parts, table = encoder.init(torch.Generator().manual_seed(5)), tensor(graph.n, 3, seed=1)

    arcs = Propagation(graph, "neighbours", table)
    sources, targets, weights = graph.arcs()
    new: list[tuple[int, int, float]] = []
    for copy, (client, part) in enumerate(zip(cohort.tolist(), links.share, strict=True)):
        heard = targets == client
        number = int(np.ceil(part * heard.sum()))
        chosen = arcs.into(np.array([client]), Draw(number, links.key))[1]
        assert len(chosen) == number
        heard &= np.isin(sources, chosen)
        new += [(s, graph.n + copy, w) for s, w in zip(sources[heard].tolist(), weights[heard].tolist(), strict=True)]
    old = list(zip(sources.tolist(), targets.tolist(), weights.tolist(), strict=True))
    grown = graph_of(graph.n + len(cohort), [a[:2] for a in old + new], [a[2] for a in old + new], directed=True)
    means = Propagation(grown, "neighbours", table).whole().matrix[graph.n :]
    known = torch.cat([table, torch.zeros(len(cohort), 3, dtype=table.dtype)])
    rows = torch.where(means.sum(dim=1, keepdim=True) > 0, means @ known, table.mean(dim=0))
    known[graph.n :] = rows
    wanted = np.concatenate([cohort, graph.n + np.arange(len(cohort))])
    expected = encoder(parts, known, Planner(grown, encoder, table, "dense").encode(wanted).blocks)[wanted]
    for execution in ("dense", "sparse", "neighbourhood"):
        plan = Planner(graph, encoder, table, execution).round(
            cohort, links=data.draw(st.booleans()), balanced=True, view=links, extra=NO_IDS
        )
        assert plan.view is not None
        h = plan.view.of(table if plan.rows is None else table[plan.rows], table.mean(dim=0))
        assert torch.allclose(encoder(parts, h, plan.blocks)[plan.clients], expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("execution", ["dense", "neighbourhood"])
@pytest.mark.parametrize("kind", ["mean", "sage", "gated", "gat", "gcn"])
def test_clients_are_found_among_the_outputs(execution: str, kind: str) -> None:
    """Places of the cohort are right however many other nodes L_d asks for."""
    made = planner(execution, 2, kind)
    parts = made.encoder.init(torch.Generator().manual_seed(0))

    def codes(plan: Any) -> torch.Tensor:
        return made.encoder(parts, ROWS if plan.rows is None else ROWS[plan.rows], plan.blocks)

    alone = made.encode(np.array([3, 1]))
    plan = made.round(np.array([3, 1]), links=True, balanced=True, view=None, extra=np.array([4, 0]), all_pairs=False)
    assert torch.allclose(codes(plan)[plan.clients], codes(alone)[alone.clients], atol=1e-12)
    everyone = made.encode(np.arange(5))
    assert plan.pairs is not None
    expected = codes(everyone)[everyone.clients][[0, 1, 2, 3, 4]]  # cohort 1, 3; neighbours 0, 2; extra 4, 0
    assert torch.allclose(codes(plan)[plan.pairs], expected, atol=1e-12)


def test_sampled_pairs_are_cohort_neighbours_and_extra() -> None:
    plan = planner("dense").round(
        np.array([0]), links=True, balanced=True, view=None, extra=np.array([3, 3]), all_pairs=False
    )
    assert plan.pairs is not None
    assert plan.every is not None
    assert plan.pairs.tolist() == [0, 1, 3]
    assert plan.yes is not None
    assert plan.yes.tolist() == [[0, 0.25, 0], [0.25, 0, 0], [0, 0, 0]]  # one link, halved, in two places
    assert plan.every.tolist() == [[0, 0.25, 0.125], [0.25, 0, 0.125], [0.125, 0.125, 0]]


def test_all_pairs_by_default_where_cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    keys: dict[str, Any] = {"links": True, "balanced": True, "view": None, "extra": NO_IDS}
    assert planner("sparse").round(np.array([0]), **keys).pairs is None
    assert planner("neighbourhood").round(np.array([0]), **keys).pairs is not None
    monkeypatch.setattr(plan_module, "_ALL_PAIRS", 5)
    assert planner("sparse").round(np.array([0]), **keys).pairs is None
    monkeypatch.setattr(plan_module, "_ALL_PAIRS", 4)
    assert planner("sparse").round(np.array([0]), **keys).pairs is not None


def test_only_so_many_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_module, "_NEIGHBOURS", 1)
    plan = planner("dense").round(
        np.array([2, 4]), links=True, balanced=False, view=None, extra=NO_IDS, all_pairs=False
    )
    assert plan.pairs is not None
    assert plan.pairs.tolist() == [1, 2, 4]


def test_of_many_neighbours_those_with_high_numbers_are_looked_at_too() -> None:
    """A client linked with 1000 others: the 64 chosen ones are spread over them, and not the first 64."""
    star = graph_of(1001, [(0, i) for i in range(1, 1001)])
    planner = Planner(star, Encoder("mean", 1, 2, 2), tensor(1))
    chosen = planner._link_nodes(np.array([0]), np.zeros(0, np.int64))
    assert len(chosen) == 65
    assert np.diff(chosen).max() <= 17
    assert chosen.max() > 980


def test_weights_of_all_pairs_are_made_once_per_balance() -> None:
    made, keys = planner("dense"), {"links": True, "view": None, "extra": NO_IDS}
    a, b, c = (made.round(np.array([0]), balanced=balanced, **keys) for balanced in (True, False, True))
    assert a.every is c.every
    assert a.every is not None
    assert b.every is not None
    assert not torch.equal(a.every, b.every)
    assert tensor(1).dtype == a.every.dtype
