"""Finished runs as their directories tell them: nothing is trained, no data set is loaded."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import yaml

from panacea.core.files import read_lines
from panacea.errors import RequestError
from panacea.experiment.keys import flatten
from panacea.experiment.rundir import RunDirectory
from panacea.graphs.client_graph import ClientGraph, npz_arrays

__all__ = ["Floats", "StoredRun", "find_runs", "read_run", "read_runs"]

Floats = npt.NDArray[np.float64]
_DEPTH = 3  # folders below the one given in which runs are looked for
_NUMBERS = (
    "novel", "malicious", "n_train", "n_val", "n_test", "metric", "loss", "val_metric", "final_metric", "degree",
    "group", "visits", "refused", "trust", "hops",
)  # fmt: skip


@dataclass(frozen=True)
class StoredRun:
    """One finished run.

    Attributes:
        path: its directory.
        config: every key, flat, as in ``config.yaml``.
        environment: versions and machine.
        text: ``config.yaml`` itself.
        summary: ``summary.json``.
        lines: ``metrics.jsonl``.
        names: one per client.
        columns: the numbers of ``clients.csv``, ``[clients]`` each; NaN where a cell is empty.
    """

    path: Path
    config: dict[str, Any]
    environment: dict[str, Any]
    text: str
    summary: dict[str, Any]
    lines: list[dict[str, Any]]
    names: list[str]
    columns: dict[str, Floats]

    @property
    def name(self) -> str:
        """The directory's name."""
        return self.path.resolve().name

    @property
    def seed(self) -> int:
        """Its seed."""
        return int(self.summary["seed"])

    @property
    def novel(self) -> npt.NDArray[np.bool_]:
        """``[clients]``: who was held out of training."""
        return np.asarray(self.columns["novel"] > 0)

    @property
    def counted(self) -> npt.NDArray[np.bool_]:
        """``[clients]``: the training clients that do not attack, over which `mean` is taken."""
        return np.asarray(~self.novel & ~(self.columns["malicious"] > 0))

    @cached_property
    def seconds(self) -> list[float]:
        """Seconds of training up to each line of the metrics."""
        spent = {line["round"]: float(line["train"]) for line in _json_lines(RunDirectory(self.path).timings)}
        total, at = 0.0, {}
        for round in sorted(spent):
            total += spent[round]
            at[round] = total
        return [at.get(line["round"], float("nan")) for line in self.lines]

    @cached_property
    def graph(self) -> ClientGraph | None:
        """The relation graph, if there is one."""
        path = RunDirectory(self.path).graph
        return ClientGraph.load(path) if path.exists() else None

    @cached_property
    def views(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays of ``views.npz``; none for a run of an earlier version."""
        path = RunDirectory(self.path).views
        return npz_arrays(path) if path.exists() else {}

    @cached_property
    def collaboration(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays of ``collaboration.npz``, for methods that mix models."""
        path = RunDirectory(self.path).collaboration
        return npz_arrays(path) if path.exists() else {}


def _json_lines(path: Path) -> list[dict[str, Any]]:
    try:
        return read_lines(path)
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise RequestError(f"{path} cannot be read as lines of JSON") from error


def read_run(path: Path) -> StoredRun:
    """Read a finished run.

    Raises:
        RequestError: a file is missing or damaged; the message names it.
    """
    directory = RunDirectory(path)
    summary = directory.read_summary()
    for key in ("method", "data", "seed", "metric", "mean"):
        if key not in summary:
            raise RequestError(f"{directory.summary}: no '{key}' in it; delete it and `panacea resume` writes it anew")
    try:
        text = directory.config_file.read_text(encoding="utf-8")
        content = yaml.safe_load(text)
        environment = content.pop("environment", None) or {}
        config = flatten(content)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, AttributeError) as error:
        raise RequestError(f"{directory.config_file} cannot be read as a configuration") from error
    names, columns = _read_clients(directory.clients)
    return StoredRun(path, config, environment, text, summary, _json_lines(directory.metrics), names, columns)


def _read_clients(path: Path) -> tuple[list[str], dict[str, Floats]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        names = [row["name"] for row in rows]
        known = [key for key in (rows[0] if rows else {}) if key in _NUMBERS or key.startswith(("final_", "asr"))]
        columns = {key: np.array([float(row[key] or "nan") for row in rows]) for key in known}
        for needed in ("novel", "malicious", "metric"):
            columns[needed]
    except (OSError, UnicodeDecodeError, csv.Error, ValueError, KeyError, TypeError) as error:
        raise RequestError(f"{path} cannot be read as a table of clients") from error
    return names, columns


def find_runs(path: Path) -> list[Path]:
    """The run directories that a path means: itself, those listed in its ``runs.csv``, or those that lie in it.

    Raises:
        RequestError: there are none.
    """
    if not path.exists():
        raise RequestError(f"{path}: no such directory")
    if not path.is_dir():
        raise RequestError(f"{path}: a run directory or a folder of them is needed, this is a file")
    if (path / "config.yaml").exists():
        return [path]
    listed = _listed(path)
    found = listed if listed else sorted(_below(path, _DEPTH))
    if not found:
        raise RequestError(f"{path} holds no run (a run directory has a config.yaml)")
    return found


def _listed(folder: Path) -> list[Path]:
    """The directories that a comparison's ``runs.csv`` names, also after both were moved together."""
    table = folder / "runs.csv"
    if not table.exists():
        return []
    try:
        with table.open(encoding="utf-8", newline="") as file:
            given = [Path(row["directory"]) for row in csv.DictReader(file) if row.get("directory")]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise RequestError(f"{table} cannot be read as a table") from error
    places = []
    for directory in given:
        choices = (directory, folder / directory, folder / directory.name, folder.parent / directory.name)
        place = next((choice for choice in choices if (choice / "config.yaml").exists()), None)
        if place is None:
            raise RequestError(f"{table} lists {directory}, which is not there")
        places.append(place)
    return places


def _below(folder: Path, depth: int) -> Iterable[Path]:
    for inner in folder.iterdir():
        if inner.is_dir() and not inner.is_symlink():
            if (inner / "config.yaml").exists():
                yield inner
            elif depth > 1:
                yield from _below(inner, depth - 1)


def read_runs(paths: Iterable[Path]) -> tuple[list[StoredRun], list[str]]:
    """All finished runs of some paths, each once, and a note on each that is not finished.

    Raises:
        RequestError: there is none, or a file is missing or damaged.
    """
    given = list(paths)
    found = {path.resolve(): path for one in given for path in find_runs(one)}
    notes = [f"{path.name} is not finished and left out" for path in found.values() if not _finished(path)]
    runs = [read_run(path) for path in found.values() if _finished(path)]
    if not runs:
        first = next(iter(found.values()))
        raise RequestError(f"{given[0]}: no finished run; `panacea resume {first}` goes on with it")
    return runs, notes


def _finished(path: Path) -> bool:
    return RunDirectory(path).finished
