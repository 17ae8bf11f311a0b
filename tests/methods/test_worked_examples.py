"""One round of each method on three numbers, worked out by hand.

The network is ``w1 x1 + w2 x2 + b`` with squared error, started at (1, 0, 0), rate 0.1. A batch is all of a client's
samples. Client 0 has one sample x = (1, 2), y = 3; client 1 has three times x = (0, 1), y = -1.

Step 1. Client 0: prediction 1, error -2, gradient 2 * -2 * (1, 2, 1) = (-4, -8, -4), so w = (1.4, 0.8, 0.4).
        Client 1: prediction 0, error 1, gradient 2 * 1 * (0, 1, 1) = (0, 2, 2), so w = (1, -0.2, -0.2).
Step 2. Client 0: prediction 1.4 + 1.6 + 0.4 = 3.4, error 0.4, gradient (0.8, 1.6, 0.8), so w = (1.32, 0.64, 0.32).
        Client 1: prediction -0.4, error 0.6, gradient (0, 1.2, 1.2), so w = (1, -0.32, -0.32).
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from panacea.data.federation import Federation
from panacea.data.task import Task
from panacea.experiment.config import build_config
from panacea.experiment.experiment import Experiment
from tests.toy import play, toy_experiment, trajectory

AFTER_ONE = ((1.4, 0.8, 0.4), (1.0, -0.2, -0.2))
AFTER_TWO = ((1.32, 0.64, 0.32), (1.0, -0.32, -0.32))


def example(method: str, steps: int, parameters: dict[str, Any] | None = None, **keys: Any) -> Experiment:
    clients = [([[1.0, 2.0]], [[3.0]]), ([[0.0, 1.0]] * 3, [[-1.0]] * 3)]
    fed = Federation.from_clients(clients, task=Task("regression", (2,), (1,)), val=0, test=0, name="hand")
    net = nn.Linear(2, 1).double()
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[1.0, 0.0]]))
        net.bias.zero_()
    flat = {"data": "hand", "method": method, "local_steps": steps, "lr": 0.1, "dtype": "float64", "cohort": 2}
    flat |= {f"method.{key}": value for key, value in (parameters or {}).items()}
    return Experiment(build_config({**flat, "rounds": 3, **keys}), fed, net)


def mix(a: tuple[float, ...], b: tuple[float, ...], share: float) -> list[float]:
    return [share * p + (1 - share) * q for p, q in zip(a, b, strict=True)]


@pytest.mark.parametrize("engine", ["sequential", "vectorised"])
class TestByHand:
    def test_fedavg_weighs_by_samples(self, engine: str) -> None:
        experiment = example("fedavg", 1, engine=engine)
        play(experiment, 1)
        assert experiment.state.server.params.tolist() == pytest.approx([1.1, 0.05, -0.05])  # 1/4 and 3/4

    def test_fedavg_two_steps_uniform(self, engine: str) -> None:
        experiment = example("fedavg", 2, {"weighting": "uniform"}, engine=engine)
        play(experiment, 1)
        assert experiment.state.server.params.tolist() == pytest.approx(mix(*AFTER_TWO, 0.5))

    def test_fedprox_pulls_back_from_the_second_step_on(self, engine: str) -> None:
        """mu 0.5: at step 1 the term is zero; at step 2 it adds 0.5 (w - (1, 0, 0)).

        Client 0: (0.8, 1.6, 0.8) + (0.2, 0.4, 0.2) = (1, 2, 1), so w = (1.3, 0.6, 0.3).
        Client 1: (0, 1.2, 1.2) + (0, -0.1, -0.1) = (0, 1.1, 1.1), so w = (1, -0.31, -0.31).
        """
        experiment = example("fedprox", 2, {"mu": 0.5, "weighting": "uniform"}, engine=engine)
        play(experiment, 1)
        expected = mix((1.3, 0.6, 0.3), (1.0, -0.31, -0.31), 0.5)
        assert experiment.state.server.params.tolist() == pytest.approx(expected)

    @pytest.mark.parametrize("method", ["fedavg_ft", "fedprox_ft"])
    def test_tuning_starts_at_the_global_model_without_the_term(self, method: str, engine: str) -> None:
        """Before any round the global model is (1, 0, 0): two tuning steps give the two-step table."""
        experiment = example(method, 1, {"tune_steps": 2}, engine=engine)
        tuned = trajectory_of_all(experiment)
        assert tuned.tolist() == [pytest.approx(row) for row in AFTER_TWO]
        assert experiment.state.server.params.tolist() == [1.0, 0.0, 0.0]  # tuning leaves training alone

    def test_separate_goes_on_where_it_stopped(self, engine: str) -> None:
        experiment = example("separate", 1, engine=engine)
        reports = play(experiment, 1)
        assert trajectory_of_all(experiment).tolist() == [pytest.approx(row) for row in AFTER_ONE]
        play(experiment, 1)
        assert trajectory_of_all(experiment).tolist() == [pytest.approx(row) for row in AFTER_TWO]
        assert reports[0].bytes_up == reports[0].bytes_down == 0
        assert reports[0].loss == pytest.approx((4.0 + 1.0) / 2)  # squared errors -2 and 1


def trajectory_of_all(experiment: Experiment) -> torch.Tensor:
    from panacea.evaluation.evaluate import personal_models

    ids = experiment.federation.train_ids
    return personal_models(
        experiment.method, experiment.state, experiment.engine, experiment.federation, ids, novel=False
    )[0]


class TestReductions:
    """Which setting makes a method equal to which other, bit for bit."""

    def run(self, name: str, parameters: dict[str, Any] | None = None, **keys: Any) -> dict[str, torch.Tensor]:
        experiment = toy_experiment(name, parameters, **keys)
        play(experiment, 4)
        return trajectory(experiment)

    @pytest.mark.parametrize(("prox", "plain"), [("fedprox", "fedavg"), ("fedprox_ft", "fedavg_ft")])
    def test_mu_zero(self, prox: str, plain: str) -> None:
        a, b = self.run(prox, {"mu": 0.0}), self.run(plain)
        assert all(torch.equal(a[key], b[key]) for key in a)

    def test_mu_matters(self) -> None:
        a, b = self.run("fedprox", {"mu": 1.0}), self.run("fedavg")
        assert not torch.equal(a["server.params"], b["server.params"])

    def test_tuning_leaves_the_global_model_alone(self) -> None:
        a, b = self.run("fedavg_ft"), self.run("fedavg")
        assert torch.equal(a["server.params"], b["server.params"])
        assert not torch.equal(a["evaluated.False"], b["evaluated.False"])

    def test_one_client_is_centralised_sgd(self) -> None:
        """FedAvg and Separate with a cohort of one client are the same plain SGD."""
        experiment = example("fedavg", 3)
        experiment.federation.novel[1] = True
        alone = example("separate", 3)
        alone.federation.novel[1] = True
        for one in (experiment, alone):
            object.__setattr__(one, "config", one.config.model_copy(update={"cohort": 1}))
            play(one, 3)
        kept = alone.state.clients.packed()[1].params[0]
        assert torch.equal(experiment.state.server.params, kept)


def test_a_client_never_sampled_has_the_common_start() -> None:
    experiment = toy_experiment("separate", cohort=1)
    play(experiment, 1)
    models = trajectory_of_all(experiment)
    seen = experiment.visits[experiment.federation.train_ids] > 0
    assert bool((models[~seen] == experiment.target.initial).all())
    assert bool((models[seen] != experiment.target.initial).any())


def test_a_newcomer_of_separate_trains_on_its_own_data_only() -> None:
    few, many = (toy_experiment("separate", {"newcomer_steps": steps}) for steps in (1, 50))
    a, b = (trajectory(experiment)["evaluated.True"] for experiment in (few, many))
    assert not torch.equal(a, b)
    fed = many.federation
    untrained = many.engine.evaluate(
        many.target.initial.expand(1, -1), torch.zeros(1, 0, dtype=torch.float64), fed.novel_ids, "train"
    )
    trained = many.engine.evaluate(b, torch.zeros(1, 0, dtype=torch.float64), fed.novel_ids, "train")
    assert trained.loss[0] < untrained.loss[0]
