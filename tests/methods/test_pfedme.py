"""pFedMe by hand, and as descent on Moreau envelopes.

lambda 2, eta_p 0.1, eta lambda = 0.5 (outer_lr 0.25); the network of tests/methods/test_worked_examples.py at
w = (1, 0, 0).

One local step of two inner ones. The first has no pull: theta = (1.4, 0.8, 0.4) and (1, -0.2, -0.2). The second:
client 0 (0.8, 1.6, 0.8) + 2 (0.4, 0.8, 0.4) = (1.6, 3.2, 1.6), theta = (1.24, 0.48, 0.24);
client 1 (0, 1.2, 1.2) + 2 (0, -0.2, -0.2) = (0, 0.8, 0.8), theta = (1, -0.28, -0.28).
w_i goes half the way: (1.12, 0.24, 0.12) and (1, -0.14, -0.14); by samples w = (1.03, -0.045, -0.075).

Two local steps of one inner one. The first: theta = (1.4, 0.8, 0.4), w_0 = (1.2, 0.4, 0.2); theta = (1, -0.2, -0.2),
w_1 = (1, -0.1, -0.1). The second pulls theta, which goes on, towards w_i, which has moved:
client 0 (0.8, 1.6, 0.8) + 2 (0.2, 0.4, 0.2) = (1.2, 2.4, 1.2), theta = (1.28, 0.56, 0.28), w_0 = (1.24, 0.48, 0.24);
client 1 (0, 1.2, 1.2) + 2 (0, -0.1, -0.1) = (0, 1, 1), theta = (1, -0.3, -0.3), w_1 = (1, -0.2, -0.2).
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from panacea.errors import RequestError
from tests.engines.test_derivatives import loss_of
from tests.methods.test_worked_examples import example, trajectory_of_all
from tests.methods.visits import after, both_engines, close, evaluated, look, sampled
from tests.toy import play, toy_experiment

HALF = {"lam": 2.0, "outer_lr": 0.25}


@both_engines
class TestByHand:
    def test_two_inner_steps(self, engine: str) -> None:
        experiment = example("pfedme", 1, {**HALF, "inner_steps": 2}, engine=engine)
        seen = look(experiment)
        assert seen.uploads.params.tolist() == [pytest.approx([1.12, 0.24, 0.12]), pytest.approx([1.0, -0.14, -0.14])]
        play(experiment, 1)
        assert experiment.state.server.params.tolist() == pytest.approx([1.03, -0.045, -0.075])
        expected = [pytest.approx([1.24, 0.48, 0.24]), pytest.approx([1.0, -0.28, -0.28])]
        assert trajectory_of_all(experiment).tolist() == expected

    def test_two_local_steps(self, engine: str) -> None:
        experiment = example("pfedme", 2, {**HALF, "inner_steps": 1}, engine=engine)
        seen = look(experiment)
        assert seen.uploads.params.tolist() == [pytest.approx([1.24, 0.48, 0.24]), pytest.approx([1.0, -0.2, -0.2])]
        assert seen.kept.params.tolist() == [pytest.approx([1.28, 0.56, 0.28]), pytest.approx([1.0, -0.3, -0.3])]

    def test_beta_is_the_servers_step(self, engine: str) -> None:
        experiment = example("pfedme", 1, {**HALF, "inner_steps": 2, "beta": 0.5}, engine=engine)
        play(experiment, 1)
        assert experiment.state.server.params.tolist() == pytest.approx([1.015, -0.0225, -0.0375])

    def test_a_newcomer_takes_one_visits_steps(self, engine: str) -> None:
        """Client 0 is new and nothing was trained: its theta of one visit from (1, 0, 0)."""
        for novel, expected in (("fit", [1.24, 0.48, 0.24]), ("global", [1.0, 0.0, 0.0])):
            experiment = example("pfedme", 1, {**HALF, "inner_steps": 2, "novel": novel}, engine=engine, cohort=1)
            experiment.federation.novel[0] = True
            assert evaluated(experiment, novel=True).tolist() == [pytest.approx(expected)]


def envelope(w: torch.Tensor, x: torch.Tensor, y: float, lam: float) -> tuple[torch.Tensor, torch.Tensor]:
    """The minimiser and the minimum of ``(x theta - y)^2 + lam/2 ||theta - w||^2``: a linear system.

    ``2 x (x theta - y) + lam (theta - w) = 0``.
    """
    matrix = 2 * torch.outer(x, x) + lam * torch.eye(3, dtype=torch.float64)
    theta = torch.linalg.solve(matrix, 2 * y * x + lam * w)
    value = (x @ theta - y) ** 2 + lam / 2 * ((theta - w) ** 2).sum()
    return theta, value


@both_engines
def test_many_inner_steps_reach_the_proximal_point_and_the_envelopes_gradient(engine: str) -> None:
    lam, outer = 2.0, 0.25
    experiment = example("pfedme", 1, {"lam": lam, "outer_lr": outer, "inner_steps": 200}, engine=engine)
    seen = look(experiment)
    w = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    data = [(torch.tensor([1.0, 2.0, 1.0]).double(), 3.0), (torch.tensor([0.0, 1.0, 1.0]).double(), -1.0)]
    for row, (x, y) in enumerate(data):
        theta, _ = envelope(w, x, y, lam)
        assert close(seen.kept.params[row], theta, 1e-6)
        h = 1e-5
        slope = torch.stack(
            [(envelope(w + h * e, x, y, lam)[1] - envelope(w - h * e, x, y, lam)[1]) / (2 * h) for e in torch.eye(3)]
        )
        moved = (w - seen.uploads.params[row]) / outer  # the local copy's step is outer_lr times the gradient
        assert close(moved, slope, 1e-6)
        assert float(slope.norm()) > 0.1


@both_engines
def test_the_inner_problem_of_a_classifier_is_solved_to_a_stationary_point(engine: str) -> None:
    """``grad f(theta) + lambda (theta - w) = 0`` where a batch is all samples; without ReLU, which has kinks."""
    keys: dict[str, Any] = {"local_steps": 1, "batch_size": 64, "model.hidden": [], "engine": engine}
    experiment = toy_experiment("pfedme", {"lam": 4.0, "inner_steps": 300}, **keys)
    seen = look(experiment)
    for row, client in enumerate(seen.cohort.ids):
        theta = seen.kept.params[row].clone().requires_grad_(True)
        (gradient,) = torch.autograd.grad(loss_of(experiment, int(client))(theta), theta)
        assert close(gradient + 4.0 * (theta.detach() - experiment.target.initial), torch.zeros_like(gradient), 1e-6)


@pytest.mark.parametrize("keys", [{}, {"local_epochs": 2}])
def test_one_inner_step_and_a_whole_outer_one_is_fedavg(keys: dict[str, Any]) -> None:
    pfedme = after(4, "pfedme", {"inner_steps": 1, "lam": 5.0, "outer_lr": 0.2}, **keys)
    fedavg = after(4, "fedavg", **keys)
    assert close(pfedme.state.server.params, fedavg.state.server.params)


def test_the_outer_rate_defaults_to_the_clients_within_bounds() -> None:
    """min(lr, 1/lambda) with lr = 0.1."""
    for lam, expected in ((15.0, 1 / 15), (2.0, 0.1)):
        a, b = after(2, "pfedme", {"lam": lam}), after(2, "pfedme", {"lam": lam, "outer_lr": expected})
        assert torch.equal(a.state.server.params, b.state.server.params)


@pytest.mark.parametrize(
    ("parameters", "lr", "words"),
    [
        ({"lam": 20.0}, 0.1, "method=pfedme: lr=0.1 times"),
        ({"lam": 15.0, "outer_lr": 0.2}, 0.1, "method=pfedme: method.outer_lr=0.2 times"),
    ],
)
def test_rates_that_diverge_are_refused_in_one_line(parameters: dict[str, float], lr: float, words: str) -> None:
    with pytest.raises(RequestError) as caught:
        toy_experiment("pfedme", parameters, lr=lr)
    assert str(caught.value).startswith(words)
    assert "\n" not in str(caught.value)


def test_clients_never_sampled_have_the_global_model() -> None:
    """Whatever newcomers are given: it is the last stored model, else w."""
    for novel in ("fit", "global"):
        experiment = after(2, "pfedme", {"novel": novel}, cohort=2)
        seen = sampled(experiment)
        assert not seen.all()
        assert bool((evaluated(experiment)[~seen] == experiment.state.server.params).all())
        assert bool((evaluated(experiment)[seen] != experiment.state.server.params).any(dim=1).all())


def test_a_visit_begins_at_the_received_model_not_at_the_last_theta() -> None:
    experiment = after(2, "pfedme", cohort=6)
    seen = look(experiment)
    forgotten = experiment.engine.train(
        experiment.method, seen.downloads, seen.downloads, experiment.state.statistics.send(seen.cohort), seen.cohort
    )
    assert torch.equal(forgotten.kept.params, seen.kept.params)
