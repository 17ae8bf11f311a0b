"""Ditto by hand: lambda 0.5, one step a round, both clients, the network of tests/methods/test_worked_examples.py.

Round 1: v starts where w does, so that nothing pulls: v = (1.4, 0.8, 0.4) and (1, -0.2, -0.2), and by samples
w = (1.1, 0.05, -0.05).
Round 2: client 0, gradient (0.8, 1.6, 0.8) and pull 0.5 (v - w) = 0.5 (0.3, 0.75, 0.45) = (0.15, 0.375, 0.225), so
v = (1.4 - 0.095, 0.8 - 0.1975, 0.4 - 0.1025) = (1.305, 0.6025, 0.2975). Client 1, gradient (0, 1.2, 1.2) and pull
0.5 (-0.1, -0.25, -0.15) = (-0.05, -0.125, -0.075), so v = (1.005, -0.3075, -0.3125).
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from tests.methods.test_worked_examples import example, trajectory_of_all
from tests.methods.visits import after, both_engines, close, evaluated, look, sampled
from tests.toy import play, toy_experiment


@both_engines
class TestByHand:
    def test_two_rounds(self, engine: str) -> None:
        experiment = example("ditto", 1, {"lam": 0.5}, engine=engine)
        play(experiment, 1)
        assert experiment.state.server.params.tolist() == pytest.approx([1.1, 0.05, -0.05])
        play(experiment, 1)
        expected = [pytest.approx([1.305, 0.6025, 0.2975]), pytest.approx([1.005, -0.3075, -0.3125])]
        assert trajectory_of_all(experiment).tolist() == expected

    def test_the_pull_is_towards_the_received_model(self, engine: str) -> None:
        """Two steps from v = w = (1, 0, 0): the pull stays towards that point, as FedProx's with mu = 0.5."""
        experiment = example("ditto", 2, {"lam": 0.5}, engine=engine)
        play(experiment, 1)
        expected = [pytest.approx([1.3, 0.6, 0.3]), pytest.approx([1.0, -0.31, -0.31])]
        assert trajectory_of_all(experiment).tolist() == expected


@pytest.mark.parametrize("keys", [{}, {"momentum": 0.9, "clip": 0.5, "weight_decay": 0.01}, {"local_epochs": 2}])
@pytest.mark.parametrize("lam", [0.0, 0.7])
def test_the_shared_track_is_fedavg(lam: float, keys: dict[str, Any]) -> None:
    ditto, fedavg = after(4, "ditto", {"lam": lam}, **keys), after(4, "fedavg", **keys)
    assert torch.equal(ditto.state.server.params, fedavg.state.server.params)


@pytest.mark.parametrize("keys", [{}, {"local_epochs": 2}])
def test_without_a_pull_it_is_separate_for_those_sampled(keys: dict[str, Any]) -> None:
    ditto, separate = after(3, "ditto", {"lam": 0.0}, cohort=2, **keys), after(3, "separate", cohort=2, **keys)
    seen = sampled(ditto)
    assert not seen.all()
    assert torch.equal(evaluated(ditto)[seen], evaluated(separate)[seen])
    assert bool((evaluated(ditto)[~seen] != evaluated(separate)[~seen]).any(dim=1).all())


def test_a_stronger_pull_ends_closer_to_the_received_model() -> None:
    """The received model of the third round, and v after it."""
    distances = []
    for lam in (0.0, 0.3, 1.0, 3.0, 9.0):  # 0.1 * 9 is close to a jump onto w
        experiment = after(2, "ditto", {"lam": lam}, cohort=6)
        seen = look(experiment)
        distances.append((seen.kept.params - seen.downloads.params).norm(dim=1))
    for weaker, stronger in itertools.pairwise(distances):
        assert bool((stronger < weaker).all())
    assert bool((distances[-1] < 0.3 * distances[0]).all())


def test_clients_never_sampled_and_newcomers_get_the_global_model() -> None:
    experiment = after(2, "ditto", cohort=2)
    w, seen = experiment.state.server.params, sampled(experiment)
    assert not seen.all()
    assert bool((evaluated(experiment)[~seen] == w).all())
    assert bool((evaluated(experiment)[seen] != w).any(dim=1).all())
    assert torch.equal(evaluated(experiment, novel=True), w.unsqueeze(0))


def test_a_late_client_starts_where_it_was_told_to() -> None:
    """The first visit of a client in a later round: its v is the initial model, or the w it receives."""
    for start in ("initial", "received"):
        experiment = after(2, "ditto", {"personal_start": start}, cohort=2)
        seen = look(toy := toy_experiment("ditto", {"personal_start": start}, cohort=6))
        assert torch.equal(seen.kept_before.params, toy.target.initial.expand(6, -1))  # the same in round 1
        download = experiment.method.download(experiment.state.server, seen.cohort)
        first = experiment.method.init_client(download).params
        expected = experiment.target.initial if start == "initial" else experiment.state.server.params
        assert torch.equal(first, expected.expand(6, -1))


def test_the_start_decides_where_a_late_clients_model_ends() -> None:
    a, b = (after(4, "ditto", {"personal_start": start}, cohort=2) for start in ("initial", "received"))
    assert torch.equal(a.state.server.params, b.state.server.params)
    assert not close(evaluated(a)[sampled(a)], evaluated(b)[sampled(b)], 1e-6)


@both_engines
def test_a_newcomer_may_fit_a_model_of_its_own(engine: str) -> None:
    """Client 1 is new and w is (1.4, 0.8, 0.4) after client 0's step; lambda 0.5, two steps from v = w.

    Prediction 0.8 + 0.4 = 1.2, error 2.2, gradient (0, 4.4, 4.4), no pull: v = (1.4, 0.36, -0.04).
    Prediction 0.32, error 1.32, gradient (0, 2.64, 2.64), pull (0, -0.22, -0.22): v = (1.4, 0.118, -0.282).
    """
    experiment = example("ditto", 1, {"lam": 0.5, "novel": "fit", "novel_steps": 2}, engine=engine, cohort=1)
    experiment.federation.novel[1] = True
    play(experiment, 1)
    assert experiment.state.server.params.tolist() == pytest.approx([1.4, 0.8, 0.4])
    assert evaluated(experiment, novel=True).tolist() == [pytest.approx([1.4, 0.118, -0.282])]
    assert experiment.method.newcomer_uses == "train split"


def test_the_number_of_steps_of_a_newcomer_defaults_to_those_of_a_visit() -> None:
    results = [
        evaluated(after(1, "ditto", {"novel": "fit", "novel_steps": steps}), novel=True) for steps in (None, 4, 5)
    ]
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])
