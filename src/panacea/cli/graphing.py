"""`panacea graphs`: the choices of `graph=`, and what one of them gives on a data set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.table import Table

from panacea.cli.arguments import flat_keys
from panacea.cli.show import console, field_rows, print_fields
from panacea.errors import RequestError, unknown
from panacea.graphs.keys import FILE, GRAPHS, GraphKeys, find_graph

__all__ = ["graphs_command"]

_OTHER_KEYS = ("data", "graph", "seed", "novel")

_WORDS = {
    "nodes": "clients",
    "edges": "edges",
    "directed": "directed",
    "weighted": "weighted",
    "density": "density",
    "components": "connected parts",
    "isolated": "clients without neighbours",
    "degree_min": "neighbours, fewest",
    "degree_mean": "neighbours, mean",
    "degree_max": "neighbours, most",
    "rank": "rank of averaging over neighbours and oneself",
    "homophily": "homophily of labels or mean targets (0: links say nothing)",
    "trained": "clients in training",
    "novel": "novel clients",
    "cut_off": "training clients whose neighbours are all novel",
}


def graphs_command(arguments: list[str], out: Path | None, *, as_json: bool) -> None:
    """List the choices, explain one, or show what a request gives."""
    if arguments and arguments[0] == "show":
        _show(arguments[1:], out, as_json=as_json)
        return
    if out is not None:
        raise RequestError("--out is for `panacea graphs show DATA`")
    if len(arguments) > 1:
        raise RequestError(f"'{arguments[1]}': `panacea graphs` takes one name, or `show DATA [key=value ...]`")
    if arguments:
        _explain(arguments[0], as_json=as_json)
    else:
        _list(as_json=as_json)


def _own(name: str) -> list[str]:
    return [key for key in GRAPHS[name].keys.model_fields if key not in GraphKeys.model_fields]


def _list(*, as_json: bool) -> None:
    if as_json:
        print(json.dumps({name: choice.summary for name, choice in GRAPHS.items()}))  # noqa: T201
        return
    table = Table(box=None, padding=(0, 1))
    for column in ("graph=", "what it is", "keys of its own"):
        table.add_column(column, overflow="fold")
    for name, choice in GRAPHS.items():
        table.add_row(name, choice.summary, ", ".join(f"graph.{key}" for key in _own(name)))
    console().print(table)
    print_fields("\nkeys of all, applied in this order", "graph", GraphKeys)
    print("\npanacea graphs NAME explains one; panacea graphs show DATA graph=NAME shows it on a data set")  # noqa: T201


def _explain(name: str, *, as_json: bool) -> None:
    if name != FILE and name not in GRAPHS:
        raise unknown("graph", name, [*GRAPHS, "show"])
    choice = GRAPHS[name]
    if as_json:
        content = {"name": name, "summary": choice.summary, "keys": field_rows(choice.keys)}
        print(json.dumps(content))  # noqa: T201
        return
    print(f"{name}: {choice.summary}\n")  # noqa: T201
    print_fields("keys", "graph", choice.keys)


def _show(arguments: list[str], out: Path | None, *, as_json: bool) -> None:
    flat = _request(arguments)
    from panacea.cli.progress import say  # noqa: PLC0415
    from panacea.data.load import load_keys, resolve_keys  # noqa: PLC0415
    from panacea.data.picture import graph_picture  # noqa: PLC0415
    from panacea.experiment.config import build_config  # noqa: PLC0415
    from panacea.experiment.relations import graph_summary, relate, resolve_graph  # noqa: PLC0415

    config = build_config({"method": "fedavg", **flat})
    find_graph(config.graph.name)
    keys = resolve_graph(config.graph, config.seed)
    data = resolve_keys(config.data.name, config.data.keys, config.seed)
    given = load_keys(config.data.name, data, config.novel)
    federation, section = relate(given, config.graph.name, keys)
    for note in federation.notes:
        say(f"note: {note}")
    summary = graph_summary(federation)
    if summary is None:
        raise RequestError(f"data={config.data.name} has no relation graph; choose one, for example graph=knn")
    if out is not None:
        graph_picture(federation, out)
    if as_json:
        about = {"data": config.data.name, "partial": federation.partial}
        links = {"name": section.name, **section.keys}
        print(json.dumps({**about, "graph": links, **summary.to_dict()}))  # noqa: T201
        return
    table = Table(title=f"{federation.title}, graph={config.graph.name}", title_justify="left", box=None)
    table.add_column("what")
    table.add_column("value", justify="right")
    for key, value in summary.to_dict().items():
        table.add_row(_WORDS[key], _shown(value))
    console().print(table)
    if out is not None:
        say(f"drawn: {out}")


def _request(arguments: list[str]) -> dict[str, Any]:
    """`DATA [key=value ...]` as flat keys; only those that concern data and graph."""
    names = [argument for argument in arguments if "=" not in argument]
    if len(names) > 1:
        raise RequestError(f"'{names[1]}': `panacea graphs show` takes one data set, then key=value")
    flat = flat_keys([argument for argument in arguments if "=" in argument])
    if names and "data" in flat:
        raise RequestError(f"data is given twice: {names[0]} and {flat['data']}")
    if names:
        flat["data"] = names[0]
    if "data" not in flat:
        raise RequestError("data is missing; for example: panacea graphs show fl60 graph=knn")
    wrong = [key for key in flat if key.partition(".")[0] not in _OTHER_KEYS]
    if wrong:
        raise unknown("key", wrong[0], [*_OTHER_KEYS, "data.*", "graph.*"])
    return flat


def _shown(value: bool | int | float | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
