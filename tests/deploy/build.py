"""Small federations over the in-process transport, for the tests of this folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from panacea.data.federation import Federation, Task
from panacea.deploy.inprocess import InProcess, write_sites
from panacea.deploy.orders import Order, Transport
from panacea.deploy.patience import Patience
from panacea.deploy.roster import Roster
from panacea.deploy.serve import serve
from panacea.deploy.site import open_site
from panacea.experiment.config import build_config
from panacea.experiment.experiment import Experiment
from panacea.experiment.runner import Callback
from panacea.graphs import ClientGraph

QUICK = Patience(deadline=5.0, pause=0.0, start=0.01, attempts=2)


def ragged(novel: int = 1, images: bool = False) -> Federation:
    """Six clients with 5 to 40 samples and a ring of links; images as bytes, if asked for."""
    rng, clients = np.random.default_rng(0), []
    for size in (5, 40, 17, 9, 26, 12):
        y = rng.integers(0, 3, size)
        x = rng.normal(size=(size, 6)) + y[:, None]
        clients.append((rng.integers(0, 256, (size, 1, 8, 8), dtype=np.uint8) if images else x, y))
    shape = (1, 8, 8) if images else (6,)
    ring = ClientGraph(6, np.array([[0, 1], [1, 2], [2, 3], [3, 4], [4, 5], [0, 5]]), np.ones(6, np.float32))
    made = Federation.from_clients(
        clients, task=Task("classification", shape, classes=3), name="ragged", graph=ring,
        names=[f"site {i}" for i in range(6)], groups=np.arange(6) % 2,
    )  # fmt: skip
    return made if not novel else made.hold_out(novel / 6, 3)


def keys(method: str, **more: Any) -> dict[str, Any]:
    """The keys of a short run."""
    return {
        "data": "ragged", "method": method, "rounds": 3, "cohort": 3, "local_steps": 4, "batch_size": 8, "lr": 0.05,
        "eval_every": 2, "server_steps": 3, "device": "cpu", **more,
    }  # fmt: skip


class Keep(Callback):
    """Remembers the experiment."""

    experiment: Experiment

    def on_start(self, experiment: Experiment, directory: object) -> None:
        """Keep it."""
        self.experiment = experiment


Answers = Mapping[int, Callable[[Order], object]]


def transport(federation: Federation, folder: Path, answers: Answers | None = None) -> InProcess:
    """Clients with folders of their own, written on first use."""
    made = folder / "sites"
    if not made.exists():
        write_sites(federation, made)
    return InProcess([open_site(path) for path in sorted(made.iterdir())], answers)


def federate(
    federation: Federation,
    flat: Mapping[str, Any],
    folder: Path,
    answers: Answers | None = None,
    patience: Patience = QUICK,
    over: Transport | None = None,
) -> tuple[Experiment, dict[str, Any]]:
    """A whole run; what it leaves is in ``folder/run``."""
    kept = Keep()
    link = over if over is not None else transport(federation, folder, answers)
    roster = dataclasses.replace(Roster.of(federation), samples=None)  # clients say how many they have
    summary = serve(build_config(flat), roster, link, folder / "run", [kept], patience)
    return kept.experiment, summary
