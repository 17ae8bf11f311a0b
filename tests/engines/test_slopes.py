"""A batch's slope in place of its weights: the same gradients and losses, with less to do; and losses added up late."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from panacea.core.local import Local
from panacea.core.types import Batch
from panacea.data.task import Task
from panacea.engines.gradients import RowGradient
from panacea.engines.rows import Party, Rows
from panacea.engines.vectorised import VectorisedEngine
from panacea.methods import FedAvg
from panacea.models.target import objective, weighed
from tests.toy import largest_difference, play, toy_experiment, trajectory

from .build import engine_of, federation, labels, run, seeded
from .networks import mlp

TASK = Task("classification", (4,), (), 3)
LABELS = torch.tensor([[0, 2, 1, 1], [2, 0, 2, 0]])
WEIGHT = torch.tensor([[0.25, 0.25, 0.25, 0.25], [0.5, 0.5, 0.0, 0.0]], dtype=torch.float64)  # padding weighs nothing


def slope_of(labels: Tensor, weight: Tensor, classes: int = 3) -> Tensor:
    """``[R, classes, B]``, by hand."""
    slope = torch.zeros(len(labels), classes, labels.shape[1], dtype=weight.dtype)
    for row, sample in np.ndindex(*labels.shape):
        slope[row, labels[row, sample], sample] = -weight[row, sample]
    return slope


@pytest.mark.parametrize("penalised", [False, True])
def test_slopes_and_weights_give_the_same_gradient_and_loss(penalised: bool) -> None:
    found = []
    for weight in (WEIGHT, slope_of(LABELS, WEIGHT)):
        torch.manual_seed(1)
        outputs = torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True)
        given = (outputs, outputs.square().sum(dim=-1)) if penalised else outputs
        roots, along, values = weighed(TASK, given, LABELS, weight)
        (gradient,) = torch.autograd.grad(roots, outputs, grad_outputs=along, retain_graph=True)
        found.append((gradient, (values * weight).detach().flatten(1).sum(dim=1)))
        minimised, losses = objective(TASK, given, LABELS)
        (expected,) = torch.autograd.grad((minimised * WEIGHT).sum(), outputs)
        torch.testing.assert_close(gradient, expected)
        torch.testing.assert_close(found[-1][1], (losses * WEIGHT).sum(dim=1).detach())
    torch.testing.assert_close(*found)


def test_every_batch_comes_with_its_slope() -> None:
    """Of ragged clients, so that some samples are padding."""
    samples = toy_experiment("fedavg").engine.samples
    batches = [
        batch
        for drawn in Rows((Party(samples, np.array([0, 3, 5]), 2, "train"),), sloped=True).batches(4, 2, 7)
        for batch in drawn
    ]
    assert any((batch.weight == 0).any() for batch in batches)
    for batch in batches:
        assert batch.slope is not None
        assert torch.equal(batch.slope, slope_of(batch.y, batch.weight, samples.task.classes))


def test_slopes_are_made_where_they_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three rows of seven samples in two classes; a loop over clients has no use for them at all."""
    samples = toy_experiment("fedavg").engine.samples
    rows = Rows((Party(samples, np.array([0, 3, 5]), 2, "train"),), sloped=True)
    for most, there in ((42, True), (41, False)):
        monkeypatch.setattr("panacea.engines.rows._SLOPED", {"cpu": most})
        assert all((batch.slope is not None) is there for (batch,) in rows.batches(4, 1, 7))
    assert all(batch.slope is None for (batch,) in samples.batches(np.array([0, 3]), 2, "train", 4, 1, 7))


@pytest.mark.parametrize("method", ["fedavg", "perfedavg"])
def test_when_losses_are_added_up_changes_nothing(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After every gradient, or after all of a visit; clients have different numbers of steps."""
    found, losses = [], []
    for most in (1, 10**9):
        monkeypatch.setattr("panacea.engines.gradients._MOST_NOTED", {"cpu": most})
        experiment = toy_experiment(method, rounds=3, local_epochs=2)
        losses.append([report.loss for report in play(experiment, 3)])
        found.append(trajectory(experiment))
    assert largest_difference(*found) == 0
    np.testing.assert_allclose(*losses, rtol=1e-12)


@pytest.mark.parametrize(("deterministic", "most"), [(False, 2), (True, 0)])
def test_how_many_losses_wait(deterministic: bool, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many that they fit, and none in deterministic mode: there its last bits do not depend on who waited."""
    monkeypatch.setattr("panacea.engines.gradients._MOST_NOTED", {"cpu": 3 * 2 * 7 * 3})  # three of these batches
    experiment = toy_experiment("fedavg", **{"engine.deterministic": deterministic})
    assert isinstance(experiment.engine, VectorisedEngine)
    waiting, call = [], RowGradient.__call__

    def counted(grad: RowGradient, *given: Any, **more: Any) -> Tensor:
        gradient = call(grad, *given, **more)
        waiting.append(len(grad.noted))
        return gradient

    monkeypatch.setattr(RowGradient, "__call__", counted)
    play(experiment, 1)
    assert max(waiting) == most


def test_steps_of_the_vectorised_engine_have_slopes() -> None:
    seen = []

    def look(batch: Batch) -> Batch:
        seen.append(batch.slope is not None)
        return batch

    run(Changing(look), engine_of("vectorised", seeded(mlp), federation(labels((5,)))), federation(labels((5,))), 1)
    assert seen
    assert all(seen)


@pytest.mark.parametrize(
    ("scores", "loss"),
    [
        ([0.0, -math.inf, 0.0], math.log(2)),  # another class is impossible: nothing is wrong
        ([-math.inf, 0.0, 0.0], math.inf),
        ([math.nan, 0.0, 0.0], math.nan),
        ([0.0, math.inf, 0.0], math.nan),
    ],
)
def test_a_loss_that_is_no_number_is_seen(scores: list[float], loss: float) -> None:
    """The label is class 0 and nothing depends on the inputs; one client has less than a batch."""
    fed = federation(labels((2,)), train=(3, 9))
    fed = dataclasses.replace(fed, y=torch.zeros_like(fed.y))
    engine = engine_of("vectorised", nn.Linear(2, 3), fed, steps=1)
    engine.target.initial.copy_(torch.tensor([0.0] * 6 + scores))  # weights, then biases
    _, (report,) = run(FedAvg(), engine, fed, 1)
    assert report.loss == pytest.approx(loss, nan_ok=True)


class Changing(FedAvg):
    """A method that changes its batches."""

    def __init__(self, change: Callable[[Batch], Batch]) -> None:
        super().__init__()
        self.change = change

    def step(self, carry: Any, download: Any, client: Any, batches: tuple[Batch, ...], local: Local) -> Any:
        return super().step(carry, download, client, tuple(map(self.change, batches)), local)


@pytest.mark.parametrize(
    "change",
    [
        lambda batch: dataclasses.replace(batch, weight=2 * batch.weight),
        lambda batch: dataclasses.replace(batch, y=(batch.y + 1) % 3),
        lambda batch: dataclasses.replace(batch, x=-batch.x),
    ],
)
def test_a_method_may_change_its_batches(change: Callable[[Batch], Batch]) -> None:
    """What was known of a batch is not known of another one."""
    fed, found, losses = federation(labels((5,))), [], []
    for name, method in (("sequential", Changing(change)), ("vectorised", Changing(change)), ("vectorised", FedAvg())):
        state, reports = run(method, engine_of(name, seeded(mlp), fed), fed, 3)
        found.append(state.server.params)
        losses.append([report.loss for report in reports])
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-12)
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-12)
    assert float((found[1] - found[2]).abs().max()) > 1e-3


def test_a_method_may_look_at_a_part_of_a_batch() -> None:
    """Its losses have another shape than those that wait to be added up; each counts."""
    experiment = toy_experiment("fedavg")
    engine, ids = experiment.engine, np.array([3, 5])
    assert isinstance(engine, VectorisedEngine)
    rows = Rows((Party(engine.samples, ids, 1, "train"),), sloped=True)
    ((batch,),) = rows.batches(1, 1, 7)
    assert batch.slope is not None
    half = Batch(batch.x[:, :3], batch.y[:, :3], torch.full_like(batch.weight[:, :3], 1 / 3))
    params, losses = experiment.target.initial.repeat(2, 1), []
    for given in ([batch], [half], [batch, half]):
        grad = RowGradient(engine, torch.zeros(2, 0, dtype=torch.float64), rows, np.array([len(given)] * 2))
        for one in given:
            grad(params, one)
        grad.stepped = grad.calls, 0
        losses.append(grad.mean_loss())
    torch.testing.assert_close(losses[2], (losses[0] + losses[1]) / 2)
