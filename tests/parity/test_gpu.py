"""The same experiment on a GPU: float64 within 1e-9 of the reference engine on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from panacea.experiment.config import build_config
from panacea.experiment.experiment import Experiment
from panacea.experiment.runner import run_experiment
from panacea.methods import method_names
from tests.parity.targets import TARGETS
from tests.toy import largest_difference, play, toy_experiment, trajectory

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA"),
]


@pytest.mark.parametrize("method", method_names())
def test_methods(method: str) -> None:
    """Twenty rounds of every method; the fast engine on the GPU."""
    results = []
    for device, how in (("cpu", "sequential"), ("cuda", "vectorised")):
        experiment = toy_experiment(method, engine=how, device=device, rounds=20)
        play(experiment, 20)
        results.append({name: value.cpu() for name, value in trajectory(experiment).items()})
    assert largest_difference(*results) < 1e-9


@pytest.mark.parametrize("target", TARGETS)
def test_targets(target: str) -> None:
    results = []
    for device, how in (("cpu", "sequential"), ("cuda", "vectorised")):
        federation, module = TARGETS[target]()
        flat: dict[str, Any] = {
            "data": "own", "method": "fedavg", "rounds": 5, "local_steps": 6, "cohort": 3, "lr": 0.05, "batch_size": 7,
            "dtype": "float64", "engine": how, "device": device,
        }  # fmt: skip
        experiment = Experiment(build_config(flat), federation, module)
        summary = run_experiment(experiment)
        results.append((experiment.state.server.params.cpu(), summary["mean"]))
    assert float((results[0][0] - results[1][0]).abs().max()) < 1e-9
    assert results[0][1] == pytest.approx(results[1][1], abs=0.2)
