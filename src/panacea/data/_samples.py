"""One client's samples as the user gave them, and how to name a place in them in a message."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from torch import Tensor

from panacea.core.values import shown
from panacea.errors import RequestError

__all__ = [
    "Array",
    "Clients",
    "Samples",
    "Table",
    "as_array",
    "numbers",
    "samples_of_tables",
    "table_of_frame",
]

Array: TypeAlias = npt.NDArray[Any]
Clients: TypeAlias = Sequence[Any] | Mapping[str, Any] | npt.NDArray[Any] | Tensor
"""One array, tensor, nested list or DataFrame per client, in a list or by name."""

_FLOAT32 = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Samples:
    """One client's inputs and targets.

    Attributes:
        name: the client's name.
        source: how messages call it: ``client 'berlin'`` or ``clients/berlin.csv``.
        x: inputs ``[samples, ...]``.
        y: targets ``[samples]`` or ``[samples, ...]``, of any type.
        columns: names of the input columns, where there are such.
        targets: names of the target columns, where there are such.
        rows: number of each sample in messages; positions where None.
        unit: what these numbers count: ``line`` (of a file, from 1) or ``row`` (from 0).
        arrays: names of the two arrays in messages.
    """

    name: str
    source: str
    x: Array
    y: Array
    columns: tuple[str, ...] | None = None
    targets: tuple[str, ...] | None = None
    rows: npt.NDArray[np.int64] | None = None
    unit: str = "row"
    arrays: tuple[str, str] = ("x", "y")

    def place(self, index: Sequence[int], *, target: bool = False) -> str:
        """Words for one value: `index` is its position in `x` (or `y`)."""
        row = int(index[0]) if self.rows is None else int(self.rows[index[0]])
        text = f"{self.source} line {row}" if self.unit == "line" else f"{self.source}, row {row} (from 0)"
        rest = tuple(int(i) for i in index[1:])
        names = self.targets if target else self.columns
        if names is not None and len(rest) <= 1:
            return f"{text}, column '{names[rest[0] if rest else 0]}'"
        array = self.arrays[target]
        if not rest:
            return f"{text} of {array}"
        return f"{text}, column {rest[0]} of {array}" if len(rest) == 1 else f"{text}, position {rest} of {array}"


@dataclass(frozen=True)
class Table:
    """Named columns of one client: a DataFrame, a CSV or a Parquet file."""

    name: str
    source: str
    columns: dict[str, Array]
    rows: npt.NDArray[np.int64]
    unit: str = "row"


def table_of_frame(frame: Any, name: str) -> Table:
    """The columns of a DataFrame."""
    titles = [str(title) for title in frame.columns]
    twice = [title for title in titles if titles.count(title) > 1]
    if twice:
        raise RequestError(f"client '{name}' has two columns '{twice[0]}'")
    columns = {title: np.asarray(frame[key]) for title, key in zip(titles, frame.columns, strict=True)}
    return Table(name, f"client '{name}'", columns, np.arange(len(frame)))


def as_array(value: object, what: str) -> Array:
    """A NumPy array from an array, tensor, Series, DataFrame or nested list."""
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        return np.asarray(value.double() if value.is_floating_point() else value)
    try:
        return np.asarray(value)
    except ValueError:
        raise RequestError(f"{what} is not a regular array: its rows have different lengths") from None


def numbers(values: Array, where: Callable[[Sequence[int]], str]) -> npt.NDArray[np.float32]:
    """Values as float32, or an error that names the first that is not a finite number."""
    if values.dtype.kind in "biuf":
        exact = values.astype(np.float64)
    elif values.dtype.kind in "OUS":
        exact = _parsed(values, where)
    else:
        raise RequestError(f"{where((0,) * values.ndim)}: values of type {values.dtype} are not numbers")
    good = np.abs(exact) <= _FLOAT32  # False for NaN
    if not good.all():
        index = tuple(np.argwhere(~good)[0])
        value = exact[index]
        why = "is too large for 32-bit floats" if np.isfinite(value) else "is not a finite number"
        raise RequestError(f"{where(index)}: {value} {why}")
    return exact.astype(np.float32)


def _parsed(values: Array, where: Callable[[Sequence[int]], str]) -> npt.NDArray[np.float64]:
    try:
        return values.astype(np.float64)
    except (ValueError, TypeError):
        for index, value in np.ndenumerate(values):
            try:
                float(value)
            except (ValueError, TypeError):
                empty = value is None or (isinstance(value, str) and not value.strip())
                said = "the value is missing" if empty else f"{shown(value)} is not a number"
                raise RequestError(f"{where(index)}: {said}") from None
        raise


def samples_of_tables(
    tables: Sequence[Table], target: str | Sequence[str] | None
) -> tuple[list[Samples], list[Samples] | None]:
    """Inputs and targets of every table, and its test rows where a column `split` says ``train`` or ``test``.

    Args:
        tables: one per client; all need the same columns, in any order.
        target: the target column(s); by default the column ``target``, else the last one.
    """
    first = tables[0]
    titles = [title for title in first.columns if not _says_split(first, title)]
    wanted = (
        (target,) if isinstance(target, str) else tuple(target or ("target" if "target" in titles else titles[-1],))
    )
    for name in wanted:
        if name not in titles:
            raise RequestError(f"{first.source} has no target column '{name}'; its columns are {', '.join(titles)}")
    inputs = tuple(title for title in titles if title not in wanted)
    if not inputs:
        raise RequestError(f"{first.source} has no column beside the target '{', '.join(wanted)}' (comma-separated?)")
    has_split = len(titles) < len(first.columns)
    fit: list[Samples] = []
    held: list[Samples] = []
    for table in tables:
        for title in first.columns:
            if title not in table.columns:
                raise RequestError(f"{table.source} has no column '{title}', which {first.source} has")
        for title in table.columns:
            if title not in first.columns:
                raise RequestError(f"{table.source} has a column '{title}', which {first.source} lacks")
        whole = _samples(table, inputs, wanted)
        is_test = _test_rows(table) if has_split else np.zeros(len(table.rows), np.bool_)
        fit.append(_rows(whole, ~is_test))
        held.append(_rows(whole, is_test))
    return fit, held if has_split else None


def _samples(table: Table, inputs: tuple[str, ...], wanted: tuple[str, ...]) -> Samples:
    if len(table.rows) == 0:
        raise RequestError(f"{table.source} has no rows: every client needs at least one sample")
    empty = np.zeros((0, 0))
    blank = Samples(table.name, table.source, empty, empty, inputs, wanted, table.rows, table.unit)

    def column(position: int) -> npt.NDArray[np.float32]:
        return numbers(table.columns[inputs[position]], lambda index: blank.place((index[0], position)))

    x = np.stack([column(position) for position in range(len(inputs))], axis=1)
    y = np.stack([table.columns[title] for title in wanted], axis=1) if len(wanted) > 1 else table.columns[wanted[0]]
    return Samples(table.name, table.source, x, y, inputs, wanted, table.rows, table.unit)


def _rows(samples: Samples, mask: npt.NDArray[np.bool_]) -> Samples:
    numbered = np.arange(len(mask)) if samples.rows is None else samples.rows
    return Samples(
        samples.name,
        samples.source,
        samples.x[mask],
        samples.y[mask],
        samples.columns,
        samples.targets,
        numbered[mask],
        samples.unit,
    )


def _says_split(table: Table, title: str) -> bool:
    """Whether a column is the optional `split` column: of that name, and holding words."""
    return (
        title == "split" and table.columns[title].dtype.kind in "OUS" and "train" in set(table.columns[title].tolist())
    )


def _test_rows(table: Table) -> npt.NDArray[np.bool_]:
    words = table.columns["split"].astype(str)
    wrong = np.flatnonzero((words != "train") & (words != "test"))
    if len(wrong):
        at = "line" if table.unit == "line" else "row"
        raise RequestError(
            f"{table.source} {at} {table.rows[wrong[0]]}, column 'split': {shown(words[wrong[0]])} is not train or test"
        )
    return np.asarray(words == "test")
