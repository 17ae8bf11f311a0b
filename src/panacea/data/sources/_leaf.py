"""LEAF's JSON files: samples by user, in one or several files.

    {"users": [names], "num_samples": [counts], "user_data": {name: {"x": [samples], "y": [labels]}}}

LEAF's scripts write ``all_data/all_data*.json`` (everything), and ``train/*.json`` with ``test/*.json`` (a division
within each user). Those last two are preferred where they are there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from panacea.data._files import natural_order
from panacea.data.owned import Owned
from panacea.data.reading import json_content
from panacea.errors import RequestError

__all__ = ["LeafUser", "leaf_files", "read_leaf"]

_PLACES = (".", "data")  # LEAF keeps its files in data/<name>/data


@dataclass(frozen=True)
class LeafUser:
    """One user of one file.

    Attributes:
        name: as the file has it.
        x: the samples, not checked.
        y: ``[samples]`` int64 labels, checked.
        place: how an error names this user.
    """

    name: str
    x: list[object]
    y: npt.NDArray[np.int64]
    place: str


def leaf_files(folder: Path) -> dict[str, list[Path]]:
    """What there is: files of ``train`` and ``test``, else of ``all``, in natural order; empty where there is none."""
    for place in _PLACES:
        train, test = (
            (sorted((folder / place / part).glob("*.json"), key=natural_order)) for part in ("train", "test")
        )
        if train and not test:
            raise RequestError(f"{folder / place}: train/*.json without test/*.json; LEAF writes both")
        if train:
            return {"train": train, "test": test}
    for place in _PLACES:
        for inner in ("all_data", "."):
            files = sorted((folder / place / inner).glob("all_data*.json"), key=natural_order)
            if files:
                return {"all": files}
    return {}


def read_leaf(files: dict[str, list[Path]], classes: int, take: Callable[[LeafUser], None]) -> Owned:
    """Who owns which sample, users in the order in which they appear.

    Args:
        files: what `leaf_files` found.
        classes: labels are 0 .. classes-1.
        take: given every user of every file in turn; it keeps the samples, one after the other.
    """
    number: dict[str, int] = {}
    owner, labels, test = [], [], []
    for part, paths in files.items():
        seen: dict[str, str] = {}
        for path in paths:
            for user in _users(path, classes):
                if user.name in seen:
                    raise RequestError(f"{user.place} is in {seen[user.name]} too; a user belongs in one file")
                seen[user.name] = path.name
                take(user)
                owner.append(np.full(len(user.y), number.setdefault(user.name, len(number)), np.int64))
                labels.append(user.y)
                test.append(np.full(len(user.y), part == "test"))
    if not number:
        raise RequestError(f"{next(iter(files.values()))[0]}: no user in any file")
    owners = np.concatenate(owner)
    return Owned(
        tuple(number),
        owners,
        np.concatenate(labels),
        np.arange(len(owners), dtype=np.int64),
        None if "all" in files else np.concatenate(test),
    )


def _users(path: Path, classes: int) -> Iterator[LeafUser]:
    content = json_content(path)
    if not isinstance(content, dict) or not isinstance(content.get("users"), list):
        raise RequestError(f"{path}: needs an object with 'users' and 'user_data', as LEAF writes it")
    data = content.get("user_data")
    if not isinstance(data, dict):
        raise RequestError(f"{path}: 'user_data' must be an object with 'x' and 'y' of every user")
    counts = content.get("num_samples")
    if isinstance(counts, list) and len(counts) != len(content["users"]):
        raise RequestError(f"{path}: {len(content['users'])} 'users' but {len(counts)} 'num_samples'")
    for place, name in enumerate(content["users"]):
        what = f"{path}: user '{name}'"
        own = data.get(name) if isinstance(name, str) else None
        if not isinstance(own, dict) or not isinstance(own.get("x"), list) or not isinstance(own.get("y"), list):
            raise RequestError(f"{what} has no lists 'x' and 'y' in 'user_data'")
        if len(own["x"]) != len(own["y"]):
            raise RequestError(f"{what} has {len(own['x'])} samples in 'x' but {len(own['y'])} labels in 'y'")
        if isinstance(counts, list) and counts[place] != len(own["y"]):
            raise RequestError(f"{what} has {len(own['y'])} samples, 'num_samples' says {counts[place]}")
        yield LeafUser(name, own["x"], _labels(own["y"], classes, what), what)


def _labels(values: list[Any], classes: int, what: str) -> npt.NDArray[np.int64]:
    for place, value in enumerate(values):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (number and 0 <= value < classes and value == int(value)):
            raise RequestError(f"{what}, label {place + 1}: {json.dumps(value)} is not one of 0..{classes - 1}")
    return np.array(values, np.int64)
