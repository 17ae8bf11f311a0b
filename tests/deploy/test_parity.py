"""A federation over real bytes gives the numbers of the simulator, with every method."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from panacea.core.records import named_leaves
from panacea.experiment.config import build_config
from panacea.experiment.experiment import Experiment
from panacea.experiment.runner import run_experiment
from panacea.methods import method_names
from tests.deploy.build import federate, keys, ragged

SIMULATED: dict[str, dict[str, Any]] = {"fedbn": {"model": "small_cnn", "model.norm": "batch"}}


def same_as_simulated(flat: dict[str, Any], folder: Path, atol: float, *, novel: int = 1, images: bool = False) -> None:
    """Compare server state and every client's numbers."""
    federation = ragged(novel, images)
    found, summary = federate(federation, flat, folder)
    wanted = Experiment(build_config({**flat, "engine": "sequential"}), federation)
    expected = run_experiment(wanted)
    for (name, a), (_, b) in zip(named_leaves(found.state.server), named_leaves(wanted.state.server), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=atol, msg=lambda text, name=name: f"{name}: {text}")
    torch.testing.assert_close(found.state.statistics.common, wanted.state.statistics.common, rtol=0, atol=atol)
    a, b = found.history.last, wanted.history.last
    assert a is not None
    assert b is not None
    for split in ("test", "val", "novel"):
        for kind in ("metric", "loss"):
            one, other = getattr(getattr(a, split), kind), getattr(getattr(b, split), kind)
            np.testing.assert_allclose(one, other, rtol=0, atol=100 * atol, err_msg=f"{split} {kind}")
    assert set(found.alternatives) == set(wanted.alternatives)
    for name, metric in wanted.alternatives.items():
        ids = federation.train_ids
        np.testing.assert_allclose(found.alternatives[name][ids], metric[ids], rtol=0, atol=100 * atol)
    assert summary["bytes_up"] == expected["bytes_up"]
    assert summary["bytes_down"] == expected["bytes_down"]
    assert summary["refused"] == 0


@pytest.mark.parametrize("name", method_names())
def test_every_method_gives_the_simulators_numbers(name: str, tmp_path: Path) -> None:
    images = name == "fedbn"
    flat = keys(name, dtype="float64", **SIMULATED.get(name, {}))
    same_as_simulated(flat, tmp_path, 1e-9, novel=0, images=images)
