"""Tables of numbers in CSV files, plain or gzipped: one column per sensor, one line per step."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from panacea.data.reading import file_text
from panacea.errors import RequestError

__all__ = ["csv_lines", "csv_numbers", "csv_places", "csv_rows", "find_file"]

Floats = npt.NDArray[np.float32]


def find_file(folder: Path, names: Sequence[str]) -> Path | None:
    """The first of these files that a folder has; upper case and ``_`` for ``-`` are the same to it."""
    found = {path.name.lower().replace("_", "-"): path for path in sorted(folder.iterdir()) if path.is_file()}
    return next((found[name] for name in names if name in found), None)


def csv_lines(path: Path) -> list[str]:
    """The lines of a file, without empty ones at its end; an empty file is an error."""
    lines = file_text(path).rstrip().splitlines()
    if not lines:
        raise RequestError(f"{path} is empty")
    return lines


def csv_rows(path: Path, lines: Sequence[str]) -> list[list[str]]:
    """The cells of lines, without blanks around them; a cell beyond Python's limit is the file's fault."""
    reader = csv.reader(lines)
    try:
        return [[cell.strip() for cell in row] for row in reader]
    except csv.Error as error:
        raise RequestError(f"{path} line {reader.line_num}: {error}") from None


def csv_numbers(path: Path, lines: Sequence[str], first: int, columns: Sequence[str], skip: int = 0) -> Floats:
    """``[lines, columns]``: the cells of lines without a header; NaN where a cell is empty.

    Args:
        path: named in messages.
        lines: what follows the header.
        first: the number of the first of them in the file.
        columns: names of the columns.
        skip: columns before these that are not read.

    Raises:
        RequestError: a line is too short or too long, or a cell is no number; names the line and the column.
    """
    width = skip + len(columns)
    for number, line in enumerate(lines, first):
        if line.count(",") != width - 1:
            raise RequestError(f"{path} line {number}: {line.count(',') + 1} values, {width} are needed")
    if not lines:
        return np.zeros((0, len(columns)), np.float32)
    try:
        return np.loadtxt(
            lines, np.float32, delimiter=",", ndmin=2, comments=None, quotechar='"', usecols=range(skip, width)
        )
    except ValueError:  # an empty cell, or a fault
        rows = [_cells(path, line, number, columns, skip) for number, line in enumerate(lines, first)]
        return np.array(rows, np.float32).reshape(len(lines), len(columns))


def _cells(path: Path, line: str, number: int, columns: Sequence[str], skip: int) -> list[float]:
    values = []
    for title, cell in zip(columns, line.split(",")[skip:], strict=True):
        text = cell.strip().strip('"')
        try:
            values.append(float(text.replace("_", "x")) if text else math.nan)  # Python reads 1_0 as 10
        except ValueError:
            raise RequestError(f"{path} line {number}, column '{title}': '{text}' is not a number") from None
    return values


def csv_places(path: Path) -> dict[str, tuple[float, float]]:
    """Latitude and longitude of sensors by their ids.

    Columns ``sensor_id`` (or ``ID``), ``latitude`` and ``longitude`` where there is a header, else the last three.
    """
    rows = csv_rows(path, csv_lines(path))
    titles = [cell.lower() for cell in rows[0]]
    wanted, first = [-3, -2, -1], 0
    if "latitude" in titles:
        try:
            name = "sensor_id" if "sensor_id" in titles else "id"
            wanted, first = [titles.index(name), titles.index("latitude"), titles.index("longitude")], 1
        except ValueError:
            raise RequestError(f"{path} line 1: needs columns sensor_id, latitude and longitude") from None
    places: dict[str, tuple[float, float]] = {}
    for number, row in enumerate(rows[first:], first + 1):
        try:
            sensor, latitude, longitude = (row[column] for column in wanted)
            place = float(latitude), float(longitude)
        except (ValueError, IndexError):
            raise RequestError(f"{path} line {number}: needs a sensor's id, latitude and longitude") from None
        if not (abs(place[0]) <= 90 and abs(place[1]) <= 180):
            raise RequestError(f"{path} line {number}: {latitude}, {longitude} is no latitude and longitude")
        if places.setdefault(sensor, place) != place:
            raise RequestError(f"{path} line {number}: another place of sensor '{sensor}'")
    return places
