"""What methods may ask for besides a gradient: the gradient over all samples, and Hessian-vector products."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from panacea.core.local import Iterate, Local
from panacea.core.method import Method, Model
from panacea.core.types import Batch
from panacea.experiment.config import build_config
from panacea.experiment.experiment import Experiment
from panacea.models.target import sample_losses
from tests.parity.targets import TARGETS
from tests.toy import toy_experiment


class Asks(Method):
    """Moves along what it asks the engine for."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what

    def start(self, download: Model, client: Any, local: Local) -> Iterate:
        if self.what == "full":
            return Iterate(local.grad.full(download.params))
        return local.sgd.start(download.params)

    def step(self, carry: Iterate, download: Model, client: Any, batches: tuple[Batch, ...], local: Local) -> Iterate:
        if self.what == "full":
            return carry
        return Iterate(local.grad.curvature(carry.params, batches[0], torch.ones_like(carry.params)))


def ask(what: str, engine: str, **keys: Any) -> tuple[Any, torch.Tensor, np.ndarray[Any, Any]]:
    experiment = toy_experiment("fedavg", engine=engine, cohort=6, **keys)
    cohort = experiment.cohort(1)
    trained = experiment.engine.train(
        Asks(what), experiment.method.download(experiment.state.server, cohort), None,
        experiment.state.statistics.send(cohort), cohort, steps=1,
    )  # fmt: skip
    return experiment, trained.uploads.params, cohort.ids


def loss_of(experiment: Any, client: int) -> Any:
    """The loss over all train samples of a client, written down plainly."""
    begin, end = experiment.federation.bounds[client, 0], experiment.federation.bounds[client, 1]
    x, y = experiment.engine.samples.x[begin:end], experiment.engine.samples.y[begin:end]

    def loss(params: torch.Tensor) -> torch.Tensor:
        outputs, _ = experiment.target.forward(params, experiment.target.statistics, x, training=True)
        return sample_losses(experiment.target.task, outputs, y).mean()

    return loss


@pytest.mark.parametrize("engine", ["sequential", "vectorised"])
@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_full_is_the_gradient_over_all_samples(engine: str, batch_size: int) -> None:
    experiment, rows, ids = ask("full", engine, batch_size=batch_size)
    for row, client in zip(rows, ids, strict=True):
        initial = experiment.target.initial.clone().requires_grad_(True)
        (expected,) = torch.autograd.grad(loss_of(experiment, client)(initial), initial)
        assert torch.allclose(row, expected, atol=1e-12)
    sizes = experiment.federation.counts("train")[ids]
    assert experiment.engine.gradient_evaluations == int(np.ceil(sizes / np.minimum(batch_size, sizes.max())).sum())


@pytest.mark.parametrize("engine", ["sequential", "vectorised"])
def test_curvature_is_the_hessian_times_a_vector(engine: str) -> None:
    experiment, rows, ids = ask("curvature", engine, batch_size=64)
    for row, client in zip(rows, ids, strict=True):
        hessian = torch.autograd.functional.hessian(loss_of(experiment, client), experiment.target.initial)
        assert torch.allclose(row, hessian.sum(dim=1), atol=1e-10)
    assert experiment.engine.gradient_evaluations == 2 * len(ids)


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("what", ["full", "curvature"])
def test_other_networks_agree_in_both_engines(name: str, what: str) -> None:
    """Ragged clients; convolutions, a GRU, BatchNorm and Dropout."""
    federation, module = TARGETS[name]()
    found = []
    for engine in ("sequential", "vectorised"):
        keys = {"data": "x", "method": "fedavg", "dtype": "float64", "batch_size": 4, "cohort": 6, "engine": engine}
        experiment = Experiment(build_config(keys), federation, copy.deepcopy(module))
        cohort = experiment.cohort(1)
        download = experiment.method.download(experiment.state.server, cohort)
        statistics = experiment.state.statistics.send(cohort)
        trained = experiment.engine.train(Asks(what), download, None, statistics, cohort, steps=1)
        found.append((trained.uploads.params, experiment.engine.gradient_evaluations))
    assert found[0][1] == found[1][1]
    assert torch.allclose(found[0][0], found[1][0], atol=1e-10)
