"""FedAvg in pfl's own loop: `FederatedAveraging.run` on a `SimulatedBackend`, as its documentation shows."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor

from panacea.experiment.speed.peers.task import Asked, Task, vector_of
from panacea.experiment.speed.workloads import BATCH

__all__ = ["train"]

_FOREVER = 10**9


class _Rounds:
    """A callback of pfl's that asks before each round whether there is one, and its clients as pfl's users."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.asked: Asked | None = None
        self.left: list[int] = []
        self.dataset, self.metrics = import_module("pfl.data.dataset").Dataset, import_module("pfl.metrics").Metrics

    def ask(self) -> bool:
        self.asked = self.task.wait()
        self.left = list(self.asked.ids) if self.asked is not None else []
        return self.asked is None

    def next_user(self) -> int:
        return self.left.pop(0)

    def samples(self, user: int) -> Any:
        assert self.asked is not None
        return self.dataset(list(self.asked.samples[user]), user_id=str(user))

    def on_train_begin(self, *, model: Any) -> Any:
        self.ask()
        return self.metrics()

    def after_central_iteration(self, aggregate_metrics: Any, model: Any, *, central_iteration: int) -> Any:
        return self.ask(), self.metrics()

    def on_train_end(self, *, model: Any) -> None:
        pass


def train(task: Task) -> Tensor:
    """Rounds as long as there are any; the final weights."""
    models = import_module("pfl.model.pytorch")  # first: it tells pfl that tensors are torch's
    base, keys, numbers = (import_module(f"pfl.{name}") for name in ("algorithm.base", "hyperparam", "metrics"))
    averaging = import_module("pfl.algorithm.federated_averaging").FederatedAveraging()
    loss, network = task.work.loss(), task.network()
    network.__dict__["loss"] = lambda x, y: loss(network(x), y)
    network.__dict__["metrics"] = lambda x, y: {"loss": numbers.Weighted(float(loss(network(x), y)) * len(y), len(y))}
    model = models.PyTorchModel(network, torch.optim.SGD, torch.optim.SGD(network.parameters(), lr=1.0))
    task.version = version("pfl")
    rounds = _Rounds(task)
    users = import_module("pfl.data.federated_dataset").FederatedDataset(rounds.samples, rounds.next_user)
    averaging.run(
        base.NNAlgorithmParams(
            central_num_iterations=_FOREVER,
            evaluation_frequency=_FOREVER,
            train_cohort_size=task.work.cohort,
            val_cohort_size=None,
        ),
        import_module("pfl.aggregate.simulate").SimulatedBackend(training_data=users, val_data=users),
        model,
        keys.NNTrainHyperParams(local_num_epochs=1, local_learning_rate=task.work.lr, local_batch_size=BATCH),
        keys.NNEvalHyperParams(local_batch_size=None),
        callbacks=[rounds],
    )
    return vector_of(network)
