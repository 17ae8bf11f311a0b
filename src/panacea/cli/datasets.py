"""`panacea datasets`: the list, the card of one, its picture, its floors, and data from installed packages."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from rich.table import Table

from panacea.cli.progress import say
from panacea.cli.show import console, field_rows, print_fields
from panacea.data.describe import describe
from panacea.data.fetch import fetch
from panacea.data.load import load_keys, resolve_keys
from panacea.data.paths import MissingFilesError, data_root, find_data_dir
from panacea.data.registry import Card, DatasetEntry, dataset_names, find_dataset
from panacea.errors import RequestError, unknown
from panacea.experiment.keys import parse_overrides

__all__ = ["card_lines", "datasets_command"]

_ACTIONS = ("floors", "fetch")

_CARD_WORDS = {
    "licence": "licence",
    "citation": "cite",
    "used_in": "used in",
    "splits": "splits",
    "get": "how to get it",
    "features": "features of clients",
}


def datasets_command(
    arguments: list[str], picture: Path | None, seeds: str | None, csv: Path | None, *, as_json: bool, quiet: bool
) -> None:
    """Do what is asked for."""
    words = [argument for argument in arguments if "=" not in argument]
    action = words.pop(0) if words and words[0] in _ACTIONS else ""
    keys = _data_keys([argument for argument in arguments if "=" in argument])
    _check(action, words, keys, {"--picture": picture, "--seeds": seeds, "--csv": csv})
    if not words:
        _list(as_json=as_json)
        return
    name = words[0]
    if action == "fetch":
        _fetch(name, keys, as_json=as_json, quiet=quiet)
        return
    if action == "floors":
        from panacea.cli.flooring import show_floors  # noqa: PLC0415

        show_floors(name, keys, seeds, csv, as_json=as_json, quiet=quiet)
    elif picture is not None:
        _draw(name, keys, picture, as_json=as_json, quiet=quiet)
    else:
        _card(find_dataset(name), keys, as_json=as_json)


def _data_keys(arguments: list[str]) -> dict[str, Any]:
    """`data.key=value` arguments without their prefix."""
    flat = parse_overrides(arguments)
    for key in flat:
        if not key.startswith("data."):
            hint = "write the data set's name alone" if key == "data" else f"did you mean data.{key}?"
            raise RequestError(f"'{key}': only data.* keys go with `panacea datasets`; {hint}")
    return {key.removeprefix("data."): value for key, value in flat.items()}


def _check(action: str, words: list[str], keys: dict[str, Any], options: dict[str, object]) -> None:
    """Refuse what does not go together."""
    given = [option for option, value in options.items() if value is not None]
    if words and action != "fetch" and words[0] not in dataset_names():
        raise unknown("data set", words[0], [*dataset_names(), *([] if action else _ACTIONS)])
    if len(words) > 1:
        raise RequestError(f"'{words[1]}': `panacea datasets {action}`".rstrip("` ") + "` takes one data set")
    if not words and (action or keys or given):
        what = f"{action} " if action else ""
        raise RequestError(f"the name of the data set is missing; for example: panacea datasets {what}digits")
    wrong = [option for option in given if (option == "--picture") == bool(action) or action == "fetch"]
    if wrong:
        where = "datasets NAME" if wrong[0] == "--picture" else "datasets floors NAME"
        raise RequestError(f"{wrong[0]} is for `panacea {where}`")


def _list(*, as_json: bool) -> None:
    entries = {name: find_dataset(name) for name in dataset_names()}
    if as_json:
        lines = {name: {"summary": entry.summary, "files": entry.files(None)} for name, entry in entries.items()}
        print(json.dumps(lines))  # noqa: T201
        return
    table = Table(
        box=None,
        padding=(0, 1),
        caption=f"here: in a folder of its name below {data_root()}, or in an installed package; whether it is all "
        "there, the card says\npanacea datasets NAME shows it; panacea datasets floors NAME scores trivial predictors",
        caption_justify="left",
    )
    for column in ("name", "files"):
        table.add_column(column, no_wrap=True)
    table.add_column("what it is", overflow="fold")
    for name, entry in entries.items():
        table.add_row(name, entry.files(None), entry.summary)
    console().print(table)


def _card(entry: DatasetEntry, keys: dict[str, Any], *, as_json: bool) -> None:
    """Everything there is to know; where files are missing, how to get them."""
    request = resolve_keys(entry.name, keys, 0)
    federation, absent = None, None
    try:
        federation = describe(load_keys(entry.name, request))
    except MissingFilesError as error:
        absent = str(error)
    defaults = dataclasses.asdict(entry.defaults)
    if as_json:
        about = {"name": entry.name, "summary": entry.summary, "source": entry.source}
        rows = [{**row, "default": str(row["default"])} for row in field_rows(entry.keys)]
        more = {"card": dataclasses.asdict(entry.card), "defaults": defaults, "keys": rows}
        print(json.dumps({**about, **more, "missing": absent, "federation": federation}))  # noqa: T201
        return
    print(f"{entry.name}: {entry.summary}\nsource: {entry.source}")  # noqa: T201
    print("\n".join(card_lines(entry.card) + _folder(entry, request.root)) + "\n")  # noqa: T201
    if federation is None:
        print(f"not here: {absent}\n")  # noqa: T201
    else:
        _print_numbers(federation, entry.card, request.seed)
    print("training defaults: " + ", ".join(f"{key}={value}" for key, value in defaults.items()) + "\n")  # noqa: T201
    print_fields("keys", "data", entry.keys)


def card_lines(card: Card) -> list[str]:
    """What a card says, a line each; what it does not say has none."""
    values = {**dataclasses.asdict(card), "features": ", ".join(card.features)}
    return [f"{words}: {values[key]}" for key, words in _CARD_WORDS.items() if values[key]]


def _folder(entry: DatasetEntry, root: Path | None) -> list[str]:
    """Where its files are looked for, if it has any."""
    if entry.files(root) not in ("here", "missing"):
        return []
    return [f"folder: {find_data_dir(entry.name, root) or data_root(root) / entry.name}"]


def _print_numbers(numbers: dict[str, Any], card: Card, seed: int) -> None:
    table = Table(title=f"{numbers['title']} as found here, data seed {seed}", title_justify="left", box=None)
    table.add_column("what")
    table.add_column("value", overflow="fold")
    for what, value in _number_rows(numbers, card):
        table.add_row(what, value)
    console().print(table)
    print()  # noqa: T201


def _number_rows(numbers: dict[str, Any], card: Card) -> list[tuple[str, str]]:
    clients = f"{numbers['clients']:,}"
    held = f" ({numbers['novel']:,} of them novel)" if numbers["novel"] else ""
    rows = [("part of the data set", numbers["partial"])] if numbers["partial"] else []
    rows += [
        ("clients", clients + held),
        ("samples", f"{numbers['samples']:,}; per client {_range(numbers['per_client'])}"),
    ]
    rows += [(f"  {split}", f"per client {_range(numbers[split])}") for split in ("train", "val", "test")]
    rows.append(("task", f"{numbers['task']}, scored by {numbers['metric']}"))
    rows.append(("input", _shape(numbers["inputs"])))
    if numbers["classes"]:
        names = ", ".join(numbers["class_names"][:12]) + (", ..." if len(numbers["class_names"]) > 12 else "")
        rows.append(("classes", str(numbers["classes"]) + (f" ({names})" if names else "")))
    else:
        rows.append(("target", f"{_shape(numbers['outputs'])}, scale '{numbers['scale']}'"))
        missing, total = numbers["missing_targets"], numbers["target_values"]
        share = f"{missing:,} of {total:,} ({100 * missing / max(total, 1):.3g} %)" if missing else "none"
        rows.append(("missing target values", share))
    if numbers["groups"]:
        rows.append(("groups", str(numbers["groups"])))
    named = ", ".join(card.features) if len(card.features) == numbers["features"] else ""
    count = f"{numbers['features']} per client"
    rows.append(("features", f"{count}: {named}" if named else count if numbers["features"] else "none"))
    rows.append(("relation graph", _graph(numbers["graph"])))
    return rows + [("note", note) for note in numbers["notes"]]


def _graph(graph: dict[str, Any] | None) -> str:
    if graph is None:
        return "none"
    kind = ("directed" if graph["directed"] else "undirected") + (", weighted" if graph["weighted"] else "")
    alike = "" if graph["homophily"] is None else f", homophily {graph['homophily']:.2f}"
    return (
        f"{graph['edges']:,} edges ({kind}), density {graph['density']:.3g}, {graph['degree_min']} to "
        f"{graph['degree_max']} neighbours (mean {graph['degree_mean']:.3g}), {graph['components']} connected "
        f"part{'s' if graph['components'] > 1 else ''}, {graph['isolated']} without neighbours{alike}"
    )


def _range(numbers: dict[str, float]) -> str:
    if numbers["min"] == numbers["max"]:
        return f"{numbers['min']:,}"
    return f"{numbers['min']:,} to {numbers['max']:,}, median {numbers['median']:,g}"


def _shape(shape: list[int]) -> str:
    return " x ".join(map(str, shape)) or "1 number"


def _draw(name: str, keys: dict[str, Any], picture: Path, *, as_json: bool, quiet: bool) -> None:
    from panacea.data.overview import federation_picture  # noqa: PLC0415
    from panacea.data.picture import picture_path  # noqa: PLC0415

    picture_path(picture)  # before anything is loaded
    federation_picture(load_keys(name, resolve_keys(name, keys, 0)), picture)
    if as_json:
        print(json.dumps({"name": name, "picture": str(picture)}))  # noqa: T201
    elif not quiet:
        print(f"drawn: {picture}")  # noqa: T201


def _fetch(name: str, keys: dict[str, Any], *, as_json: bool, quiet: bool) -> None:
    wrong = [key for key in keys if key != "root"]
    if wrong:
        raise RequestError(f"data.{wrong[0]}: only data.root goes with `panacea datasets fetch`")
    found = fetch(name, keys.get("root"))
    if as_json:
        print(json.dumps({"name": name, **dataclasses.asdict(found), "folder": str(found.folder)}))  # noqa: T201
    elif not quiet:
        files = ", ".join(found.copied or found.files)
        what = f"{files} copied from {found.package}" if found.copied else f"{files} were there already"
        print(f"{found.folder}: {what}, checksums are right")  # noqa: T201
        here = f" data.root={keys['root']}" if "root" in keys else ""
        say(f"next: panacea datasets {name}{here}")
