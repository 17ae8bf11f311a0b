"""What is measured: the same few kinds of work everywhere, small enough to be done many times.

Samples are generated or embedded, so nothing has to be fetched, and they can be learnt, so that the models several
programmes end with can be compared.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from panacea.data.federation import Federation
from panacea.data.load import load
from panacea.errors import unknown
from panacea.experiment.config import build_config
from panacea.experiment.experiment import Experiment

__all__ = [
    "BATCH",
    "Workload",
    "choose",
    "client_batches",
    "experiment_of",
    "find_workload",
    "network_of",
    "points_federation",
    "workload_names",
]

BATCH = 64
"""Samples of a local step, in all workloads."""

_ROUNDS = 10_000  # announced, so that the engines settle as in a long run


@dataclass(frozen=True)
class Workload:
    """One row of the table.

    Attributes:
        key: its short name.
        label: what it is, in words.
        data: makes the clients.
        model: the network's name.
        cohort: clients a round.
        steps: K_c on a CPU; ratios are per step, so the long ones take fewer than the protocol's 50.
        cuda_steps: K_c on a GPU.
        lr: the clients' rate.
        method: whose rounds.
        options: further keys.
        only: the device it is for, if only one.
        looped: clients that loops over clients really train, where all of them would take minutes; their time is then
            multiplied, for a loop's time is proportional to its clients.
    """

    key: str
    label: str
    data: Callable[[], Federation]
    model: str
    cohort: int
    steps: int = 50
    cuda_steps: int = 50
    lr: float = 0.1
    method: str = "fedavg"
    options: Mapping[str, Any] = field(default_factory=dict)
    only: str | None = None
    looped: int | None = None

    def steps_on(self, device: str) -> int:
        """Local steps of a round."""
        return self.cuda_steps if device == "cuda" else self.steps

    def loss(self) -> Callable[[Tensor, Tensor], Tensor]:
        """What a loop written by hand minimises."""
        classes = self.data().task.kind == "classification"
        return functional.cross_entropy if classes else functional.mse_loss


@cache
def fl60() -> Federation:
    """The embedded data set of the Panacea papers: 60 clients, 12 of them novel."""
    return load("fl60", seed=0)


@cache
def points_federation(clients: int, samples: int = 100) -> Federation:
    """Clients with points in the plane, as fl60's, and a random relation graph of mean degree 6."""
    generator = np.random.default_rng(0)
    edges = np.unique(np.sort(generator.integers(0, clients, (3 * clients, 2)), axis=1), axis=0)
    x = generator.normal(size=(clients, samples, 2)).astype(np.float32)
    y = (x.sum(axis=2) > 0).astype(np.int64)
    edges = edges[edges[:, 0] != edges[:, 1]]
    return Federation.from_arrays(list(x), list(y), edges=edges, name="points", classes=2)


@cache
def series_federation(clients: int = 207, windows: int = 120) -> Federation:
    """Clients with windows of a daily curve: 12 observed (speed, time of day) pairs, 12 speeds to come."""
    generator = np.random.default_rng(0)
    t = np.arange(windows)[None, :, None] + np.arange(24)[None, None, :]
    phase = generator.uniform(0, 1, (clients, 1, 1))
    speed = 0.5 + 0.3 * np.sin(2 * np.pi * (t / 288 + phase)) + 0.02 * generator.normal(size=(clients, windows, 24))
    day = np.broadcast_to((t % 288) / 288, speed.shape)
    x = [np.stack([s[:, :12], d[:, :12]], axis=-1).astype(np.float32) for s, d in zip(speed, day, strict=True)]
    y = [s[:, 12:].astype(np.float32) for s in speed]
    return Federation.from_arrays(x, y, task="forecasting", name="series")


@cache
def image_federation(clients: int = 100, images: int = 100) -> Federation:
    """Clients with noisy images of MNIST's shape; each class has a pattern of its own."""
    generator = np.random.default_rng(0)
    patterns = generator.normal(size=(10, 1, 28, 28))
    y = [generator.integers(0, 10, images) for _ in range(clients)]
    x = [(0.5 * patterns[labels] + generator.normal(size=(images, 1, 28, 28))).astype(np.float32) for labels in y]
    return Federation.from_arrays(x, y, classes=10, name="images")


_WORKLOADS = (
    Workload("W1", "MLP 2-16-16-2, fl60, 5 clients a round", fl60, "mlp", 5),
    Workload("W1-20", "MLP 2-16-16-2, fl60, 20 clients a round", fl60, "mlp", 20),
    Workload("W1-panacea", "Panacea, MLP 2-16-16-2, fl60, 5 clients a round", fl60, "mlp", 5, method="panacea"),
    Workload("W2", "GRU, 207 clients, 5 a round", series_federation, "gru", 5, steps=10, lr=0.01),
    Workload("W2-200", "GRU, 207 clients, 200 a round", series_federation, "gru", 200, lr=0.01, only="cuda", looped=5),
    Workload("W3", "FedAvgCNN, 100 clients, 10 a round", image_federation, "fedavg_cnn", 10, steps=5, lr=0.05),
)


def workload_names() -> list[str]:
    """All of them."""
    return [work.key for work in _WORKLOADS]


def find_workload(key: str) -> Workload:
    """A workload by its name, in any case."""
    for work in _WORKLOADS:
        if work.key.lower() == key.lower():
            return work
    raise unknown("workload", key, workload_names())


def choose(only: Sequence[str], device: str, *, quick: bool = False) -> list[Workload]:
    """The workloads to measure on a device, all or those named; `quick` takes fewer steps of the long ones."""
    wanted = [find_workload(key) for key in only] or list(_WORKLOADS)
    usable = [work for work in wanted if work.only in (None, device)]
    if not quick:
        return usable
    return [dataclasses.replace(work, steps=max(1, work.steps // 5) if work.steps < 50 else 50) for work in usable]


def experiment_of(
    work: Workload, keys: Mapping[str, Any], device: str, federation: Federation | None = None, seed: int = 0
) -> Experiment:
    """A workload in an engine.

    Args:
        work: the workload.
        keys: the engine's keys.
        device: where.
        federation: other clients than the workload's.
        seed: of the experiment.
    """
    made = work.data() if federation is None else federation
    flat: dict[str, Any] = {
        "data": made.name, "method": work.method, "model": work.model, "cohort": work.cohort, "lr": work.lr,
        "batch_size": BATCH, "local_steps": work.steps_on(device), "rounds": _ROUNDS, "device": device, "seed": seed,
        **work.options, **keys,
    }  # fmt: skip
    return Experiment(build_config(flat), made)


def network_of(experiment: Experiment) -> nn.Module:
    """An ordinary module with the weights an experiment starts from."""
    target = experiment.target
    device = torch.device(experiment.config.device)
    return target.to_module(target.initial, target.statistics).to(device)


def client_batches(experiment: Experiment, client: int, round: int) -> list[tuple[Tensor, Tensor]]:
    """The batches a client of an experiment trains on in a round, gathered: ``(x, y)`` of each local step."""
    steps = int(experiment.config.local_steps or 1)
    ids = np.array([client], np.int64)
    drawn = experiment.engine.samples.batches(ids, round, "train", steps, 1, experiment.config.batch_size or 1)
    return [(first.x[0], first.y[0]) for first, *_ in drawn]
