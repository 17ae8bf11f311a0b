"""Write the pages that the code itself knows best: `make docs`. A test fails when they are out of date."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel

from panacea.cli.datasets import card_lines
from panacea.cli.show import FACTS, UNIT
from panacea.data.registry import dataset_names, find_dataset
from panacea.experiment.config import key_help
from panacea.graphs.keys import GRAPHS, GraphKeys
from panacea.methods import find_method, method_names
from panacea.models import find_model, model_names

HERE = Path(__file__).parent
NOTE = "<!-- written by docs/generate.py (make docs); do not edit -->\n\n"


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    clean = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    lines = [header, ["---"] * len(header), *clean]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


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


PAGES = {"methods.md": methods_page, "datasets.md": datasets_page, "keys.md": keys_page}

if __name__ == "__main__":
    for file, make in PAGES.items():
        (HERE / file).write_text(NOTE + make(), encoding="utf-8")
        print(f"written: docs/{file}")
