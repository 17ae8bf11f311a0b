"""Image federations small enough to count by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from panacea.core.random import Streams
from panacea.data.federation import Federation
from panacea.data.task import Task
from panacea.engines.base import Samples
from panacea.experiment.config import build_config
from panacea.experiment.experiment import Experiment
from panacea.robustness import choose_attackers, make_attack
from panacea.robustness.adversary import Attackers

SIDE = 4


def labelled(
    labels: list[list[int]], *, novel: int = 0, channels: int = 1, as_bytes: bool = False, val: float = 0.0
) -> Federation:
    """Clients with these train labels, the same test labels, pixels between 0.1 and 0.6; the last ones are novel."""
    generator = np.random.default_rng(0)

    def images(n: int) -> torch.Tensor:
        return torch.from_numpy(generator.uniform(0.1, 0.6, (n, channels, SIDE, SIDE))).float()

    clients = [(images(len(y)), torch.tensor(y)) for y in labels]
    tests = [(images(len(y)), torch.tensor(y)) for y in labels]
    task = Task("classification", inputs=(channels, SIDE, SIDE), classes=3)
    made = Federation.from_clients(clients, task=task, test_sets=tests, val=val, chronological=True, name="squares")
    made.novel[len(labels) - novel :] = True
    return replace(made, x=made.x.mul(255).round().to(torch.uint8)) if as_bytes else made


def samples_of(federation: Federation, dtype: torch.dtype = torch.float32) -> Samples:
    return Samples(federation, Streams(0), torch.device("cpu"), dtype)


def attackers_of(name: str, federation: Federation, **keys: object) -> Attackers:
    found = choose_attackers(make_attack(name, keys), federation, Streams(0))
    assert found is not None
    return found


def experiment_of(federation: Federation, method: str = "fedavg", **keys: Any) -> Experiment:
    flat: dict[str, Any] = {
        "data": "squares", "method": method, "model": "mlp", "model.hidden": [5], "lr": 0.1, "rounds": 3, "cohort": 3,
        "local_steps": 3, "batch_size": 4, "dtype": "float64",
    }  # fmt: skip
    return Experiment(build_config(flat | keys), federation)
