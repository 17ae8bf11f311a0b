"""A client's own samples: a folder that never leaves it.

::

    data/data.npz       x, y and, where the splits are fixed, `splits`: how many are train, val and test, in that order
    data/task.yaml      kind, classes, scale (and target, val, test, chronological as in a folder of own data)

Or one of `data.csv`, `data.parquet` in place of `data.npz`; without `splits` a client's samples are split as those of a
folder of own data are (`panacea.data.own.from_folder`), with the seed 0.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
import yaml

from panacea.core.files import write_atomically
from panacea.data.federation import Federation
from panacea.data.task import Task
from panacea.deploy.settings import TaskSettings
from panacea.deploy.site import Site
from panacea.deploy.yaml_file import read_keys
from panacea.errors import RequestError

if TYPE_CHECKING:
    from panacea.data._samples import Samples

__all__ = ["EXPECTED", "check_samples", "load_samples", "write_client_data"]

EXPECTED = "expected.yaml"
"""Beside `client.yaml`: the task for which the server's operator made the folder."""

_FILES = ("data.npz", "data.csv", "data.parquet")


def write_client_data(federation: Federation, client: int, folder: Path) -> None:
    """One client's folder from a federation: the very samples and splits that a simulation uses."""
    folder.mkdir(parents=True, exist_ok=True)
    first, *_, end = federation.bounds[client]
    rows = slice(first, end) if federation.rows is None else federation.rows[first:end]
    splits = np.diff(federation.bounds[client])
    content = io.BytesIO()
    np.savez(
        content,
        x=federation.x[rows].contiguous().numpy(),
        y=federation.y[first:end].contiguous().numpy(),
        splits=splits,
    )
    write_atomically(folder / "data.npz", content.getvalue())
    task = federation.task
    said: dict[str, Any] = {"kind": task.kind, "scale": task.scale}
    if task.kind == "classification":
        said["classes"] = list(task.class_names) or task.classes
    write_atomically(folder / "task.yaml", yaml.safe_dump(said, sort_keys=False, allow_unicode=True))


def load_samples(folder: Path, name: str, task: Task) -> Federation:
    """A federation of one client from its folder.

    Args:
        folder: see the module's docstring.
        name: the client's.
        task: the run's; the samples must fit it.

    Raises:
        RequestError: there is no file, it cannot be read, or it is of another task.
    """
    paths = [folder / file for file in _FILES if (folder / file).is_file()]
    if len(paths) != 1:
        found = "holds several of" if paths else "has none of"
        raise RequestError(f"data folder {folder.name}: {found} {', '.join(_FILES)}")
    if paths[0].suffix == ".npz":
        arrays = _arrays(paths[0])
        if "splits" in arrays:
            return _laid_out(arrays, name, task)
    return _split(paths[0], folder, name, task)


def check_samples(site: Site, folder: Path) -> None:
    """Look at a client's samples before it connects, where its folder says what they are for.

    The run's own settings are checked with every order, whatever this file says.

    Raises:
        RequestError: one line that names the file and what is wrong with it.
    """
    if not (folder / EXPECTED).exists():
        return
    task = read_keys(folder / EXPECTED, TaskSettings).task
    try:
        load_samples(site.data, site.name, task)
    except RequestError as error:
        raise RequestError(f"client '{site.name}', data in {site.data}: {error}") from None


def _arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {key: file[key] for key in file.files}
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, EOFError) as error:
        raise RequestError(f"{path.name}: not a readable npz file ({type(error).__name__})") from None


def _laid_out(arrays: dict[str, npt.NDArray[Any]], name: str, task: Task) -> Federation:
    """Samples whose splits are fixed."""
    if {"x", "y", "splits"} - set(arrays):
        raise RequestError(f"data.npz: needs x, y and splits, but holds {', '.join(sorted(arrays))}")
    x, y, splits = arrays["x"], arrays["y"], arrays["splits"]
    if splits.shape != (3,) or splits.dtype.kind not in "iu" or (splits < 0).any() or len(x) != splits.sum():
        raise RequestError(f"data.npz: splits must be three counts that sum to the {len(x)} samples")
    if len(x) != len(y):
        raise RequestError(f"data.npz: {len(x)} rows in x but {len(y)} in y")
    labels = task.kind == "classification"
    if labels != (y.dtype.kind in "iu"):
        raise RequestError(f"data.npz: targets are {y.dtype}, but the run's task is {task.kind}")
    return Federation(
        name=name,
        task=task,
        x=torch.from_numpy(x if x.dtype == np.uint8 else x.astype(np.float32, copy=False)),
        y=torch.from_numpy(y.astype(np.int64 if labels else np.float32, copy=False)),
        bounds=np.concatenate([[0], np.cumsum(splits)]).astype(np.int64)[None],
        names=(name,),
    )


def _split(path: Path, folder: Path, name: str, task: Task) -> Federation:
    """Samples as users have them: checked and split as a folder of own data is."""
    from panacea.data._assemble import assemble  # noqa: PLC0415  (most clients do without)
    from panacea.data._folder import read_clients, task_file  # noqa: PLC0415

    said = task_file(folder / "task.yaml")
    if said.kind not in (None, task.kind):
        raise RequestError(f"task.yaml: kind is {said.kind}, but the run's task is {task.kind}")
    _check_classes(said.classes, task)
    fit, held = read_clients([path], said.target)
    _check_columns(fit[0], task)
    whole = assemble(
        fit, held, task=task, classes=None, scale=task.scale, graph=None, groups=None, features=None, seed=0,
        val=said.val, test=said.test, novel=0.0, chronological=said.chronological, name=name, notes=(),
    )  # fmt: skip
    return Federation(name, task, whole.x, whole.y, whole.bounds, (name,))


def _check_columns(samples: Samples, task: Task) -> None:
    """A table without its target column has another one taken for it: say which, where numbers do not add up."""
    if samples.targets is None or samples.x.shape[1:] == task.inputs:
        return
    raise RequestError(
        f"{samples.source} has inputs of shape {samples.x.shape[1:]} beside the target '{', '.join(samples.targets)}', "
        f"but the run's have {task.inputs}"
    )


def _check_classes(said: int | Sequence[str] | None, task: Task) -> None:
    known = len(said) if isinstance(said, list) else said
    names = tuple(said) if isinstance(said, list) else ()
    if (known not in (None, task.classes)) or (names and task.class_names and names != task.class_names):
        raise RequestError(f"task.yaml: its classes are not the run's {task.classes}")
