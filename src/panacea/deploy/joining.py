"""Joining a run: a request in the run's directory, a row in the server's state, a first model.

A request is a file ``joining/NAME.json`` in the run's directory (`ask_to_join`). The server looks after every round.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from panacea.core.files import write_atomically, write_json
from panacea.core.types import Newcomers
from panacea.core.validation import validated
from panacea.deploy.evaluating import evaluation_ranges
from panacea.deploy.orders import Order, Reply
from panacea.deploy.remote import RemoteEngine
from panacea.deploy.roster import Newcomer
from panacea.deploy.wire import checked_numbers, opened, pack
from panacea.errors import RequestError
from panacea.evaluation.evaluate import admitted_models
from panacea.experiment.checkpoint import Checkpoint
from panacea.experiment.experiment import Experiment

__all__ = ["ask_to_join", "enlarged", "first_model", "joined_names", "pending", "refusal", "refuse_request"]

_FOLDER = "joining"
_LONGEST = 1_000_000  # bytes of a request


def ask_to_join(directory: Path, newcomer: Newcomer) -> Path:
    """Leave a request in a run's directory; returns its file, which is gone when the client takes part.

    If it is refused, ``<file>.refused`` says why.

    Raises:
        RequestError: there is no run.
    """
    if not (directory / "federation.json").is_file():
        raise RequestError(f"{directory} is not the directory of a federation's run (no federation.json)")
    folder = directory / _FOLDER
    folder.mkdir(exist_ok=True)
    path = _request(directory, newcomer.name)
    path.with_suffix(".json.refused").unlink(missing_ok=True)
    write_json(path, newcomer.model_dump(mode="json"))
    return path


def _request(directory: Path, name: str) -> Path:
    return directory / _FOLDER / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.json"


def refusal(directory: Path, name: str) -> str | None:
    """Why a client was not taken in, if it was not."""
    try:
        return _request(directory, name).with_suffix(".json.refused").read_text(encoding="utf-8").strip()
    except OSError:
        return None


def joined_names(directory: Path) -> tuple[str, ...]:
    """Everybody that takes part in a run, whoever joined; nobody if there is none."""
    try:
        return tuple(json.loads((directory / "federation.json").read_text(encoding="utf-8"))["counts"])
    except (OSError, ValueError, KeyError):
        return ()


def pending(directory: Path) -> list[tuple[Path, Newcomer | str]]:
    """Requests that wait, in the order they came; text where one cannot be read."""
    found: list[tuple[Path, Newcomer | str]] = []
    for path in sorted((directory / _FOLDER).glob("*.json"), key=lambda path: (path.stat().st_mtime, path.name)):
        try:
            values = json.loads(path.read_bytes()[:_LONGEST])
            found.append((path, validated(Newcomer, values if isinstance(values, dict) else {}, "")))
        except RequestError as error:
            found.append((path, str(error)))
        except (OSError, ValueError):
            found.append((path, "the request is not readable JSON"))
    return found


def refuse_request(path: Path, reason: str) -> None:
    """Put a request aside with the reason."""
    write_atomically(path.with_suffix(".json.refused"), reason + "\n")
    path.unlink(missing_ok=True)


def enlarged(old: Experiment, new: Experiment) -> Checkpoint:
    """The state of a run, with a row for the one client more that the new experiment has.

    Raises:
        RequestError: the method or the defence cannot take in a client.
    """
    number, checkpoint, fresh = len(old.federation), old.to_checkpoint(), new.to_checkpoint().tensors
    if any(name.startswith("memory") for name in checkpoint.tensors):
        raise RequestError(f"defence={old.config.defence.name} remembers every client; nobody can join this run")
    newcomers = Newcomers(np.array([number], np.int64), new.federation.graph, new.federation.features)
    rows = old.method.joining_rows(old.state.server, old.state.clients, newcomers)
    tensors: dict[str, Tensor] = {}
    for name, value in checkpoint.tensors.items():
        if name.startswith("snapshots"):
            continue  # pictures of another number of clients
        if name.startswith("history"):
            grows = ".novel" not in name
            tensors[name] = torch.cat([value, value.new_full((1,), torch.nan)]) if grows else value
        else:
            own = rows.get(name.removeprefix("server."))
            tensors[name] = _grown(old, name, value, fresh.get(name), own)
    return Checkpoint(checkpoint.round, tensors, checkpoint.info)


def _grown(old: Experiment, name: str, value: Tensor, fresh: Tensor | None, row: Tensor | None) -> Tensor:
    if fresh is None or fresh.shape == value.shape:
        return value
    if fresh.shape != (len(value) + 1, *value.shape[1:]):
        raise RequestError(f"method={old.method.name}: its server state ({name}) cannot take in another client")
    return torch.cat([value, (fresh[-1:] if row is None else row).to(value)])


def first_model(old: Experiment, new: Experiment, number: int) -> None:
    """Send a client that joined the model that a newcomer gets, to use and to score; its numbers go to the log."""
    engine, newcomers = new.engine, Newcomers(np.array([number]), new.federation.graph, new.federation.features)
    assert isinstance(engine, RemoteEngine)
    params, statistics = admitted_models(old.method, old.state, old.target, newcomers)
    arrays = {"admitted": pack(params[0])} | ({"statistics": pack(statistics[0])} if statistics.numel() else {})
    name, ranges = new.federation.names[number], evaluation_ranges(new.federation.task, (), scores=True)

    def check(client: int, reply: Reply) -> dict[str, float]:
        opened(reply.arrays, {})
        return checked_numbers(reply.numbers, ranges, set())

    order = Order(number, name, new.state.round, ("evaluate",), engine.settings, arrays)
    found, _ = engine.desk.ask({number: order}, check, everyone=True)
    if number in found:
        said = ", ".join(f"{key} {value:.4g}" for key, value in sorted(found[number].items()))
        engine.desk.log.note("first model", said, name)
