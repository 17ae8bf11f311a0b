"""SCAFFOLD by hand, and what its control variates must be.

Two local steps, both clients in every round (the network and the first round's numbers: tests/methods/test_worked_
examples.py). Round 1, all c zero: client 0 has seen the gradients (-4, -8, -4) and (0.8, 1.6, 0.8), mean
(-1.6, -3.2, -1.6); client 1 (0, 2, 2) and (0, 1.2, 1.2), mean (0, 1.6, 1.6). So c = (-0.8, -0.8, 0) and
x = ((1.32, 0.64, 0.32) + (1, -0.32, -0.32)) / 2 = (1.16, 0.16, 0).

Round 2. Client 0 adds c - c_0 = (0.8, 2.4, 1.6) to each gradient:
    at (1.16, 0.16, 0): prediction 1.48, error -1.52, gradient (-3.04, -6.08, -3.04), step along (-2.24, -3.68, -1.44);
    at (1.384, 0.528, 0.144): prediction 2.584, error -0.416, gradient (-0.832, -1.664, -0.832), step along
    (-0.032, 0.736, 0.768): y = (1.3872, 0.4544, 0.0672), new c_0 = (-1.936, -3.872, -1.936).
Client 1 adds c - c_1 = (-0.8, -2.4, -1.6):
    at (1.16, 0.16, 0): prediction 0.16, error 1.16, gradient (0, 2.32, 2.32), step along (-0.8, -0.08, 0.72);
    at (1.24, 0.168, -0.072): prediction 0.096, error 1.096, gradient (0, 2.192, 2.192), step along
    (-0.8, -0.208, 0.592): y = (1.32, 0.1888, -0.1312), new c_1 = (0, 2.256, 2.256).
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from panacea.core.types import Cohort
from panacea.evaluation.evaluate import adapted
from panacea.experiment.experiment import Experiment
from tests.engines.test_derivatives import loss_of
from tests.methods.test_worked_examples import example, trajectory_of_all
from tests.methods.visits import after, both_engines, close, everyone, look
from tests.toy import play, toy_experiment


@both_engines
class TestByHand:
    def test_the_second_round_is_corrected(self, engine: str) -> None:
        experiment = example("scaffold", 2, engine=engine)
        play(experiment, 1)
        server = experiment.state.server
        assert server.params.tolist() == pytest.approx([1.16, 0.16, 0.0])
        assert server.control.tolist() == pytest.approx([-0.8, -0.8, 0.0])
        seen = look(experiment)
        assert seen.uploads.params.tolist() == [
            pytest.approx([1.3872, 0.4544, 0.0672]),
            pytest.approx([1.32, 0.1888, -0.1312]),
        ]
        assert seen.kept.control.tolist() == [
            pytest.approx([-1.936, -3.872, -1.936]),
            pytest.approx([0.0, 2.256, 2.256]),
        ]
        play(experiment, 1)
        assert experiment.state.server.params.tolist() == pytest.approx([1.3536, 0.3216, -0.032])
        assert experiment.state.server.control.tolist() == pytest.approx([-0.968, -0.808, 0.16])
        assert trajectory_of_all(experiment).tolist() == [pytest.approx([1.3536, 0.3216, -0.032])] * 2

    def test_option_one_keeps_the_gradient_at_the_received_model(self, engine: str) -> None:
        experiment = example("scaffold", 2, {"option": "I"}, engine=engine)
        play(experiment, 1)
        kept = experiment.state.clients.packed()[1].control
        assert kept.tolist() == [pytest.approx([-4.0, -8.0, -4.0]), pytest.approx([0.0, 2.0, 2.0])]
        assert experiment.state.server.control.tolist() == pytest.approx([-2.0, -3.0, -1.0])

    @pytest.mark.parametrize(("rate", "expected"), [(0.5, [1.08, 0.08, 0.0]), (2.0, [1.32, 0.32, 0.0])])
    def test_the_servers_rate_scales_its_step(self, rate: float, expected: list[float], engine: str) -> None:
        experiment = example("scaffold", 2, {"global_lr": rate}, engine=engine)
        play(experiment, 1)
        assert experiment.state.server.params.tolist() == pytest.approx(expected)
        assert experiment.state.server.control.tolist() == pytest.approx([-0.8, -0.8, 0.0])  # c has no rate


def controls(experiment: Experiment) -> torch.Tensor:
    """``[train clients, P]``: c_i, zero for those never visited."""
    cohort = everyone(experiment)
    fresh = experiment.method.init_client(experiment.method.download(experiment.state.server, cohort))
    found: torch.Tensor = experiment.state.clients.take(cohort.ids, fresh).control
    return found


@both_engines
@pytest.mark.parametrize("option", ["I", "II"])
@pytest.mark.parametrize("keys", [{}, {"local_epochs": 2}, {"momentum": 0.9, "weight_decay": 0.01, "clip": 0.5}])
def test_the_servers_control_variate_is_the_mean_of_all_clients(option: str, keys: dict[str, Any], engine: str) -> None:
    """Three of six training clients take part in a round; the seventh client is novel and does not count."""
    experiment = toy_experiment("scaffold", {"option": option}, engine=engine, **keys)
    assert len(experiment.federation.train_ids) == 6
    for played in range(5):
        play(experiment, 1)
        own = controls(experiment)
        assert int((own == 0).all(dim=1).sum()) == int((experiment.visits[experiment.federation.train_ids] == 0).sum())
        assert close(experiment.state.server.control, own.mean(dim=0)), f"round {played + 1}"
    assert bool(experiment.state.server.control.any())


@both_engines
@pytest.mark.parametrize("keys", [{}, {"local_epochs": 2}])
def test_option_two_is_the_printed_formula(keys: dict[str, Any], engine: str) -> None:
    """``c_i+ = c_i - c + (x - y) / (K eta)``, K of each client, under plain SGD."""
    experiment = toy_experiment("scaffold", engine=engine, **keys)
    numbers = set()
    for _ in range(4):
        seen = look(experiment)
        steps = torch.as_tensor(experiment.engine.local.steps_of(seen.cohort.ids, None)).double().unsqueeze(-1)
        numbers |= set(steps.flatten().tolist())
        x, c, mine = seen.downloads.params, seen.downloads.control, seen.kept_before.control
        printed = mine - c + (x - seen.uploads.params) / (steps * 0.1)
        assert close(seen.kept.control, printed)
        assert close(seen.uploads.change, printed - mine)
        play(experiment, 1)
    assert (len(numbers) > 1) is bool(keys)  # the ragged case is ragged


@both_engines
def test_option_one_is_the_full_gradient(engine: str) -> None:
    """Over all samples, of which a batch has two, at the received x of a later round."""
    experiment = toy_experiment("scaffold", {"option": "I"}, engine=engine, batch_size=2)
    play(experiment, 2)
    seen = look(experiment)
    x = experiment.state.server.params.clone().requires_grad_(True)
    for row, client in enumerate(seen.cohort.ids):
        (gradient,) = torch.autograd.grad(loss_of(experiment, int(client))(x), x)
        assert close(seen.kept.control[row], gradient)


def test_one_step_of_the_first_round_is_fedavg() -> None:
    scaffold = after(1, "scaffold", local_steps=1)
    fedavg = after(1, "fedavg", {"weighting": "uniform"}, local_steps=1)
    assert close(scaffold.state.server.params, fedavg.state.server.params)
    later, plain = after(3, "scaffold", local_steps=1), after(3, "fedavg", {"weighting": "uniform"}, local_steps=1)
    assert not close(later.state.server.params, plain.state.server.params, 1e-6)  # a half of all clients: c matters


def test_with_everyone_present_one_step_stays_fedavg() -> None:
    """The corrections ``c - c_i`` of all clients sum to zero."""
    scaffold = after(4, "scaffold", local_steps=1, cohort=6)
    fedavg = after(4, "fedavg", {"weighting": "uniform"}, local_steps=1, cohort=6)
    assert close(scaffold.state.server.params, fedavg.state.server.params)


@both_engines
def test_the_alternative_is_the_local_model_of_one_more_visit(engine: str) -> None:
    """On a batch of all samples the visit's numbers are those of the second round, worked out above."""
    experiment = example("scaffold", 2, engine=engine)
    play(experiment, 1)
    cohort = everyone(experiment)
    state = experiment.state
    (name, adaptation), *none = experiment.method.alternatives(state.server, state.clients, cohort).items()
    assert name == "local"
    assert not none
    x = state.server.params.expand(2, -1)
    found, _ = adapted(adaptation, x, state.statistics.send(cohort), experiment.engine, cohort)
    expected = [pytest.approx([1.3872, 0.4544, 0.0672]), pytest.approx([1.32, 0.1888, -0.1312])]
    assert found.tolist() == expected
    assert state.server.params.tolist() == pytest.approx([1.16, 0.16, 0.0])


def test_a_newcomer_of_the_alternative_has_no_control_variate() -> None:
    experiment = after(2, "scaffold")
    novel = Cohort.of(experiment.federation.novel_ids, experiment.federation.counts("train"), 2, torch.zeros(1))
    adaptation = experiment.method.alternatives(experiment.state.server, experiment.state.clients, novel)["local"]
    assert not bool(adaptation.kept.control.any())
    assert bool(adaptation.download.control.any())
