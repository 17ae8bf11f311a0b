"""What the small data sets with a graph of their own share: where their files are, JSON read with care, keys."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from panacea.data.paths import find_data_dir, missing_files
from panacea.data.reading import json_content
from panacea.data.registry import Card
from panacea.data.series import Scale, SeriesKeys
from panacea.errors import RequestError

__all__ = [
    "SPLITS",
    "ScaledSeriesKeys",
    "entry",
    "find_folders",
    "node_pairs",
    "number_row",
    "number_table",
    "open_json",
    "pyg_temporal_card",
    "unit_square",
]

_PYG_TEMPORAL = (
    "Rozemberczki et al., PyTorch Geometric Temporal: Spatiotemporal Signal Processing with Neural Machine Learning "
    "Models, CIKM 2021"
)
SPLITS = "all windows in the order of time: the first 70 % train, 10 % validation, the last 20 % test"

Doubles = npt.NDArray[np.float64]

_FLOAT32 = float(np.finfo(np.float32).max)  # values are kept so; a larger one would become infinite
_LARGEST = 2**31  # more nodes than any file has; larger whole numbers may not fit in an array


class ScaledSeriesKeys(SeriesKeys):
    """Keys of a federation of time series with a choice of scales."""

    scale: Scale = Field(
        "client_minmax",
        description="client_minmax: each client by its own range; global_zscore: one mean and deviation; raw: as given",
    )


def find_folders(name: str, root: Path | None) -> list[Path]:
    """Folders in which the files of a data set may be: its own, and the common one."""
    found = [find_data_dir(place, root) for place in (name, "natural-graphs")]
    return [folder for folder in found if folder is not None]


def pyg_temporal_card(name: str, *also: str, licence: str = "", features: tuple[str, ...] = ()) -> Card:
    """The card of a data set that PyTorch Geometric Temporal publishes.

    Args:
        name: the data set; its file is ``<name>.json``.
        also: whom to cite besides.
        licence: of the records behind it.
        features: see `Card`.
    """
    return Card(
        licence="; ".join(filter(None, ("MIT (PyTorch Geometric Temporal)", licence))),
        citation="; ".join((_PYG_TEMPORAL, *also)),
        used_in="no table of the Panacea papers; a benchmark of PyTorch Geometric Temporal",
        get=f"place {name}.json (or .json.gz) there or in natural-graphs beside it; it is in the folder dataset/ of "
        "the project PyTorch Geometric Temporal (github.com/benedekrozemberczki/pytorch_geometric_temporal)",
        splits=SPLITS,
        features=features,
    )


def open_json(name: str, root: Path | None) -> tuple[Path, dict[str, Any]]:
    """``<name>.json`` or ``<name>.json.gz`` in one of the folders: its path and the object that it holds."""
    path = find_json(name, root)
    if path is None:
        raise missing_files(name, root, pyg_temporal_card(name).get)
    return path, _read_json(path)


def find_json(name: str, root: Path | None) -> Path | None:
    """``<name>.json`` or ``<name>.json.gz`` in one of the folders."""
    places = [folder / file for folder in find_folders(name, root) for file in (f"{name}.json", f"{name}.json.gz")]
    return next((path for path in places if path.is_file()), None)


def _read_json(path: Path) -> dict[str, Any]:
    content = json_content(path)
    if not isinstance(content, dict):
        raise RequestError(f"{path}: holds {_kind(content)}, not an object with named entries")
    return content


def entry(owner: object, key: str, kind: type, path: Path, where: str = "") -> Any:
    """``owner[key]``, which must be there and of a kind (dict, list, int or float)."""
    place = f"{where}['{key}']" if where else f"'{key}'"
    if not isinstance(owner, dict):
        raise RequestError(f"{path}: {where} is {_kind(owner)}, not an object with named entries")
    if key not in owner:
        raise RequestError(f"{path}: no {place}; it needs {_NAMES[kind]} there")
    value = owner[key]
    fits = _is_number(value) if kind is float else type(value) is kind
    if not fits:
        raise RequestError(f"{path}: {place} is {_shown(value)}, not {_NAMES[kind]}")
    return value


def number_row(
    values: object, path: Path, where: str, length: int | None = None, low: float = -math.inf
) -> npt.NDArray[np.float64]:
    """A list of finite numbers as an array; the first wrong one is named by its position.

    Args:
        values: what the file holds.
        path: the file.
        where: the list's own position in the file.
        length: how many there must be.
        low: the smallest value that is allowed.
    """
    if not isinstance(values, list):
        raise RequestError(f"{path}: {where} is {_shown(values)}, not a list of numbers")
    if length is not None and len(values) != length:
        raise RequestError(f"{path}: {where} has {len(values)} values, not {length}")
    if set(map(type, values)) <= {int, float}:
        try:
            row = np.array(values, np.float64)
        except OverflowError:
            row = np.full(len(values), np.nan)
        if ((np.abs(row) <= _FLOAT32) & (row >= low)).all():
            return row
    wrong = next(i for i, value in enumerate(values) if not (_is_number(value) and value >= low))
    least = "" if low == -math.inf else f" of at least {low:g}"
    raise RequestError(f"{path}: {where}[{wrong}] is {_shown(values[wrong])}, not a finite number{least}")


def number_table(rows: object, path: Path, where: str, low: float = -math.inf) -> Doubles:
    """A list of equally long lists of numbers as ``[rows, columns]``."""
    if not isinstance(rows, list) or not rows or not isinstance(rows[0], list) or not rows[0]:
        raise RequestError(f"{path}: {where} is {_shown(rows)}, not a list of lists of numbers")
    width = len(rows[0])
    return np.stack([number_row(row, path, f"{where}[{i}]", width, low) for i, row in enumerate(rows)])


def node_pairs(pairs: object, n: int, path: Path, where: str) -> npt.NDArray[np.int64]:
    """Directed edges ``[E, 2]`` between nodes 0 .. n-1, each once."""
    if not isinstance(pairs, list):
        raise RequestError(f"{path}: {where} is {_shown(pairs)}, not a list of pairs")
    found = _whole_pairs(pairs)
    if found is not None and ((found >= 0) & (found < n)).all() and len(np.unique(found @ [n, 1])) == len(found):
        return found
    seen: dict[tuple[int, int], int] = {}  # something is wrong: look for it pair by pair
    for i, pair in enumerate(pairs):
        if not isinstance(pair, list) or len(pair) != 2 or any(type(end) is not int for end in pair):
            raise RequestError(f"{path}: {where}[{i}] is {_shown(pair)}, not a pair of whole numbers")
        if not all(0 <= end < n for end in pair):
            raise RequestError(
                f"{path}: {where}[{i}] is {_shown(pair)}, an edge to an unknown node; nodes are 0..{n - 1}"
            )
        first = seen.setdefault((pair[0], pair[1]), i)
        if first != i:
            raise RequestError(f"{path}: {where}[{i}] is {_shown(pair)}, the same edge as {where}[{first}]")
    return np.zeros((0, 2), np.int64)


def _whole_pairs(pairs: list[Any]) -> npt.NDArray[np.int64] | None:
    """``[E, 2]``, or None where some element is not a pair of whole numbers."""
    if set(map(type, pairs)) != {list} or set(map(len, pairs)) != {2}:
        return None
    ends = list(chain.from_iterable(pairs))
    if set(map(type, ends)) != {int} or max(ends) > _LARGEST or min(ends) < 0:
        return None
    return np.array(ends, np.int64).reshape(-1, 2)


def unit_square(points: Iterable[Sequence[float]] | Doubles) -> npt.NDArray[np.float32]:
    """Coordinates ``[n, 2]``, each scaled to [0, 1] over all clients.

    >>> unit_square([(10, 5), (20, 5), (15, 5)]).tolist()
    [[0.0, 0.0], [1.0, 0.0], [0.5, 0.0]]
    """
    given = np.asarray(list(points), np.float64)
    low, width = given.min(axis=0), np.ptp(given, axis=0)
    scaled: npt.NDArray[np.float32] = ((given - low) / np.where(width > 0, width, 1)).astype(np.float32)
    return scaled


_NAMES = {dict: "an object", list: "a list", int: "a whole number", float: "a finite number"}


def _is_number(value: object) -> bool:
    if type(value) not in (int, float):
        return False
    return bool(abs(value) <= _FLOAT32)  # type: ignore[arg-type]


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def _shown(value: object) -> str:
    """A value as the file has it, cut short."""
    if isinstance(value, dict | list) and len(value) > 4:
        return f"{_kind(value)} of {len(value)}"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else f"{text[:37]}..."
