"""`panacea attacks`: what malicious clients can do, and what a server can do about it."""

from __future__ import annotations

import inspect
import json
import re
import sys
from typing import Any

from rich.table import Table

from panacea.cli.show import console, field_rows, print_fields
from panacea.errors import unknown
from panacea.robustness import ATTACKS, DEFENCES, Attack, Guard, aggregators

__all__ = ["explained", "kinds", "show_attacks", "suits"]

_TASKS = {"any": "every task", "classification": "classification", "amounts": "regression, forecasting"}
_HOW = (
    "attack=NAME attack.ratio=0.3 defence=NAME are keys of `panacea run` and `panacea compare`;\n"
    "attack.ratio=0..0.5:0.1 in `panacea compare` gives a curve for every method. panacea attacks NAME explains one"
)


def kinds() -> dict[str, dict[str, type[Attack] | type[Guard]]]:
    """All attacks and all defences by name; `none` is neither."""
    tables: dict[str, dict[str, Any]] = {"attack": ATTACKS, "defence": DEFENCES}
    return {kind: {name: cls for name, cls in table.items() if name != "none"} for kind, table in tables.items()}


def suits(cls: type[Attack] | type[Guard]) -> str:
    """What it can be used with."""
    if issubclass(cls, Attack):
        return _TASKS[cls.tasks]
    return "methods that average" if cls.averages_only else "every method"


def explained(cls: type[Attack] | type[Guard]) -> str:
    """What its own docstring says, or else the lines about it in those of the modules that define it, or all of them.

    >>> explained(ATTACKS["sign_flip"])
    "sign_flip      D' = -D"
    """
    own = inspect.getdoc(cls) or ""
    if "See the module" not in own:
        return own
    pages = [sys.modules[cls.__module__].__doc__ or ""]
    pages += [aggregators.__doc__ or ""] if issubclass(cls, Guard) else []
    return "\n".join(part for page in pages if (part := _part(page, cls.name))) or pages[0].strip()


def _part(page: str, name: str) -> str:
    """The entry of a name in a list of indented lines ``name, other name   what it does``, with its continuations."""
    found: list[str] = []
    inside = False
    for line in page.splitlines():
        indent = len(line) - len(line.lstrip())
        if indent == 4:
            inside = name in re.split(r",\s*", re.split(r"\s{2,}", line.strip())[0])
        elif indent < 4:
            inside = False
        if inside:
            found.append(line[4:].rstrip())
    return "\n".join(found)


def show_attacks(name: str | None, *, as_json: bool) -> None:
    """The registries of attacks and defences, or one of their entries."""
    found = kinds()
    if name is None:
        _list(found, as_json)
        return
    every = {one: (kind, cls) for kind, table in found.items() for one, cls in table.items()}
    if name not in every:
        raise unknown("attack or defence", name, every)
    kind, cls = every[name]
    if as_json:
        print(json.dumps({"name": name, "kind": kind, **_record(cls), "doc": explained(cls)}))  # noqa: T201
        return
    print(f"{name}: {cls.summary}\n\n{explained(cls)}\n\n{kind}, for {suits(cls)}\n")  # noqa: T201
    if cls.key_model.model_fields:
        print_fields("keys", kind, cls.key_model)


def _record(cls: type[Attack] | type[Guard]) -> dict[str, Any]:
    return {"summary": cls.summary, "for": suits(cls), "keys": field_rows(cls.key_model)}


def _list(found: dict[str, dict[str, type[Attack] | type[Guard]]], as_json: bool) -> None:
    if as_json:
        content = {f"{kind}s": {name: _record(cls) for name, cls in table.items()} for kind, table in found.items()}
        print(json.dumps(content))  # noqa: T201
        return
    for kind, entries in found.items():
        last = kind == "defence"
        table = Table(box=None, padding=(0, 1), caption=_HOW if last else None, caption_justify="left")
        table.add_column(kind, no_wrap=True)
        table.add_column("what it does", overflow="fold")
        table.add_column("for", overflow="fold")
        for name, cls in entries.items():
            table.add_row(name, cls.summary, suits(cls))
        console().print(table)
        if not last:
            print()  # noqa: T201
