"""A run back from its directory: the experiment as its newest undamaged checkpoint left it."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from panacea.errors import RequestError
from panacea.experiment.config import ExperimentConfig, identity
from panacea.experiment.experiment import Experiment
from panacea.experiment.rundir import RunDirectory

__all__ = ["OpenedRun", "open_experiment", "stored_request"]


@dataclass(frozen=True)
class OpenedRun:
    """An experiment at its newest checkpoint, its directory, and what a user should know."""

    experiment: Experiment
    directory: RunDirectory
    notes: tuple[str, ...]


def stored_request(path: Path) -> tuple[RunDirectory, ExperimentConfig]:
    """A run's directory and configuration.

    Raises:
        RequestError: there is no run, or it cannot be rebuilt because its data or network came from elsewhere.
    """
    if not path.is_dir():
        raise RequestError(f"{path}: no such run directory")
    directory = RunDirectory(path)
    config = directory.read_config()
    if directory.federation.exists():
        raise RequestError(
            f"{path} is the run of a federation, whose data are with the clients: `panacea federate submit` (or the "
            "same `panacea federate local`) goes on with it, and every client has its model in its own folder"
        )
    for what, given in (("data", "in_memory" in config.data.keys), ("a network", "digest" in config.model.keys)):
        if given:
            raise RequestError(
                f"{path} was made from Python with {what} of its own; call pn.train with the same {what} and out"
            )
    return directory, config


def open_experiment(path: Path) -> OpenedRun:
    """Rebuild the experiment of a directory and go to its newest undamaged checkpoint; nothing is written.

    A run made on a GPU opens on the CPU where there is none.

    Raises:
        RequestError: there is no run or no checkpoint, the checkpoint is of something else, or the data has changed.
    """
    directory, config = stored_request(path)
    checkpoint, notes = directory.checkpoints.load()
    if checkpoint is None:
        why = notes[0] if notes else f"{path} has no checkpoint"
        raise RequestError(f"{why}; `panacea resume {path}` trains it")
    found = checkpoint.info.get("identity")
    if found != identity(config):
        raise RequestError(
            f"{path}: the checkpoint of round {checkpoint.round} belongs to another configuration ({found}, "
            f"config.yaml is {identity(config)})"
        )
    if config.device == "cuda" and not torch.cuda.is_available():
        config = config.model_copy(update={"device": "cpu"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # how the network runs was said when it was trained
        experiment = Experiment(config)
    info = {**checkpoint.info, "identity": identity(experiment.config)}  # checked above; the device does not matter
    experiment.restore(replace(checkpoint, info=info))
    if checkpoint.round < (config.rounds or 0):
        notes = [*notes, f"this run is not finished: its state is that of round {checkpoint.round} of {config.rounds}"]
    return OpenedRun(experiment, directory, tuple(notes))
