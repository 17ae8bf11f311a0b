"""Write the pages that the code itself knows best: `make docs`. A test fails when they are out of date."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel

from panacea.cli.attacking import kinds, suits
from panacea.cli.datasets import card_lines
from panacea.cli.show import FACTS, UNIT
from panacea.data.registry import dataset_names, find_dataset
from panacea.experiment.config import key_help
from panacea.experiment.reproduce import entry_names, find_entry
from panacea.experiment.reproduce.entry import Block
from panacea.experiment.table import markdown_table as table
from panacea.graphs.keys import GRAPHS, GraphKeys
from panacea.methods import find_method, method_names
from panacea.models import find_model, model_names
from panacea.robustness import AttackKeys, aggregators

HERE = Path(__file__).parent
NOTE = "<!-- written by docs/generate.py (make docs); do not edit -->\n\n"


def fields(model: type[BaseModel], prefix: str, without: Iterable[str] = ()) -> str:
    """The keys of a pydantic model, less some."""
    rows = [
        [f"`{prefix}.{name}`", f"`{field.get_default()}`", field.description or ""]
        for name, field in model.model_fields.items()
        if name not in without
    ]
    return table(["key", "default", "meaning"], rows) if rows else "No parameters.\n"


def methods_page() -> str:
    """Every method: its docstring and its parameters."""
    names = method_names()
    first = [[f"[`{n}`](#{n})", (inspect.getdoc(find_method(n)) or "").partition("\n")[0]] for n in names]
    parts = ["# Methods\n", table(["name", "what it is"], first), f"Where what is kept, and what travels ({UNIT}):\n"]
    facts = [[f"`{n}`", *(str(getattr(find_method(n).facts, key)) for key in FACTS)] for n in names]
    parts.append(table(["name", *FACTS.values()], facts))
    for name in names:
        cls = find_method(name)
        parts.append(f"## {name}\n\n```text\n{inspect.getdoc(cls)}\n```\n")
        parts.append(fields(cls.parameter_model, "method"))
    return "\n".join(parts)


def datasets_page() -> str:
    """Every data set: its card, defaults and keys."""
    names = dataset_names()
    first = [[f"[`{n}`](#{n})", find_dataset(n).summary] for n in names]
    parts = ["# Data sets\n", "[data.md](data.md) says where files go and what there is to see of a data set.\n"]
    parts.append(table(["name", "what it is"], first))
    for name in names:
        entry = find_dataset(name)
        defaults = ", ".join(f"`{key}={getattr(entry.defaults, key)}`" for key in entry.defaults.__dataclass_fields__)
        lines = "\n".join(f"- {line}" for line in card_lines(entry.card))
        parts.append(f"## {name}\n\n{entry.summary}\n\n- source: {entry.source}\n{lines}".rstrip() + "\n")
        parts.append(f"Training defaults: {defaults}\n")
        parts.append(fields(entry.keys, "data"))
    return "\n".join(parts)


def keys_page() -> str:
    """Every top-level key, the graphs and the networks."""
    keys = [[f"`{name}`", f"`{default}`", meaning] for name, default, meaning in key_help()]
    parts = ["# Keys\n", "What `panacea run` and `panacea compare` take, in a YAML file or as `key=value`.\n"]
    parts.append(table(["key", "default", "meaning"], keys))
    parts.append("# Graphs\n\n`graph=NAME` or a file; [graphs.md](graphs.md) explains them. Keys of all choices:\n")
    parts.append(fields(GraphKeys, "graph"))
    for name, choice in GRAPHS.items():
        parts.append(f"## graph={name}\n\n{choice.summary}\n")
        if choice.keys is not GraphKeys:
            parts.append(fields(choice.keys, "graph", without=GraphKeys.model_fields))
    parts.append("# Networks\n\n`model=NAME`; `auto` picks by the task; `package.module:factory` is your own.\n")
    for name in model_names():
        if name != "auto":
            entry = find_model(name)
            parts.append(f"## {name}\n\n{entry.summary}\n\n{fields(entry.options, 'model')}")
    return "\n".join(parts)


def attacks_page() -> str:
    """Every attack and defence: what it does, what it suits, its keys, and the formulas of its module."""
    parts = ["# Attacks and defences\n", "[robustness.md](robustness.md) says how to use them and what is measured.\n"]
    for kind, entries in kinds().items():
        parts.append(f"## {kind.capitalize()}s\n")
        rows = [[f"`{name}`", cls.summary, suits(cls)] for name, cls in entries.items()]
        parts.append(table([f"`{kind}=`", "what it does", "for"], rows))
        common = AttackKeys.model_fields if kind == "attack" else {}
        if common:
            parts += ["Keys of every attack:\n", fields(AttackKeys, "attack")]
        for name, cls in entries.items():
            if set(cls.key_model.model_fields) - set(common):
                parts += [f"Keys of `{name}`:\n", fields(cls.key_model, kind, without=common)]
        pages = dict.fromkeys(sys.modules[cls.__module__].__doc__ for cls in entries.values())
        pages |= {aggregators.__doc__: None} if kind == "defence" else {}
        parts += [f"```text\n{inspect.cleandoc(page).strip()}\n```\n" for page in pages if page]
    return "\n".join(parts)


def reproductions_page() -> str:
    """Every reproduction: its data, methods, times, claims, and what is known about its published numbers."""
    entries = [find_entry(name) for name in entry_names()]
    parts = ["# Reproductions\n", "[reproduce.md](reproduce.md) says how to run them and what a verdict means.\n"]
    rows = [
        [f"[`{e.name}`](#{e.name})", e.title, f"{e.short}: {e.where}", e.time["quick"], e.time["full"]] for e in entries
    ]
    parts.append(table(["name", "what it is", "of", "`--quick`", "in full"], rows))
    for entry in entries:
        parts.append(f"## {entry.name}\n\n{entry.title}. {entry.where} of {entry.paper}: {entry.what}.\n")
        blocks = [_block(block) for block in entry.blocks]
        if blocks:
            parts.append(table(["data", "as", "varied", "where it is not at hand"], blocks))
            methods = ", ".join(f"{row.name} = `{row.method}`" for row in entry.rows)
            parts.append(f"Methods: {methods}.\n")
        lines = [f"claim: {claim.text}" for claim in entry.claims]
        lines += [f"{', '.join(w.rows)} on {', '.join(w.columns)} cannot be right: {w.why}" for w in entry.wrong]
        parts.append("\n".join(f"- {line}" for line in [*lines, *entry.notes]) + "\n")
    return "\n".join(parts)


def _block(block: Block) -> list[str]:
    varied = "" if block.axis is None else f"`{block.axis.key}` = {', '.join(map(str, block.axis.values))}"
    other = "not run" if block.stand_in is None else f"stand-in `{block.stand_in.data}`: {block.stand_in.why}"
    return [block.name, f"`{block.data}`", varied, "" if block.data == "fl60" else other]


PAGES = {
    "methods.md": methods_page, "datasets.md": datasets_page, "keys.md": keys_page, "attacks.md": attacks_page,
    "reproductions.md": reproductions_page,
}  # fmt: skip

if __name__ == "__main__":
    for file, make in PAGES.items():
        (HERE / file).write_text(NOTE + make(), encoding="utf-8")
        print(f"written: docs/{file}")
