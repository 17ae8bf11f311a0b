"""The ways a workload can be run here: our engines, a plain loop, and a naive Panacea."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from panacea.core.round import run_round
from panacea.evaluation.evaluate import evaluate_clients
from panacea.experiment.experiment import Experiment
from panacea.experiment.speed.baselines import NaiveHypernetwork, naive_round, plain_round
from panacea.experiment.speed.measuring import timed
from panacea.experiment.speed.workloads import Workload, client_batches, network_of

__all__ = ["EngineRunner", "NaiveRunner", "PlainRunner", "score_of_vector"]


class EngineRunner:
    """Rounds of one of our engines."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment

    def round(self, number: int) -> float:
        """Everything but the drawing of the cohort."""
        experiment = self.experiment
        cohort = experiment.cohort(number)

        def work() -> None:
            experiment.state, _ = run_round(experiment.method, experiment.state, cohort, experiment.engine)

        return timed(experiment.config.device, work)

    def score(self) -> float | None:
        """Of the method's personal models."""
        e = self.experiment
        return float(np.nanmean(evaluate_clients(e.method, e.state, e.engine, e.federation).test.metric))


class PlainRunner:
    """FedAvg by hand, on the cohorts and batches of an experiment."""

    def __init__(self, experiment: Experiment, work: Workload) -> None:
        self.experiment, self.work, self.loss = experiment, work, work.loss()
        self.network = network_of(experiment)

    def round(self, number: int) -> float:
        """Batches are gathered before the clock starts."""
        batches = [client_batches(self.experiment, int(c), number) for c in self.experiment.cohort(number).ids]

        def work() -> None:
            self.network = plain_round(self.network, batches, self.work.lr, self.loss)

        return timed(self.experiment.config.device, work)

    def score(self) -> float | None:
        """Of the one network."""
        return score_of_vector(self.experiment, torch.cat([p.detach().flatten() for p in self.network.parameters()]))


class NaiveRunner:
    """Panacea as one would write it with torch_geometric, on the cohorts and batches of an experiment."""

    def __init__(self, experiment: Experiment) -> None:
        federation, device = experiment.federation, torch.device(experiment.config.device)
        assert federation.graph is not None
        self.experiment = experiment
        self.network = network_of(experiment)
        self.server = NaiveHypernetwork(federation.graph.take(federation.train_ids), self.network).to(device)
        self.optimiser = torch.optim.SGD(self.server.parameters(), lr=0.01, momentum=0.9)

    def round(self, number: int) -> float:
        """Batches are gathered before the clock starts."""
        device = self.experiment.config.device
        ids = self.experiment.cohort(number).ids
        batches = [client_batches(self.experiment, int(client), number) for client in ids]
        rows: list[int] = np.searchsorted(self.experiment.federation.train_ids, ids).tolist()
        return timed(device, lambda: naive_round(self.server, self.optimiser, self.network, rows, batches))

    def score(self) -> float | None:
        """Not compared: it starts from other weights."""
        return None


def score_of_vector(experiment: Experiment, params: Tensor) -> float:
    """Mean test metric of the training clients, all with the same weights."""
    ids = experiment.federation.train_ids
    statistics = experiment.target.statistics.expand(len(ids), -1)
    found = experiment.engine.evaluate(params.expand(len(ids), -1), statistics, ids, "test")
    return float(np.nanmean(found.metric))
