"""`panacea reproduce --list`: what there is, and which of it can be run with the data at hand."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from rich.table import Table

from panacea.cli.show import console
from panacea.data.load import load_keys, resolve_keys
from panacea.errors import PanaceaError
from panacea.experiment.reproduce import Entry, entry_names, find_entry, whereabouts
from panacea.experiment.reproduce.entry import Block

__all__ = ["availability", "show_list"]


def show_list(root: Any, *, as_json: bool) -> None:
    """All reproductions with the state of their data."""
    folder = None if root is None else Path(str(root)).expanduser()
    entries = [find_entry(name) for name in entry_names()]
    if as_json:
        print(json.dumps({"reproductions": [_record(entry, folder) for entry in entries]}))  # noqa: T201
        return
    table = Table(box=None, padding=(0, 1))
    for column in ("name", "what", "data at hand", "quick", "full"):
        table.add_column(column, overflow="fold", no_wrap=column == "name")
    hints: dict[str, None] = {}
    for entry in entries:
        record = _record(entry, folder)
        states = [f"{name}: {state}" for name, state in record["data"].items()]
        what = f"{entry.title} ({entry.short}: {entry.where})"
        table.add_row(entry.name, what, "\n".join(states) or "none needed", entry.time["quick"], entry.time["full"])
        hints |= dict.fromkeys(record["missing"])
    console().print(table, markup=False, highlight=False)
    for hint in hints:
        console().print(f"missing: {hint}", markup=False, highlight=False)


def _record(entry: Entry, root: Path | None) -> dict[str, Any]:
    states = {block.name: availability(block, root) for block in entry.blocks}
    missing = [how for block in entry.blocks if (how := whereabouts(block, root)[1])]
    return {
        "name": entry.name, "title": entry.title, "paper": entry.paper, "where": entry.where, "what": entry.what,
        "data": states, "runnable": not states or any(state != "missing" for state in states.values()),
        "missing": list(dict.fromkeys(missing)), "time": dict(entry.time),
    }  # fmt: skip


def availability(block: Block, root: Path | None) -> str:
    """A word on a block's data: here, generated, PARTIAL ..., stand-in NAME, missing."""
    word, _ = whereabouts(block, root)
    if word == "stand-in" and block.stand_in is not None:
        return f"stand-in {block.stand_in.data}"
    return (_partial(block.data, root) or word) if word == "here" else word


@cache
def _partial(data: str, root: Path | None) -> str:
    """What part of a data set is there; empty if it is whole."""
    try:
        return load_keys(data, resolve_keys(data, {"root": root})).partial
    except PanaceaError:
        return "unreadable"
