"""Writing files so that a kill at any moment leaves the old one or the new one, never half of one."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["append_line", "fsync_folder", "json_line", "read_lines", "write_atomically", "write_csv", "write_json"]


def fsync_folder(folder: Path) -> None:
    """Make renames in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write beside the file, flush to disk, rename over it."""
    data = content.encode() if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    fsync_folder(path.parent)


def json_line(values: Mapping[str, Any]) -> str:
    """One object on one line; the same values always give the same bytes."""
    return json.dumps(values, allow_nan=False) + "\n"


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """A readable JSON file, atomically."""
    write_atomically(path, json.dumps(values, indent=2, allow_nan=False) + "\n")


def append_line(path: Path, values: Mapping[str, Any]) -> None:
    """Add a line to a log; a checkpoint makes it durable later."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json_line(values))


def read_lines(path: Path, until: int | None = None) -> list[dict[str, Any]]:
    """The whole lines of a log, none if there is no file; those up to a round, if one is given.

    A kill may have left half a line at the end, which does not count.
    """
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    lines = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return [line for line in lines if until is None or line["round"] <= until]


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A CSV file, atomically; None and NaN become empty cells."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    for row in rows:
        writer.writerow(["" if cell is None or cell != cell else cell for cell in row])  # noqa: PLR0124  (NaN != NaN)
    write_atomically(path, text.getvalue())
