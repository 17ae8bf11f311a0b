"""One client's file: CSV, Parquet or npz."""

from __future__ import annotations

import csv
import io
import re
import zipfile
from pathlib import Path

import numpy as np

from panacea.data._samples import Array, Samples, Table
from panacea.errors import RequestError

__all__ = ["SUFFIXES", "natural_order", "read_npz", "read_table"]

SUFFIXES = (".csv", ".parquet", ".npz")


def natural_order(path: Path) -> list[tuple[int, int, str]]:
    """A sort key by name in which numbers count as numbers: ``site2`` before ``site10``."""
    parts = re.split(r"(\d+)", path.stem.lower())
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts if part]


def read_table(path: Path, source: str) -> Table:
    """The columns of a CSV file (with a header line) or of a Parquet file."""
    return _read_csv(path, source) if path.suffix == ".csv" else _read_parquet(path, source)


def _read_csv(path: Path, source: str) -> Table:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise RequestError(f"{source}: not a text file in UTF-8") from None
    header = [cell.strip() for cell in next(csv.reader(io.StringIO(text)), [])]
    if not header:
        raise RequestError(f"{source} is empty: it needs a header line and at least one sample")
    if all(_looks_like_number(cell) for cell in header):
        raise RequestError(f"{source} line 1: the header must name the columns, but it holds numbers only")
    twice = [title for title in header if header.count(title) > 1]
    if twice:
        raise RequestError(f"{source} line 1: two columns are called '{twice[0]}'")
    return _fast_csv(path, source, header, text) or _careful_csv(path, source, header, text)


def _fast_csv(path: Path, source: str, header: list[str], text: str) -> Table | None:
    """The common case, numbers only, by NumPy's parser; None where it is not that case."""
    lines = text.rstrip().replace("\r\n", "\n").split("\n")[1:]
    if not lines or any(not line.strip() for line in lines):
        return None
    try:
        values = np.loadtxt(lines, delimiter=",", dtype=np.float64, ndmin=2, comments=None, quotechar='"')
    except ValueError:
        return None
    if values.shape != (len(lines), len(header)):
        return None
    first = next(csv.reader([lines[0]]))
    columns = {title: _typed(values[:, i], first[i]) for i, title in enumerate(header)}
    return Table(path.stem, source, columns, np.arange(2, len(lines) + 2), "line")


def _careful_csv(path: Path, source: str, header: list[str], text: str) -> Table:
    """Cells as text, one by one, for files with words, gaps or faults."""
    reader = csv.reader(io.StringIO(text))
    next(reader)
    cells: list[list[str]] = []
    lines: list[int] = []
    for row in reader:
        if not any(cell.strip() for cell in row) and len(row) <= 1:
            continue  # a blank line
        if len(row) != len(header):
            raise RequestError(f"{source} line {reader.line_num}: {len(row)} values, the header has {len(header)}")
        cells.append([cell.strip() for cell in row])
        lines.append(reader.line_num)
    columns: dict[str, Array] = {
        title: np.array([row[i] for row in cells], dtype=object) for i, title in enumerate(header)
    }
    return Table(path.stem, source, columns, np.asarray(lines, np.int64), "line")


def _typed(values: Array, first: str) -> Array:
    """Integers where all values are whole and the first is written without a point."""
    if first.strip().lstrip("+-").isdecimal() and np.isfinite(values).all() and (values == np.rint(values)).all():
        return values.astype(np.int64)
    return values


def _looks_like_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _read_parquet(path: Path, source: str) -> Table:
    try:
        import pyarrow as pa  # noqa: PLC0415  (optional)
        import pyarrow.parquet as pq  # noqa: PLC0415
    except ImportError:
        raise RequestError(f"{source}: reading Parquet needs pyarrow; run `pip install pyarrow`") from None
    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise RequestError(f"{source}: not a readable Parquet file ({error})".splitlines()[0]) from None
    columns: dict[str, Array] = {}
    for title, column in zip(table.column_names, table.columns, strict=True):
        if title in columns:
            raise RequestError(f"{source}: two columns are called '{title}'")
        if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
            columns[title] = column.to_numpy()  # a null becomes NaN
        else:
            columns[title] = np.asarray(column.to_pylist(), None if pa.types.is_boolean(column.type) else object)
    return Table(path.stem, source, columns, np.arange(table.num_rows), "row")


def read_npz(path: Path, source: str) -> tuple[Samples, Samples | None]:
    """Arrays ``x`` and ``y``, and the test samples where there are ``x_test`` and ``y_test``; never a pickle."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, AttributeError, TypeError) as error:
        raise RequestError(f"{source}: not an npz file of plain arrays ({error})".splitlines()[0]) from None
    allowed = {"x", "y", "x_test", "y_test"}
    wrong = sorted(set(arrays) - allowed)
    missing = [name for name in ("x", "y") if name not in arrays]
    if wrong or missing or ("x_test" in arrays) != ("y_test" in arrays):
        raise RequestError(
            f"{source} holds {', '.join(arrays) or 'nothing'}; it needs x and y, or x, y, x_test and y_test"
        )
    test = None
    if "x_test" in arrays:
        test = Samples(path.stem, source, arrays["x_test"], arrays["y_test"], arrays=("x_test", "y_test"))
    return Samples(path.stem, source, arrays["x"], arrays["y"]), test
