"""What is in the folder of a user's federation: clients, edges, settings."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml
from pydantic import BaseModel, ConfigDict, Field

from panacea.core.validation import validated
from panacea.data._files import SUFFIXES, natural_order, read_npz, read_table
from panacea.data._samples import Samples, samples_of_tables
from panacea.data.task import Kind
from panacea.errors import RequestError
from panacea.graphs import ClientGraph
from panacea.graphs.files import read_csv

__all__ = ["FolderContents", "TaskFile", "folder_contents", "read_clients", "task_file"]


class TaskFile(BaseModel):
    """The keys of `task.yaml`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Kind | None = Field(None, description="classification, regression or forecasting")
    target: str | list[str] | None = Field(None, description="target column, or a list of them")
    classes: int | list[str] | None = Field(None, description="number of classes, or their names in label order")
    scale: str = Field("as given", description="the scale errors are stated in, for the report")
    chronological: bool | None = Field(None, description="split in the order of the rows")
    test: float = Field(0.2, ge=0, lt=1, description="share of each client's samples for the test split")
    val: float = Field(0.1, ge=0, lt=1, description="share of each client's train part used to choose rounds")


@dataclass(frozen=True)
class FolderContents:
    """Everything read from a folder; `held` are test samples where the files say which they are."""

    name: str
    settings: TaskFile
    clients: list[Samples]
    held: list[Samples] | None
    graph: ClientGraph | None
    notes: tuple[str, ...]


def folder_contents(
    root: str | os.PathLike[str], target: str | Sequence[str] | None, clients: int | None
) -> FolderContents:
    """Read a folder; see `panacea.data.own.from_folder` for its layout."""
    folder = Path(root).expanduser()
    if not (folder / "clients").is_dir():
        what = "has no folder 'clients'" if folder.is_dir() else "is not a folder"
        raise RequestError(f"{folder} {what}; expected {folder}/clients/NAME.csv (or .parquet, .npz), one per client")
    paths = sorted((p for p in (folder / "clients").iterdir() if not p.name.startswith(".")), key=natural_order)
    others = [path.name for path in paths if path.suffix not in SUFFIXES or not path.is_file()]
    paths = [path for path in paths if path.name not in others]
    names = [path.stem for path in paths]
    if not paths:
        raise RequestError(f"{folder}/clients has no .csv, .parquet or .npz file")
    twice = [name for name in names if names.count(name) > 1] if len(set(names)) < len(names) else []
    if twice:
        raise RequestError(f"{folder}/clients: two files for client '{twice[0]}'")
    if clients is not None and clients > len(paths):
        raise RequestError(f"clients={clients}: {folder}/clients has {len(paths)} clients")
    settings = task_file(folder / "task.yaml")
    graph, notes = read_csv(folder / "edges.csv", names) if (folder / "edges.csv").is_file() else (None, ())
    if clients is not None:
        paths = paths[:clients]
        graph = None if graph is None else graph.take(np.arange(clients))
    if others:
        notes = (*notes, f"clients: {', '.join(others)} ignored, not a .csv, .parquet or .npz file")
    fit, held = read_clients(paths, target if target is not None else settings.target)
    return FolderContents(folder.resolve().name, settings, fit, held, graph, notes)


def read_clients(
    paths: Sequence[Path], target: str | Sequence[str] | None
) -> tuple[list[Samples], list[Samples] | None]:
    """Every client's samples from its file, and its test samples where the files say which they are."""
    sources = [f"{path.parent.name}/{path.name}" for path in paths]
    tables = [read_table(path, source) for path, source in zip(paths, sources, strict=True) if path.suffix != ".npz"]
    fit, held = samples_of_tables(tables, target) if tables else ([], None)
    table_fit, table_held = iter(fit), iter(held or [])
    pairs: list[tuple[Samples, Samples | None]] = []
    for path, source in zip(paths, sources, strict=True):
        pairs.append(read_npz(path, source) if path.suffix == ".npz" else (next(table_fit), next(table_held, None)))
    tests = [test for _, test in pairs if test is not None]
    if tests and len(tests) < len(pairs):
        lacking = next(samples.source for samples, test in pairs if test is None)
        raise RequestError(f"{lacking} does not say which samples are for testing, but {tests[0].source} does")
    return [samples for samples, _ in pairs], tests or None


def task_file(path: Path) -> TaskFile:
    """The settings of a folder; all by default where there is no file."""
    if not path.is_file():
        return TaskFile.model_validate({})
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise RequestError(f"{path.name}: not valid YAML ({' '.join(str(error).split())})") from None
    if values is not None and not isinstance(values, dict):
        raise RequestError(f"{path.name}: needs keys and values such as `kind: regression`")
    return validated(TaskFile, {str(key): value for key, value in (values or {}).items()}, f"{path.name}: ")
