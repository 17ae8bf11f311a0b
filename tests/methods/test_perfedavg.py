"""Per-FedAvg by hand: a = beta = 0.1, one step, uniform mean, the network of tests/methods/test_worked_examples.py.

With one kind of sample per client, f = (x . w - y)^2 has the Hessian 2 x x^T.
Client 0, x = (1, 2, 1): the inner step leads to (1.4, 0.8, 0.4), where g = 0.8 x; the Hessian times g is
    2 x * 0.8 * 6 = 9.6 x. Without it w_0 = (1, 0, 0) - 0.08 x = (0.92, -0.16, -0.08); with it g - 0.1 * 9.6 x = -0.16 x
    and w_0 = (1.016, 0.032, 0.016).
Client 1, x = (0, 1, 1): the inner step leads to (1, -0.2, -0.2), where g = 1.2 x; the Hessian times g is
    2 x * 1.2 * 2 = 4.8 x. Without it w_1 = (1, -0.12, -0.12); with it 0.72 x and w_1 = (1, -0.072, -0.072).
"""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from panacea.core.types import Batch
from panacea.methods import make_method
from panacea.methods.perfedavg import PerFedAvg
from panacea.models.target import sample_losses
from tests.engines.test_derivatives import loss_of
from tests.methods.test_worked_examples import AFTER_ONE, AFTER_TWO, example, trajectory_of_all
from tests.methods.visits import after, both_engines, close, evaluated, look
from tests.toy import largest_difference, play, toy_experiment, trajectory

WHOLE: dict[str, Any] = {"batch_size": 64, "local_steps": 1}  # every batch is all samples: D = D' = D''
SECOND_ORDER = [[1.016, 0.032, 0.016], [1.0, -0.072, -0.072]]


@both_engines
class TestByHand:
    @pytest.mark.parametrize(
        ("variant", "expected"),
        [("hf", SECOND_ORDER), ("exact", SECOND_ORDER), ("fo", [[0.92, -0.16, -0.08], [1.0, -0.12, -0.12]])],
    )
    def test_one_round(self, variant: str, expected: list[list[float]], engine: str) -> None:
        experiment = example("perfedavg", 1, {"variant": variant, "inner_lr": 0.1}, engine=engine)
        assert look(experiment).uploads.params.tolist() == [pytest.approx(row) for row in expected]
        play(experiment, 1)
        mean = [(a + b) / 2 for a, b in zip(*expected, strict=True)]
        assert experiment.state.server.params.tolist() == pytest.approx(mean)

    @pytest.mark.parametrize(("steps", "expected"), [(1, AFTER_ONE), (2, AFTER_TWO)])
    def test_clients_are_evaluated_after_steps_at_the_inner_rate(
        self, steps: int, expected: tuple[tuple[float, ...], ...], engine: str
    ) -> None:
        """The rate of training is another; momentum and weight decay are none of adaptation's."""
        keys: dict[str, Any] = {"engine": engine, "lr": 0.7, "momentum": 0.9, "weight_decay": 0.1}
        experiment = example("perfedavg", 1, {"inner_lr": 0.1, "adapt_steps": steps}, **keys)
        assert trajectory_of_all(experiment).tolist() == [pytest.approx(row) for row in expected]
        assert experiment.state.server.params.tolist() == [1.0, 0.0, 0.0]

    def test_newcomers_adapt_as_well(self, engine: str) -> None:
        experiment = example("perfedavg", 1, {"inner_lr": 0.1}, engine=engine, cohort=1)
        experiment.federation.novel[1] = True
        assert evaluated(experiment, novel=True).tolist() == [pytest.approx(AFTER_ONE[1])]
        assert experiment.method.newcomer_uses == "train split"


@pytest.mark.parametrize("variant", ["hf", "fo", "exact"])
@pytest.mark.parametrize("keys", [{}, {"local_epochs": 2}, {"momentum": 0.9}])
def test_without_an_inner_step_it_is_fedavg(variant: str, keys: dict[str, Any]) -> None:
    meta = after(4, "perfedavg", {"variant": variant, "inner_lr": 0.0}, **keys)
    assert largest_difference(trajectory(meta), trajectory(after(4, "fedavg", {"weighting": "uniform"}, **keys))) == 0.0


@both_engines
def test_differences_are_the_hessian_on_a_quadratic(engine: str) -> None:
    found = [
        look(example("perfedavg", 3, {"variant": variant, "inner_lr": 0.2, "delta": delta}, engine=engine)).uploads
        for variant, delta in (("exact", 1e-3), ("hf", 1e-3), ("hf", 0.5), ("hf", 7.0))
    ]
    for other in found[1:]:
        assert close(other.params, found[0].params, 1e-9)


def curved_experiment(variant: str, delta: float, engine: str) -> torch.Tensor:
    """Logistic regression after an inner step that matters: smooth, and not quadratic."""
    keys: dict[str, Any] = {**WHOLE, "model.hidden": [], "cohort": 6, "engine": engine}
    parameters = {"variant": variant, "inner_lr": 1.0, "delta": delta}
    params: torch.Tensor = look(toy_experiment("perfedavg", parameters, **keys)).uploads.params
    return params


@both_engines
def test_differences_approach_the_hessian_by_their_square(engine: str) -> None:
    exact = curved_experiment("exact", 1.0, engine)
    errors = [(curved_experiment("hf", delta, engine) - exact).norm(dim=1) for delta in (1.0, 1e-1, 1e-2)]
    assert bool((errors[-1] > 0).all())  # it is not the quadratic's case
    for coarse, fine in itertools.pairwise(errors):
        assert bool((fine < coarse / 10).all())  # at least: of second order they are a hundredth


@both_engines
@pytest.mark.parametrize("hidden", [[], [5]])
def test_exact_is_the_gradient_of_the_meta_objective(hidden: list[int], engine: str) -> None:
    """``F(w) = f(w - a grad f(w))`` differentiated through its inner gradient."""
    keys: dict[str, Any] = {**WHOLE, "model.hidden": hidden, "cohort": 6, "engine": engine}
    experiment = toy_experiment("perfedavg", {"variant": "exact", "inner_lr": 0.5}, **keys)
    first = look(toy_experiment("perfedavg", {"variant": "fo", "inner_lr": 0.5}, **keys)).uploads.params
    seen = look(experiment)
    for row, client in enumerate(seen.cohort.ids):
        loss = loss_of(experiment, int(client))
        w = experiment.target.initial.clone().requires_grad_(True)
        (inner,) = torch.autograd.grad(loss(w), w, create_graph=True)
        (gradient,) = torch.autograd.grad(loss(w - 0.5 * inner), w)
        assert close(seen.uploads.params[row], w.detach() - 0.1 * gradient)
        ahead = (w - 0.5 * inner).detach().requires_grad_(True)
        (plain,) = torch.autograd.grad(loss(ahead), ahead)
        assert close(first[row], w.detach() - 0.1 * plain)  # fo leaves the Hessian out
        assert not close(gradient, plain, 1e-4)


@both_engines
def test_three_batches_of_a_step_are_three_draws(engine: str) -> None:
    """Inner step on the second draw, g on the first (FedAvg's), the Hessian on the third; fo needs two."""
    assert toy_experiment("perfedavg", {"variant": "fo"}).method.draws == 2
    experiment = toy_experiment(
        "perfedavg", {"variant": "exact", "inner_lr": 0.5}, batch_size=3, local_steps=1, cohort=6, engine=engine
    )
    found, w = look(experiment).uploads.params, experiment.target.initial.clone().requires_grad_(True)

    def slope(params: torch.Tensor, batch: Any, graph: bool = False) -> torch.Tensor:
        outputs, _ = experiment.target.forward(params, experiment.target.statistics, batch.x[0], training=True)
        loss = (sample_losses(experiment.target.task, outputs, batch.y[0]) * batch.weight[0]).sum()
        return torch.autograd.grad(loss, params, create_graph=graph)[0]

    for row, client in enumerate(experiment.federation.train_ids):
        drawn = next(experiment.engine.samples.batches(np.array([client]), 1, "train", 1, 3, 3))
        ahead = (w - 0.5 * slope(w, drawn[1])).detach().requires_grad_(True)
        g = slope(ahead, drawn[0])
        (curved,) = torch.autograd.grad((slope(w, drawn[2], graph=True) * g).sum(), w)
        assert close(found[row], w.detach() - 0.1 * (g - 0.5 * curved))
    assert len({tuple(batch.x.flatten().tolist()) for batch in drawn}) == 3


@pytest.mark.parametrize(("g", "delta"), [([0.3, 0.4], 0.1), ([3.0, 4.0], 0.02)])
def test_the_difference_of_a_long_gradient_is_taken_over_delta(g: list[float], delta: float) -> None:
    """delta 0.1 over max(1, ||g||). For the gradient w^3 the central difference is 3 w^2 g + delta^2 g^3."""
    method = make_method("perfedavg", {"delta": 0.1})
    assert isinstance(method, PerFedAvg)
    local: Any = SimpleNamespace(grad=lambda params, batch, track: params**3)
    w, along = torch.tensor([1.0, -2.0]).double(), torch.tensor(g).double()
    found = method._curvature(w, along, Batch(w, w, w), local)
    assert close(found, 3 * w**2 * along + delta**2 * along**3, 1e-10)


def test_the_mean_is_uniform_unless_asked() -> None:
    by_samples = after(1, "perfedavg", {"weighting": "samples"})
    uniform = after(1, "perfedavg")
    seen = look(toy_experiment("perfedavg"))
    assert close(uniform.state.server.params, seen.uploads.params.mean(dim=0))
    share = seen.cohort.counts / seen.cohort.counts.sum()
    assert close(by_samples.state.server.params, (share * seen.uploads.params).sum(dim=0))
