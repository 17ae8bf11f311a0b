"""For every method: what an untrained client would send, and that a refused upload reaches nothing."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from panacea.core.records import Tree, leaves, named_leaves, tree_map
from panacea.core.round import Trained, run_round
from panacea.core.types import Cohort
from panacea.experiment.experiment import Experiment
from panacea.methods import method_names
from tests.toy import play, toy_experiment

METHODS = method_names()
SENDING = [name for name in METHODS if name != "separate"]


def visit(experiment: Experiment) -> tuple[Tree, Trained, Cohort]:
    cohort = experiment.cohort(experiment.state.round + 1)
    downloads = experiment.method.download(experiment.state.server, cohort)
    kept = experiment.state.clients.take(cohort.ids, fresh=experiment.method.init_client(downloads))
    trained = experiment.engine.train(
        experiment.method, downloads, kept, experiment.state.statistics.send(cohort), cohort
    )
    return experiment.method.unchanged(downloads, trained.uploads), trained, cohort


@pytest.mark.parametrize("name", METHODS)
def test_it_has_the_shape_of_an_upload(name: str) -> None:
    experiment = toy_experiment(name)
    play(experiment, 1)
    unchanged, trained, _ = visit(experiment)
    assert type(unchanged) is type(trained.uploads)
    pairs = list(zip(named_leaves(unchanged), named_leaves(trained.uploads), strict=True))
    assert [(n, a.shape, a.dtype) for (n, a), _ in pairs] == [(n, b.shape, b.dtype) for _, (n, b) in pairs]
    assert bool(pairs) == (name != "separate")


# without a step these still send something else: FedAMP's clients may start at their own w_i (not by default), and
# FedCG's student has a rate of its own and sends what it saw
@pytest.mark.parametrize("name", SENDING)
def test_a_client_that_does_not_move_sends_it(name: str) -> None:
    experiment = toy_experiment(name, lr=0.0)
    play(experiment, 1)
    unchanged, trained, _ = visit(experiment)
    a, b = unchanged.params, trained.uploads.params
    if name == "fedcg":
        a, b = a[:, : experiment.method.network], b[:, : experiment.method.network]  # type: ignore[attr-defined]
    assert a.shape[1] > 0
    torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


class Lie:
    """One row is shifted after it was sent, and then refused."""

    def __init__(self, row: int, by: float) -> None:
        self.row, self.by = row, by

    def corrupt(self, unchanged: Tree, uploads: Tree, cohort: Cohort) -> Tree:
        def shifted(leaf: Tensor) -> Tensor:
            new = leaf.clone()
            new[self.row] += self.by
            return new

        return tree_map(shifted, uploads)

    def messages(self, uploads: Tree, cohort: Cohort) -> dict[int, object]:
        return {}


def after(name: str, lie: float, rounds: int = 2, **keys: Any) -> tuple[Experiment, list[dict[int, str]]]:
    experiment, reasons = toy_experiment(name, cohort=5, **keys), []
    for round in range(1, rounds + 1):
        who = experiment.cohort(round)
        experiment.state, report = run_round(
            experiment.method, experiment.state, who, experiment.engine, Lie(round % 5, lie)
        )
        reasons.append(report.refused)
    return experiment, reasons


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("name", SENDING)
def test_what_a_refused_row_holds_changes_nothing(name: str, norm: str) -> None:
    keys = {} if name == "fedbn" else {"model.norm": norm}
    results = [after(name, lie, **keys) for lie in (torch.nan, torch.inf, 1e30, -1e25)]
    first, reasons = results[0]
    assert [list(why.values()) for why in reasons] == [["not finite"]] * 2
    assert [list(why.values()) for why in results[2][1]] == [["too large"]] * 2
    for other, _ in results[1:]:
        for place, ours, theirs in (
            (place, a, b)
            for (place, a), b in zip(
                named_leaves((first.state.server, first.state.statistics.common)),
                leaves((other.state.server, other.state.statistics.common)),
                strict=True,
            )
        ):
            assert torch.equal(ours, theirs), place
            assert bool(torch.isfinite(ours).all())
    assert any(
        not torch.equal(a, b)
        for a, b in zip(leaves(first.state.server), leaves(after(name, 0.0, **keys)[0].state.server), strict=True)
    )


@pytest.mark.parametrize("name", METHODS)
def test_when_all_are_refused_the_server_stays(name: str) -> None:
    class Everyone(Lie):
        def corrupt(self, unchanged: Tree, uploads: Tree, cohort: Cohort) -> Tree:
            return tree_map(lambda leaf: leaf * torch.nan, uploads)

    experiment = toy_experiment(name, cohort=4)
    play(experiment, 1)
    before = [leaf.clone() for leaf in leaves((experiment.state.server, experiment.state.statistics.common))]
    who = experiment.cohort(2)
    experiment.state, report = run_round(experiment.method, experiment.state, who, experiment.engine, Everyone(0, 0))
    assert experiment.state.round == 2
    assert np.isfinite(report.loss)
    if name != "separate":
        assert sorted(report.refused) == sorted(who.ids.tolist())
        now = leaves((experiment.state.server, experiment.state.statistics.common))
        assert all(torch.equal(a, b) for a, b in zip(before, now, strict=True))


def test_a_refused_first_visit_is_not_heard() -> None:
    """FedAMP mixes with clients it has heard of; a refused one is none of them."""
    experiment, reasons = after("fedamp", torch.nan, rounds=1)
    (client,) = reasons[0]
    rows = np.searchsorted(experiment.federation.train_ids, experiment.cohort(1).ids)
    heard = experiment.state.server.heard[torch.from_numpy(rows), 0]
    assert heard.tolist() == [float(other != client) for other in experiment.cohort(1).ids]


def test_scaffold_counts_only_changes_that_are_used() -> None:
    """c moves by (1/N) times the sum of the used changes."""
    experiment = toy_experiment("scaffold", cohort=5)
    _, trained, who = visit(experiment)
    trust = torch.ones_like(who.trust)
    trust[1] = 0
    new = experiment.method.aggregate(experiment.state.server, trained.uploads, dataclasses.replace(who, trust=trust))
    used = torch.cat([trained.uploads.change[:1], trained.uploads.change[2:]])
    torch.testing.assert_close(new.control - experiment.state.server.control, used.sum(dim=0) / 6)


def test_statistics_that_stay_with_clients_are_not_judged() -> None:
    """With buffers=local a refused upload takes no statistics from its client, and no mean is put in their place."""
    lied, honest = (
        after("fedavg", lie, rounds=1, **{"model.norm": "batch", "buffers": "local"})[0] for lie in (torch.nan, 0.0)
    )
    a, b = (experiment.state.statistics.own.packed()[1] for experiment in (lied, honest))
    assert torch.equal(a, b)
    guarded = toy_experiment("fedavg", cohort=5, **{"model.norm": "batch", "buffers": "local", "defence": "median"})
    guarded.state, _ = run_round(
        guarded.method, guarded.state, guarded.cohort(1), guarded.engine, None, guarded.defence
    )
    assert torch.equal(guarded.state.statistics.own.packed()[1], b)
