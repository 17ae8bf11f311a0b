"""FedAvg in pfl's own loop: `FederatedAveraging.run` on a `SimulatedBackend`, as its documentation shows."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor

from panacea.experiment.speed.peers.task import Asked, Task, vector_of
from panacea.experiment.speed.workloads import BATCH

__all__ = ["train"]

_FOREVER = 10**9


class _Rounds:
    """A callback of pfl's that asks before each round whether there is one, and the cohort of that round."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.asked: Asked | None = None
        self.left: list[int] = []

    def ask(self) -> bool:
        self.asked = self.task.wait()
        self.left = list(self.asked.ids) if self.asked is not None else []
        return self.asked is None

    def next_user(self) -> int:
        return self.left.pop(0)

    def samples(self, user: int) -> Any:
        assert self.asked is not None
        return Dataset(list(self.asked.samples[user]), user_id=str(user))

    def on_train_begin(self, *, model: Any) -> Any:
        self.ask()
        return Metrics()

    def after_central_iteration(self, aggregate_metrics: Any, model: Any, *, central_iteration: int) -> Any:
        return self.ask(), Metrics()

    def on_train_end(self, *, model: Any) -> None:
        pass


def train(task: Task) -> Tensor:
    """Rounds as long as there are any; the final weights."""
    task.version = version("pfl")
    loss, network = task.work.loss(), task.network()
    network.__dict__["loss"] = lambda x, y: loss(network(x), y)
    network.__dict__["metrics"] = lambda x, y: {"loss": Weighted(float(loss(network(x), y)) * len(y), len(y))}
    model = PyTorchModel(network, torch.optim.SGD, torch.optim.SGD(network.parameters(), lr=1.0))
    rounds = _Rounds(task)
    users = FederatedDataset(rounds.samples, rounds.next_user)
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=_FOREVER,
            evaluation_frequency=_FOREVER,
            train_cohort_size=task.work.cohort,
            val_cohort_size=None,
        ),
        SimulatedBackend(training_data=users, val_data=users),
        model,
        NNTrainHyperParams(local_num_epochs=1, local_learning_rate=task.work.lr, local_batch_size=BATCH),
        NNEvalHyperParams(local_batch_size=None),
        callbacks=[rounds],
    )
    return vector_of(network)
