"""Speeds of loop detectors: pandas' HDF5 (as DCRNN publishes them), npz or CSV.

A pandas frame in fixed HDF5 format is a group with the columns' names (``axis0``, ``block0_items``), the rows' times
(``axis1``, whole numbers since 1970) and the values (``block0_values [rows, columns]``). Those are plain arrays. The
pickles that such a file may have among its attributes are never looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from panacea.data.reading import npz_arrays
from panacea.data.sources._tables import csv_lines, csv_numbers, csv_rows
from panacea.errors import RequestError

__all__ = ["WEEK", "Speeds", "day_shares", "observed", "read_speeds"]

WEEK = 7 * 288  # five-minute steps
_STEP = 300  # seconds
_NOT_SENSORS = ("", "timestamp", "time", "date", "datetime", "index", "unnamed: 0")  # titles of a column of times

Floats = npt.NDArray[np.float32]
Seconds = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Speeds:
    """What a file holds.

    Attributes:
        values: ``[rows, sensors]`` float32, as they are in the file.
        ids: of the sensors, in the order of the columns.
        seconds: ``[rows]`` since 1970 in local time, or None where the file does not say.
        notes: what a user should know.
        first_line: of the values in a text file; 0 where there are no lines.
    """

    values: Floats
    ids: tuple[str, ...]
    seconds: Seconds | None = None
    notes: tuple[str, ...] = ()
    first_line: int = 0

    def rows(self, count: int) -> Speeds:
        """The first rows only."""
        seconds = None if self.seconds is None else self.seconds[:count]
        return Speeds(self.values[:count], self.ids, seconds, self.notes, self.first_line)


def read_speeds(path: Path, week: bool = False) -> Speeds:
    """Read a file by its suffix; with `week` its first 2,016 rows (of an npz: its own interpolated week, if any)."""
    if path.suffix == ".npz":
        speeds = _read_npz(path, week)
    elif path.suffix == ".h5":
        speeds = _read_h5(path)
    else:
        speeds = _read_csv(path)
    if speeds.values.shape[1] != len(speeds.ids):
        raise RequestError(f"{path}: {speeds.values.shape[1]} columns of speeds, but {len(speeds.ids)} sensors")
    twice = [sensor for sensor in dict.fromkeys(speeds.ids) if speeds.ids.count(sensor) > 1]
    if twice:
        raise RequestError(f"{path}: two columns are sensor '{twice[0]}'")
    if not speeds.values.size:
        raise RequestError(f"{path}: no speeds in it")
    return speeds.rows(WEEK) if week else speeds


def observed(path: Path, speeds: Speeds) -> Floats:
    """``[sensors, rows]``: the speeds with NaN where they are missing, which files write as 0 or leave empty.

    Raises:
        RequestError: a speed is below 0 or infinite; names the sensor and the row.
    """
    values = np.ascontiguousarray(speeds.values.T)
    wrong = (values < 0) | np.isinf(values)
    if wrong.any():
        row, sensor = np.argwhere(wrong.T)[0]
        place = f"line {row + speeds.first_line}" if speeds.first_line else f"row {row} (from 0)"
        raise RequestError(
            f"{path}: sensor '{speeds.ids[sensor]}', {place}: speed {values[sensor, row]:g}; a speed is at least 0, "
            "and 0 where it is missing"
        )
    return np.where(values == 0, np.float32(np.nan), values)


def day_shares(path: Path, seconds: Seconds) -> tuple[Floats, tuple[str, ...]]:
    """The time of day of every row in [0, 1), and a note where rows are missing between two.

    Raises:
        RequestError: times do not increase, or are not five minutes apart as a rule.
    """
    steps = np.diff(seconds)
    late = np.flatnonzero(steps <= 0)
    if len(late):
        raise RequestError(
            f"{path}: row {late[0] + 1} (from 0) is of {_shown(seconds[late[0] + 1])}, not after the row before it"
        )
    if len(steps) and np.median(steps) != _STEP:
        raise RequestError(f"{path}: rows are {np.median(steps) / 60:g} minutes apart; means of 5 minutes are needed")
    jumps = np.flatnonzero(steps != _STEP)
    notes: tuple[str, ...] = ()
    if len(jumps):
        notes = (
            f"{path.name}: time jumps {len(jumps)} time(s), first after row {jumps[0]} ({_shown(seconds[jumps[0]])}); "
            "windows reach across",
        )
    return (seconds % 86_400 / 86_400).astype(np.float32), notes


def _shown(seconds: np.int64) -> str:
    return str(np.datetime64(int(seconds), "s")).replace("T", " ")


def _read_npz(path: Path, week: bool) -> Speeds:
    """The full period of some sensors or the week of all (the two parts of a file), or `speed` and `sensor_ids`."""
    pairs = [("speed_full_subset", "full_subset_ids"), ("speed", "sensor_ids")]
    if week:
        pairs.insert(0, ("speed_week_interpolated", "sensor_ids"))
    found = npz_arrays(path, (), ("us101_ids", *(name for pair in pairs for name in pair)))
    for values, ids in pairs:
        if values in found and ids in found:
            notes = []
            if values == "speed_week_interpolated":
                notes.append(f"{path.name}: missing values of this week were interpolated by its publisher")
            elif "us101_ids" in found and values == "speed_full_subset":
                count = found["us101_ids"].size
                notes.append(f"{path.name}: {count} sensors of US 101 have no values in the train span: left out")
            speeds = _matrix(path, values, found[values])
            return Speeds(speeds, _ids(path, ids, found[ids]), notes=tuple(notes))
    wanted = " or ".join(" and ".join(pair) for pair in pairs)
    raise RequestError(f"{path}: needs the arrays {wanted}")


def _read_csv(path: Path) -> Speeds:
    """A header of sensor ids, perhaps after a column of times."""
    lines = csv_lines(path)
    (header,) = csv_rows(path, lines[:1])
    if not header:
        raise RequestError(f"{path} line 1 is empty; it needs the ids of the sensors")
    timed = header[0].lower() in _NOT_SENSORS
    ids = tuple(header[timed:])
    if not all(ids):
        raise RequestError(f"{path} line 1: column {header.index('', 1) + 1} has no sensor id")
    values = csv_numbers(path, lines[1:], 2, ids, skip=int(timed))
    seconds = _seconds(path, [line.partition(",")[0] for line in lines[1:]]) if timed else None
    return Speeds(values, ids, seconds, first_line=2)


def _seconds(path: Path, texts: Sequence[str]) -> Seconds:
    seconds = np.zeros(len(texts), np.int64)
    for row, text in enumerate(texts):
        try:
            time = datetime.fromisoformat(text.strip().strip('"')).replace(
                tzinfo=UTC
            )  # local time: no zone to think of
            seconds[row] = int(time.timestamp())
        except ValueError:
            raise RequestError(f"{path} line {row + 2}: '{text}' is not a time such as 2012-03-01 00:05:00") from None
    return seconds


def _read_h5(path: Path) -> Speeds:
    try:
        import h5py  # noqa: PLC0415  (optional)
    except ImportError:
        raise RequestError(f"{path}: reading HDF5 needs h5py; run `pip install h5py`") from None
    try:
        with h5py.File(path, "r") as file:
            groups = {name: group for name in file if isinstance(group := file.get(name), h5py.Group)}
            frames = {name: group for name, group in groups.items() if "block0_values" in group}
            if len(frames) != 1:
                there = ", ".join(file) or "nothing"
                raise RequestError(f"{path}: needs one pandas frame in fixed format (group 'df'), found {there}")
            (name,) = frames
            return _frame(path, name, frames[name])
    except RequestError:
        raise
    except Exception as error:  # a part may be missing, damaged, of another kind, or too large
        raise RequestError(f"{path}: not a readable HDF5 file ({error})".splitlines()[0]) from None


def _frame(path: Path, name: str, group: Any) -> Speeds:
    """The parts of a frame; they are h5py's data sets, which are untyped."""
    absent = [part for part in ("axis0", "axis1") if part not in group]
    if absent:
        raise RequestError(f"{path}: group '{name}' has no '{absent[0]}'; it is no pandas frame in fixed format")
    if "block1_values" in group:
        raise RequestError(f"{path}: group '{name}' has columns of several types; all must be speeds")
    stored, times = group["block0_values"], group["axis1"]
    ids = _ids(path, f"{name}/axis0", group["axis0"][...])
    if "block0_items" in group and _ids(path, f"{name}/block0_items", group["block0_items"][...]) != ids:
        raise RequestError(f"{path}: '{name}/block0_items' are not the sensors of '{name}/axis0'")
    if stored.shape != (times.size, len(ids)):
        raise RequestError(
            f"{path}: '{name}/block0_values' is {list(stored.shape)}, not [{times.size} times, {len(ids)} sensors]"
        )
    if times.dtype.kind != "i" or times.ndim != 1:
        raise RequestError(f"{path}: '{name}/axis1' is {times.dtype}, not times as whole numbers since 1970")
    values = _matrix(path, f"{name}/block0_values", stored)
    return Speeds(values, ids, _since_1970(times[...]))


def _since_1970(times: npt.NDArray[np.int64]) -> Seconds:
    """Seconds from nanoseconds, or from whatever unit gives a year that is not absurd: pandas has several."""
    largest = int(np.abs(times).max(initial=0))
    unit = next((unit for unit in (1, 1_000, 1_000_000) if largest < unit * 10**11), 1_000_000_000)
    return times.astype(np.int64) // unit


def _matrix(path: Path, name: str, array: Any) -> Floats:
    """A matrix of speeds as float32, from an array or a data set in a file."""
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        raise RequestError(f"{path}: '{name}' is {array.dtype} {list(array.shape)}, not numbers [rows, sensors]")
    with np.errstate(over="ignore"):  # becomes infinite, and is refused as such
        return np.asarray(array[...], np.float32)


def _ids(path: Path, name: str, array: npt.NDArray[Any]) -> tuple[str, ...]:
    """Ids of sensors, stored as text, bytes or whole numbers."""
    if array.ndim != 1 or array.dtype.kind not in "USiu":
        raise RequestError(f"{path}: '{name}' is {array.dtype} {list(array.shape)}, not one id per sensor")
    return tuple(item.decode("latin-1") if isinstance(item, bytes) else str(item) for item in array.tolist())
