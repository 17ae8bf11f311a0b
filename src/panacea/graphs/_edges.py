"""Edges as users write them: pairs of names or positions, with a weight or without."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from panacea.core.values import is_frame, shown
from panacea.errors import RequestError, nearest
from panacea.graphs.client_graph import ClientGraph

__all__ = ["Edges", "Found", "Row", "graph_of_pairs", "graph_of_rows", "wrong_size"]

Edges: TypeAlias = Iterable[Sequence[Any]] | npt.NDArray[Any]
"""Pairs (a, b) or triples (a, b, weight) of client names or positions; a DataFrame of such columns will do."""

Found: TypeAlias = tuple[ClientGraph, tuple[str, ...]]
"""A graph and what a user should know about it."""

Row: TypeAlias = tuple[str, tuple[object, ...]]
"""Where an edge is written, and what is written there."""


def graph_of_pairs(edges: Edges, names: Sequence[str], *, directed: bool = False) -> Found:
    """A graph from pairs or triples; strings are names of clients, integers their positions."""
    table: Any = edges
    pairs = zip(*(table[key] for key in table.columns), strict=True) if is_frame(table) else iter(table)
    rows: list[Row] = []
    for i, pair in enumerate(pairs):
        if isinstance(pair, str) or not hasattr(pair, "__len__") or len(pair) not in (2, 3):
            raise RequestError(f"edge {i} (from 0): needs two clients and possibly a weight, not {pair!r}")
        rows.append((f"edge {i} (from 0)", tuple(pair)))
    return graph_of_rows(rows, names, "edges", directed=directed)


def graph_of_rows(
    rows: Sequence[Row], names: Sequence[str], source: str, *, directed: bool, text: bool = False
) -> Found:
    """A graph from rows (where, (end, end[, weight])).

    With `text` all ends are words: all are names of clients, or all are positions from 0; where both would do they
    are names.
    """
    numbered = {name: i for i, name in enumerate(names)}
    given = [str(end) for _, row in rows for end in row[:2]] if text else []
    whole = all(end.isdecimal() and len(end) < 19 for end in given)  # longer ones are no position in any list
    by_position = text and whole and not all(end in numbered for end in given)
    ends = [[_position(int(str(e)) if by_position else e, numbered, where) for e in row[:2]] for where, row in rows]
    seen: dict[tuple[int, int], str] = {}
    weights: list[float] = []
    for (where, row), (a, b) in zip(rows, ends, strict=True):
        pair = (a, b) if directed or a < b else (b, a)
        if a != b and pair in seen:
            between = f"from '{names[a]}' to '{names[b]}'" if directed else f"between '{names[a]}' and '{names[b]}'"
            raise RequestError(f"{where}: the edge {between} is given twice (first at {seen[pair]})")
        seen[pair] = where
        weight = _number(row[2]) if len(row) == 3 else 1.0
        if weight is None or not weight > 0:
            raise RequestError(f"{where}: weight {shown(row[2])} is not a positive number")
        weights.append(weight)
    return ClientGraph.from_edges(
        len(names), np.asarray(ends, np.int64).reshape(-1, 2), weights, source, directed=directed
    )


def wrong_size(source: str, nodes: int, clients: int) -> RequestError:
    """The error for a graph over another number of clients."""
    return RequestError(f"{source}: the graph has {nodes} nodes but there are {clients} clients")


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


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
