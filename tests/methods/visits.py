"""One visit to a cohort, seen from both sides, and the pieces of an experiment that tests of methods ask for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from panacea.core.types import Cohort
from panacea.evaluation.evaluate import personal_models
from panacea.experiment.experiment import Experiment
from tests.toy import play, toy_experiment

both_engines = pytest.mark.parametrize("engine", ["sequential", "vectorised"])


@dataclass
class Seen:
    """What went to the clients of the next round, and what came back."""

    cohort: Cohort
    downloads: Any
    kept_before: Any
    uploads: Any
    kept: Any


def look(experiment: Experiment) -> Seen:
    """The next round's visit; the experiment stays where it is."""
    method, state = experiment.method, experiment.state
    cohort = experiment.cohort(state.round + 1)
    downloads = method.download(state.server, cohort)
    kept = state.clients.take(cohort.ids, fresh=method.init_client(downloads))
    trained = experiment.engine.train(method, downloads, kept, state.statistics.send(cohort), cohort)
    return Seen(cohort, downloads, kept, trained.uploads, trained.kept)


def everyone(experiment: Experiment) -> Cohort:
    """All training clients."""
    federation = experiment.federation
    return Cohort.of(
        federation.train_ids, federation.counts("train"), experiment.state.round, experiment.target.initial
    )


def evaluated(experiment: Experiment, novel: bool = False) -> Tensor:
    """``[clients, P]``: what is scored."""
    federation = experiment.federation
    ids = federation.novel_ids if novel else federation.train_ids
    return personal_models(experiment.method, experiment.state, experiment.engine, federation, ids, novel=novel)[0]


def after(rounds: int, name: str, parameters: dict[str, Any] | None = None, **keys: Any) -> Experiment:
    """The toy federation after some rounds of a method."""
    experiment = toy_experiment(name, parameters, **keys)
    play(experiment, rounds)
    return experiment


def sampled(experiment: Experiment) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """``[train clients]``: who ever took part."""
    return np.asarray(experiment.visits[experiment.federation.train_ids] > 0)


def close(a: Tensor, b: Tensor, within: float = 1e-12) -> bool:
    """Whether no entry differs by more."""
    return a.shape == b.shape and bool(torch.all((a - b).abs() <= within))
