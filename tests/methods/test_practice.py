"""Practising newcomers: with which links, who is sent what, and what it costs."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from panacea.core.records import leaves
from panacea.hypernets import generating
from panacea.methods import find_method
from tests.hypernets.build import PLAIN, cohort_of, graph_of, random_graph, rounds, server, uploads_of
from tests.methods.test_panacea import by_hand

DEFAULT = {"newcomer_view": 0.3, "newcomer_links": "some", "newcomer_practice": 0.5}


@pytest.mark.parametrize("name", ["panacea", "panacea_gn"])
def test_the_default_practises_and_the_paper_does_not(name: str) -> None:
    model = find_method(name).parameter_model
    for given, expected in (
        ({}, DEFAULT),
        ({"preset": "paper"}, {**dict.fromkeys(DEFAULT, 0), "newcomer_links": "all"}),
    ):
        parameters = model(**given).model_dump()
        assert {key: parameters[key] for key in DEFAULT} == expected


def test_practice_by_hand() -> None:
    """As newcomers, 0 starts from 3 and hears 3: 2 * 3 + 1 = 7; 1 from (1 + 5)/2 = 3 and hears 1, 5: 2 * 3 + 1 = 7.

    With one link, 1 hears 0 or 2, as if it were both: 2 (1 + 1 + 1)/3 + 1 = 3 or 2 * 5 + 1 = 11.
    """
    keys = {"lambda_d": 0, "newcomer_view": 1.0, "newcomer_practice": 1.0}
    method, state = by_hand(keys)
    assert method.download(state, cohort_of(method, [0, 1])).params.flatten().tolist() == [7.0, 7.0]
    method, state = by_hand(keys | {"newcomer_links": "some"})
    found = {method.download(state, cohort_of(method, [1], number)).params.item() for number in range(40)}
    assert {round(value, 9) for value in found} == {3.0, 7.0, 11.0}
    for off in ({"newcomer_practice": 0.0}, {"newcomer_view": 0.0}):
        method, state = by_hand(keys | off)
        assert method.download(state, cohort_of(method, [0, 1])).params.flatten().tolist() == [5.0, 7.0]


def test_who_practises_depends_on_client_and_round_alone() -> None:
    """In a share of the visits, whoever else is there."""
    keys = {"newcomer_view": 0.5, "newcomer_links": "some", "newcomer_practice": 0.3}
    method, state = server("panacea", random_graph(9, 3), keys)
    own = method.generated(state, np.arange(9))
    practised = np.zeros((200, 9), np.bool_)
    for number in range(200):
        everybody = method.download(state, cohort_of(method, np.arange(9), number)).params
        practised[number] = (everybody - own).abs().max(dim=1).values > 1e-9
        some = method.download(state, cohort_of(method, [2, 7], number)).params
        assert torch.allclose(some, everybody[[2, 7]], rtol=0, atol=1e-12)
    assert practised.mean() == pytest.approx(0.3, abs=0.04)


def test_a_fixed_difference_is_to_the_model_that_was_sent() -> None:
    """Clients that practise as newcomers and change nothing ask for nothing, though their own models are others."""
    keys = {"newcomer_view": 0.5, "newcomer_links": "some", "newcomer_practice": 1.0, "update": "frozen_delta"}
    method, state = server("panacea_gn", random_graph(9, 3), PLAIN | keys)
    cohort = cohort_of(method, [0, 4])
    sent = method.download(state, cohort)
    assert float((sent.params - method.generated(state, cohort.ids)).abs().max()) > 1e-6
    assert torch.equal(method.aggregate(state, sent, cohort).weights, state.weights)


def test_every_number_of_links_is_as_likely_whoever_practises() -> None:
    """Shares are uniform, and have nothing to do with the draw of who is sent the newcomer's model."""
    method, _ = server("panacea", random_graph(9, 3), DEFAULT)
    drawn: Any = method
    cohorts = [cohort_of(method, np.arange(9), number) for number in range(400)]
    links = np.stack([drawn.view_links(cohort).share for cohort in cohorts])
    practised = np.stack([drawn._drawn("practice", cohort) for cohort in cohorts])
    numbers = np.ceil(links * 6).astype(int)
    assert numbers.min() == 1
    assert np.bincount(numbers.ravel(), minlength=7)[1:] / numbers.size == pytest.approx(1 / 6, abs=0.03)
    assert abs(np.corrcoef(links.ravel(), practised.ravel())[0, 1]) < 0.06


def test_links_that_count_are_among_those_that_are_heard() -> None:
    """With a draw of neighbours as well, in every layer: a copy hears whom its start is made of; weights add up."""
    method, _ = server("panacea_gn", random_graph(30, 2, alone=0), DEFAULT | {"fanout": 4, "encoder": "sage"})
    for number in range(20):
        cohort = cohort_of(method, [3, 11, 26], number)
        plan = method.plan(cohort)  # type: ignore[attr-defined]
        start = plan.view.start.matrix
        assert torch.allclose(start.sum(dim=1), torch.ones(3, dtype=torch.float64))
        for block in plan.blocks:
            heard = block.matrix[block.n_out - 3 :, : block.n_in - 3]
            assert torch.allclose(heard.sum(dim=1), torch.ones(3, dtype=torch.float64))
            assert not ((heard > 0) & (start[:, : heard.shape[1]] == 0)).any()


@pytest.mark.parametrize("kind", ["mean", "sage", "gat"])
def test_every_execution_sends_the_same(kind: str) -> None:
    """Also to a client without neighbours, whose newcomer starts from the mean of all rows."""
    graph = graph_of(7, [(0, 1), (0, 4), (1, 2), (2, 3), (3, 0)], [0.5, 2.0, 1.0, 1.5, 1.0])
    found = []
    for execution in ("dense", "sparse", "neighbourhood"):
        keys = DEFAULT | {"newcomer_practice": 1.0, "encoder": kind, "execution": execution}
        method, state = server("panacea_gn", graph, keys)
        found.append(method.download(state, cohort_of(method, [0, 5, 2])).params)
    assert torch.allclose(found[0], found[1], rtol=0, atol=1e-12)
    assert torch.allclose(found[0], found[2], rtol=0, atol=1e-12)


def test_a_round_is_planned_once_and_an_old_plan_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """By sending and learning together; a method that begins again, here with another graph, plans again."""
    method, state = server("panacea_gn", random_graph(9, 3), DEFAULT | {"newcomer_practice": 1.0})
    made: Any = method
    plans: list[int] = []
    plan = made.plan
    monkeypatch.setattr(made, "plan", lambda cohort: plans.append(cohort.round) or plan(cohort))
    for number in (1, 2):
        cohort = cohort_of(method, [0, 4], number)
        state = method.aggregate(state, uploads_of(method, state, cohort), cohort)
    assert plans == [1, 2]
    other, expected = server("panacea_gn", random_graph(9, 8), DEFAULT | {"newcomer_practice": 1.0})
    again = method.init_server(dataclasses.replace(method.setting, graph=other.setting.graph))
    cohort = cohort_of(method, [0, 4], 2)
    assert torch.equal(method.download(again, cohort).params, other.download(expected, cohort).params)


@pytest.mark.parametrize("lr", [0.01, 1e4])
def test_what_is_chosen_unseen_is_what_is_seen(lr: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU is not waited for: whether a round is undone is decided there, to the same numbers."""
    states = []
    for at_hand in (("cpu",), ()):
        monkeypatch.setattr(generating, "AT_HAND", at_hand)
        method, state = server("panacea", random_graph(9, 3), DEFAULT, server_lr=lr)
        states.append(rounds(method, state, [[0, 2], [1, 2, 3], [4]]))
    assert float(states[0].undone) == (3 if lr > 1 else 0)
    assert all(torch.equal(a, b) for a, b in zip(leaves(states[0]), leaves(states[1]), strict=True))
