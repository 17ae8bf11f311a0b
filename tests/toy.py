"""A federation small enough to reason about and awkward enough to hide nothing: ragged clients, one of a single
sample, an odd width, one novel client."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from panacea.core.round import Report, run_round
from panacea.core.types import ClientIds
from panacea.data.federation import Federation
from panacea.data.task import Task
from panacea.experiment.config import build_config
from panacea.experiment.experiment import Experiment
from panacea.experiment.speed.engines import engine_keys
from panacea.graphs import ClientGraph

SIZES = (1, 9, 13, 30, 5, 21, 17)


def toy_federation(seed: int = 0) -> Federation:
    generator = np.random.default_rng(seed)
    clients = []
    for i, size in enumerate(SIZES):
        x = generator.normal(size=(size, 3)) + 0.3 * i
        y = (x @ np.array([1.0, -1.0, 0.5 * (i - 3)]) > 0.1 * i).astype(int)
        clients.append((x, y))
    graph, _ = ClientGraph.from_edges(len(SIZES), [(i, (i + 1) % len(SIZES)) for i in range(len(SIZES))])
    task = Task("classification", inputs=(3,), classes=2)
    fed = Federation.from_clients(clients, task=task, seed=seed, name="toy", graph=graph)
    novel = np.zeros(len(SIZES), bool)
    novel[-1] = True
    import dataclasses

    return dataclasses.replace(fed, novel=novel)


def toy_experiment(method: str, parameters: dict[str, Any] | None = None, **keys: Any) -> Experiment:
    flat: dict[str, Any] = {
        "data": "toy",
        "method": method,
        "model": "mlp",
        "model.hidden": [5],
        "dtype": "float64",
        "lr": 0.1,
        "rounds": 4,
        "cohort": 3,
        "local_steps": 4,
        "batch_size": 7,
    }
    if method == "fedbn":
        flat["model.norm"] = "batch"  # without BatchNorm it is refused
    flat |= {f"method.{key}": value for key, value in (parameters or {}).items()}
    flat |= keys
    if "local_epochs" in keys:
        del flat["local_steps"]
    return Experiment(build_config(flat), toy_federation())


def play(experiment: Experiment, rounds: int) -> list[Report]:
    """Run rounds without evaluation or files."""
    reports = []
    for _ in range(rounds):
        cohort = experiment.cohort(experiment.state.round + 1)
        experiment.state, report = run_round(experiment.method, experiment.state, cohort, experiment.engine)
        experiment.visits[cohort.ids] += 1
        reports.append(report)
    return reports


def trajectory(experiment: Experiment) -> dict[str, torch.Tensor]:
    """Everything a method's parameters can influence: server, clients, evaluated models of old and new clients."""
    tensors = {
        name: value for name, value in experiment.to_checkpoint().tensors.items() if not name.startswith("history")
    }
    for novel, ids in ((False, experiment.federation.train_ids), (True, experiment.federation.novel_ids)):
        tensors[f"evaluated.{novel}"] = _personal(experiment, ids, novel)[0]
    return tensors


def outcome(experiment: Experiment) -> dict[str, torch.Tensor]:
    """The trajectory, and what the evaluated networks make of the clients' samples."""
    tensors = trajectory(experiment)
    for novel, ids in ((False, experiment.federation.train_ids), (True, experiment.federation.novel_ids)):
        if len(ids):
            scores = experiment.engine.evaluate(*_personal(experiment, ids, novel), ids, "train")
            tensors[f"loss.{novel}"] = torch.from_numpy(scores.loss)
    return tensors


def _personal(experiment: Experiment, ids: ClientIds, novel: bool) -> tuple[torch.Tensor, torch.Tensor]:
    from panacea.evaluation.evaluate import personal_models

    return personal_models(
        experiment.method, experiment.state, experiment.engine, experiment.federation, ids, novel=novel
    )


def wait_for_first_round(out: Path, seconds: float = 90) -> None:
    """Until a run below `out` has timed a round; a run that never does fails the test instead of hanging it."""
    deadline = time.monotonic() + seconds
    while not list(out.glob("*/timings.jsonl")):
        assert time.monotonic() < deadline, f"no round was trained in {out}"
        time.sleep(0.02)


def largest_difference(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    assert a.keys() == b.keys()
    return max(float((a[name] - b[name]).abs().max()) if a[name].numel() else 0.0 for name in a)


def without_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    """`panacea bench` measures what takes no minute to get ready."""
    for module in ("engines", "growth"):
        name = f"panacea.experiment.speed.{module}.engine_keys"
        monkeypatch.setattr(name, lambda device, **keys: engine_keys(device, **{**keys, "quick": True}))
