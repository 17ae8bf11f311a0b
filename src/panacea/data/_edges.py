"""Edges as users write them: pairs of names or positions, with a weight or without."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from panacea.data._samples import is_frame, shown
from panacea.errors import RequestError, nearest
from panacea.graphs import ClientGraph

__all__ = ["Edges", "graph_of_edges", "graph_of_file"]

Edges: TypeAlias = Iterable[Sequence[Any]] | npt.NDArray[Any]
"""Pairs (a, b) or triples (a, b, weight) of client names or positions; a DataFrame of such columns will do."""

Row: TypeAlias = tuple[str, tuple[object, ...]]  # where it is, what it holds


def graph_of_edges(edges: Edges, names: Sequence[str]) -> tuple[ClientGraph, tuple[str, ...]]:
    """A graph from pairs or triples; strings are names of clients, integers their positions."""
    table: Any = edges
    pairs = zip(*(table[key] for key in table.columns), strict=True) if is_frame(table) else iter(table)
    rows: list[Row] = []
    for i, pair in enumerate(pairs):
        if isinstance(pair, str) or not hasattr(pair, "__len__") or len(pair) not in (2, 3):
            raise RequestError(f"edge {i} (from 0): needs two clients and possibly a weight, not {pair!r}")
        rows.append((f"edge {i} (from 0)", tuple(pair)))
    numbered = {name: i for i, name in enumerate(names)}
    ends = [[_position(end, numbered, where) for end in row[:2]] for where, row in rows]
    return _graph(rows, ends, names, "edges")


def graph_of_file(path: Path, names: Sequence[str]) -> tuple[ClientGraph, tuple[str, ...]]:
    """A graph from a CSV file with the header ``source,target`` or ``source,target,weight``.

    All ends are names of clients, or all are positions from 0; where both would do they are names.
    """
    try:
        reader = csv.reader(io.StringIO(path.read_text(encoding="utf-8-sig")))
    except UnicodeDecodeError:
        raise RequestError(f"{path.name}: not a text file in UTF-8") from None
    header = [cell.strip().lower() for cell in next(reader, [])]
    if header not in (["source", "target"], ["source", "target", "weight"]):
        raise RequestError(
            f"{path.name} line 1: the header must be source,target or source,target,weight, not {','.join(header)!r}"
        )
    rows: list[Row] = []
    for cells in reader:
        where = f"{path.name} line {reader.line_num}"
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) != len(header):
            raise RequestError(f"{where}: {len(cells)} values, the header has {len(header)}")
        rows.append((where, tuple(cell.strip() for cell in cells)))
    numbered = {name: i for i, name in enumerate(names)}
    given = [str(end) for _, row in rows for end in row[:2]]
    by_position = not all(end in numbered for end in given) and all(end.isdecimal() for end in given)
    ends = [[_position(int(str(e)) if by_position else e, numbered, where) for e in row[:2]] for where, row in rows]
    return _graph(rows, ends, names, path.name)


def _position(end: object, numbered: dict[str, int], where: str) -> int:
    """The position of a client that is named or numbered."""
    if isinstance(end, str):
        if end in numbered:
            return numbered[end]
        close = nearest(end, numbered)
        raise RequestError(f"{where} names an unknown client '{end}'" + (f"; did you mean '{close}'?" if close else ""))
    number = _number(end)
    if number is None or number != round(number) or not 0 <= number < len(numbered):
        raise RequestError(f"{where} names an unknown client {end}; positions are 0..{len(numbered) - 1}")
    return int(number)


def _graph(
    rows: Sequence[Row], ends: Sequence[Sequence[int]], names: Sequence[str], source: str
) -> tuple[ClientGraph, tuple[str, ...]]:
    seen: dict[tuple[int, int], str] = {}
    weights: list[float] = []
    for (where, row), (a, b) in zip(rows, ends, strict=True):
        pair = (min(a, b), max(a, b))
        if a != b and pair in seen:
            raise RequestError(
                f"{where}: the edge between '{names[a]}' and '{names[b]}' is given twice (first at {seen[pair]})"
            )
        seen[pair] = where
        weight = _number(row[2]) if len(row) == 3 else 1.0
        if weight is None or not (math.isfinite(weight) and weight > 0):
            raise RequestError(f"{where}: weight {shown(row[2])} is not a positive number")
        weights.append(weight)
    return ClientGraph.from_edges(len(names), np.asarray(ends, np.int64).reshape(-1, 2), weights, source)


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
