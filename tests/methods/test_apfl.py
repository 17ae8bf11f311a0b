"""APFL by hand: alpha 0.5, one step a round, both clients, the network of tests/methods/test_worked_examples.py.

Round 1. v = w = (1, 0, 0), so that alpha has no slope and vbar = w: w_i = (1.4, 0.8, 0.4) and (1, -0.2, -0.2), v goes
half as far, (1.2, 0.4, 0.2) and (1, -0.1, -0.1); by samples w = (1.1, 0.05, -0.05). Evaluated: the mixtures
(1.15, 0.225, 0.075) and (1.05, -0.025, -0.075).
Round 2. Client 0: vbar = (1.15, 0.225, 0.075), prediction 1.675, error -1.325, slope -2.65 (1, 2, 1);
    v = (1.2, 0.4, 0.2) + 0.05 * 2.65 (1, 2, 1) = (1.3325, 0.665, 0.3325);
    v - w = (0.1, 0.35, 0.25), along the slope -2.65 * 1.05 = -2.7825, alpha = 0.5 + 0.27825 = 0.77825;
    w_0: prediction 1.15, error -1.85, gradient -3.7 (1, 2, 1), (1.47, 0.79, 0.32).
  Client 1: vbar = (1.05, -0.025, -0.075), prediction -0.1, error 0.9, slope (0, 1.8, 1.8); v = (1, -0.19, -0.19);
    v - w = (-0.1, -0.15, -0.05), along the slope -0.36, alpha = 0.536; w_1: error 1, (1.1, -0.15, -0.25).
  w = (1.1925, 0.085, -0.1075).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from tests.engines.test_derivatives import loss_of
from tests.methods.test_worked_examples import example, trajectory_of_all
from tests.methods.visits import after, both_engines, close, evaluated, look, sampled
from tests.toy import play, toy_experiment


@both_engines
class TestByHand:
    def test_two_rounds(self, engine: str) -> None:
        experiment = example("apfl", 1, engine=engine)
        play(experiment, 1)
        expected = [pytest.approx([1.15, 0.225, 0.075]), pytest.approx([1.05, -0.025, -0.075])]
        assert trajectory_of_all(experiment).tolist() == expected
        play(experiment, 1)
        own = experiment.state.clients.packed()[1]
        assert own.params.tolist() == [pytest.approx([1.3325, 0.665, 0.3325]), pytest.approx([1.0, -0.19, -0.19])]
        assert own.alpha.flatten().tolist() == pytest.approx([0.77825, 0.536])
        w = [1.1925, 0.085, -0.1075]
        assert experiment.state.server.params.tolist() == pytest.approx(w)
        mixed = [
            [a * p + (1 - a) * q for p, q in zip(v, w, strict=True)]
            for a, v in ((0.77825, [1.3325, 0.665, 0.3325]), (0.536, [1.0, -0.19, -0.19]))
        ]
        assert trajectory_of_all(experiment).tolist() == [pytest.approx(row) for row in mixed]

    def test_a_newcomer_has_the_global_model_or_the_mixture_of_one_visit(self, engine: str) -> None:
        """Client 0 is new, nothing was trained: v = (1.2, 0.4, 0.2) after a step, mixed with the received (1, 0, 0)."""
        for novel, expected in (("fit", [1.1, 0.2, 0.1]), ("global", [1.0, 0.0, 0.0])):
            experiment = example("apfl", 1, {"novel": novel}, engine=engine, cohort=1)
            experiment.federation.novel[0] = True
            assert evaluated(experiment, novel=True).tolist() == [pytest.approx(expected)]


@pytest.mark.parametrize("keys", [{}, {"local_epochs": 2}, {"momentum": 0.9}])
def test_without_a_share_it_is_fedavg(keys: dict[str, Any]) -> None:
    apfl, fedavg = after(4, "apfl", {"alpha": 0.0, "adaptive": "never"}, **keys), after(4, "fedavg", **keys)
    assert torch.equal(evaluated(apfl), evaluated(fedavg))
    assert torch.equal(apfl.state.server.params, fedavg.state.server.params)


@pytest.mark.parametrize("keys", [{}, {"local_epochs": 2}, {"momentum": 0.9}])
def test_with_the_whole_share_it_is_separate_for_those_sampled(keys: dict[str, Any]) -> None:
    apfl = after(3, "apfl", {"alpha": 1.0, "adaptive": "never"}, cohort=2, **keys)
    separate = after(3, "separate", cohort=2, **keys)
    seen = sampled(apfl)
    assert not seen.all()
    assert torch.equal(evaluated(apfl)[seen], evaluated(separate)[seen])
    assert bool((evaluated(apfl)[~seen] == apfl.state.server.params).all())


@both_engines
@pytest.mark.parametrize("alpha", [0.2, 0.6])
def test_the_slopes_are_those_of_the_loss_of_the_mixture(alpha: float, engine: str) -> None:
    """f(alpha v + (1 - alpha) w) by autograd, in v and in alpha; one step on all samples from v != w."""
    experiment = toy_experiment("apfl", {"alpha": alpha}, engine=engine, local_steps=1, batch_size=64, cohort=6)
    play(experiment, 2)
    seen = look(experiment)
    assert not close(seen.kept_before.params, seen.downloads.params, 1e-3)
    for row, client in enumerate(seen.cohort.ids):
        v = seen.kept_before.params[row].clone().requires_grad_(True)
        a = seen.kept_before.alpha[row].clone().requires_grad_(True)
        w = seen.downloads.params[row]
        in_v, in_a = torch.autograd.grad(loss_of(experiment, int(client))(a * v + (1 - a) * w), (v, a))
        assert close(seen.kept.params[row], v.detach() - 0.1 * in_v)
        assert close(seen.kept.alpha[row], (a.detach() - 0.1 * in_a).clamp(0, 1))


@pytest.mark.parametrize("adaptive", ["round", "step"])
def test_the_share_stays_within_its_bounds(adaptive: str) -> None:
    """A rate at which alpha would leave them: it does reach both ends."""
    experiment = toy_experiment("apfl", {"adaptive": adaptive}, lr=2.0, cohort=6)
    found = []
    for _ in range(6):
        play(experiment, 1)
        found.append(experiment.state.clients.packed()[1].alpha)
    alphas = torch.stack(found)
    assert bool(((alphas >= 0) & (alphas <= 1)).all())
    assert bool((alphas == 0).any())
    assert bool((alphas == 1).any())


@both_engines
@pytest.mark.parametrize("keys", [{"local_steps": 4}, {"local_epochs": 2}])
def test_the_share_learns_in_the_first_step_of_a_visit_only(keys: dict[str, int], engine: str) -> None:
    """A visit of many steps leaves alpha where a visit of one step does; learning in every step does not."""
    long = {adaptive: after(2, "apfl", {"adaptive": adaptive}, engine=engine, **keys) for adaptive in ("round", "step")}
    short = after(2, "apfl", engine=engine, **keys)
    short.engine.local = dataclasses.replace(short.engine.local, steps=1)
    one = look(short).kept.alpha
    assert torch.equal(look(long["round"]).kept.alpha, one)
    every = look(long["step"])
    assert not close(every.kept.alpha, every.kept_before.alpha, 1e-6)
    assert not close(every.kept.alpha, one, 1e-6)
    never = after(2, "apfl", {"adaptive": "never"}, engine=engine, **keys)
    assert bool((look(never).kept.alpha == 0.5).all())


def test_the_diagnostic_is_the_mean_share_of_those_sampled() -> None:
    experiment = toy_experiment("apfl", cohort=2)
    state = experiment.state
    assert experiment.method.diagnostics(state.server, state.clients, None) == {}
    play(experiment, 3)
    own = experiment.state.clients.packed()[1].alpha
    found = experiment.method.diagnostics(experiment.state.server, experiment.state.clients, None)
    assert found == {"alpha_mean": pytest.approx(float(own.mean()))}
    assert 0 < len(own) < 6


LOGITS = {"mixing": "logits"}


@both_engines
def test_a_linear_network_does_not_care_what_is_mixed(engine: str) -> None:
    """Its output is linear in its parameters, so that mixed outputs are outputs of mixed parameters."""
    outputs, parameters = (example("apfl", 2, keys, engine=engine) for keys in (LOGITS, {}))
    for experiment in (outputs, parameters):
        play(experiment, 3)
    assert close(outputs.state.server.params, parameters.state.server.params)
    ours, theirs = (experiment.state.clients.packed()[1] for experiment in (outputs, parameters))
    assert close(ours.params, theirs.params)
    assert close(ours.alpha, theirs.alpha)
    alpha, w, v = trajectory_of_all(outputs).split([1, 3, 3], dim=1)
    assert close(alpha * v + (1 - alpha) * w, trajectory_of_all(parameters))


def test_mixed_outputs_of_a_network_with_a_hidden_layer_are_another_method() -> None:
    logits, parameters = after(3, "apfl", LOGITS, cohort=6), after(3, "apfl", cohort=6)
    assert torch.equal(logits.state.server.params, parameters.state.server.params)  # the shared track is FedAvg's
    own = [experiment.state.clients.packed()[1].params for experiment in (logits, parameters)]
    assert not close(*own, 1e-4)


def test_mixed_outputs_without_and_with_the_whole_share() -> None:
    """FedAvg and Separate again: the evaluated vector is (alpha, w, v)."""
    size = after(0, "fedavg").target.layout.size
    none = evaluated(after(3, "apfl", {**LOGITS, "alpha": 0.0, "adaptive": "never"}))
    assert bool((none[:, 0] == 0).all())
    assert torch.equal(none[:, 1 : 1 + size], evaluated(after(3, "fedavg")))
    experiment = after(3, "apfl", {**LOGITS, "alpha": 1.0, "adaptive": "never"}, cohort=2)
    whole, seen = evaluated(experiment), sampled(experiment)
    assert torch.equal(whole[seen][:, 1 + size :], evaluated(after(3, "separate", cohort=2))[seen])
    assert bool((whole[seen][:, 0] == 1).all())
    assert bool((whole[~seen][:, 0] == 0).all())


def test_mixed_outputs_agree_in_both_engines() -> None:
    ours, reference = (after(20, "apfl", LOGITS, engine=engine) for engine in ("vectorised", "sequential"))
    assert close(evaluated(ours), evaluated(reference), 1e-9)
    assert close(evaluated(ours, novel=True), evaluated(reference, novel=True), 1e-9)
