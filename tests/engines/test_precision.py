"""Precision is a choice, and stays one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from panacea.engines.precision import Precision
from panacea.errors import RequestError
from panacea.experiment.config import build_config
from panacea.experiment.experiment import Experiment
from tests.parity.targets import TARGETS
from tests.toy import outcome, play, toy_experiment


def test_bf16_is_near_and_not_equal() -> None:
    exact, rough = (
        toy_experiment("fedavg", dtype="float32", **{"engine.precision": name}) for name in ("float32", "bf16")
    )
    for experiment in (exact, rough):
        play(experiment, 3)
    a, b = (experiment.state.server.params for experiment in (exact, rough))
    assert b.dtype == torch.float32
    assert 1e-6 < float((a - b).abs().max()) < 0.1
    assert all(torch.isfinite(value.double()).all() for value in outcome(rough).values())


@pytest.mark.parametrize("target", TARGETS)
def test_bf16_runs_every_kind_of_layer(target: str) -> None:
    federation, module = TARGETS[target]()
    flat: dict[str, Any] = {"data": "own", "method": "fedavg", "local_steps": 3, "cohort": 3, "batch_size": 7}
    flat["engine.precision"] = "bf16"
    experiment = Experiment(build_config(flat), federation, module)
    play(experiment, 2)
    assert torch.isfinite(experiment.state.server.params).all()
    ids = federation.train_ids
    assert np.isfinite(experiment.engine.evaluate(*_models(experiment), ids, "train").loss).all()


def _models(experiment: Experiment) -> tuple[torch.Tensor, torch.Tensor]:
    rows = len(experiment.federation.train_ids)
    return experiment.state.server.params.expand(rows, -1), experiment.state.statistics.common.expand(rows, -1)


def test_wrong_ones_are_refused_in_one_line() -> None:
    with pytest.raises(RequestError, match=r"engine\.precision=tf32 needs device=cuda"):
        toy_experiment("fedavg", **{"engine.precision": "tf32"})
    with pytest.raises(RequestError, match=r"engine\.precision=bf16: the sequential engine is the exact reference"):
        toy_experiment("fedavg", engine="sequential", dtype="float32", **{"engine.precision": "bf16"})
    with pytest.raises(RequestError, match=r"engine\.precision=bf16 computes in float32; use dtype=float32"):
        toy_experiment("fedavg", dtype="float64", **{"engine.precision": "bf16"})
    with pytest.raises(RequestError, match="did you mean 'bf16'"):
        Precision("bf61", torch.device("cpu"))
    with pytest.raises(RequestError, match=r"engine\.precision"):
        toy_experiment("fedavg", **{"engine.precision": "half"})
