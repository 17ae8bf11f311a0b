"""Finished runs to report on: small, but real."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import panacea as pn
from panacea.experiment.config import build_config
from panacea.experiment.experiment import Experiment
from panacea.experiment.rundir import RunDirectory
from panacea.experiment.runner import run_experiment

SMALL = {"data": "fl60", "data.clients": 12, "rounds": 6, "eval_every": 2, "local_steps": 3}
NASTY = (
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>",
    '<a href="javascript:window.hacked = 1">click</a>',
    'it\'s & "quoted" <b>bold</b> \u2028 %%DATA%%',
)


def train(out: Path, federation: pn.Federation | None = None, **keys: Any) -> Path:
    """One run without its page and pictures; dots of keys are written as two underscores."""
    usual = SMALL if federation is None else {"data": federation.name}
    given = {key.replace("__", "."): value for key, value in keys.items()}
    experiment = Experiment(build_config({**usual, **given, "out": str(out)}), federation)
    directory = RunDirectory.of(experiment.config, experiment.method.name)
    run_experiment(experiment, directory)
    return directory.path


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of eight runs: three methods, two seeds, and an attack with two shares of attackers."""
    out = tmp_path_factory.mktemp("runs")
    for method in ("fedavg", "fedamp", "panacea"):
        for seed in (0, 1):
            train(out, method=method, seed=seed)
    for ratio in (0.2, 0.4):
        train(out, method="fedavg", seed=0, attack="label_flip", attack__ratio=ratio)
    return out


@pytest.fixture(scope="session")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run of 325 clients on a map, some with names that would be scripts if a page were careless."""
    out, draw, n = tmp_path_factory.mktemp("many"), np.random.default_rng(0), 325
    places = draw.uniform(size=(n, 2))
    near = np.argsort(((places[:, None] - places) ** 2).sum(-1), axis=1)[:, 1:4]
    federation = pn.Federation.from_arrays(
        list(draw.standard_normal((n, 10, 3)).astype(np.float32)),
        list(draw.integers(0, 2, (n, 10))),
        edges=sorted({(min(i, int(j)), max(i, int(j))) for i in range(n) for j in near[i]}),
        names=[*NASTY, *(f"site {i}" for i in range(len(NASTY), n))],
        features=places,
    )
    train(out, federation, method="panacea", rounds=2, local_steps=1, eval_every=1, novel=0.1)
    return out
