"""`panacea methods` and `config`: what there is and what it means."""

from __future__ import annotations

import dataclasses
import inspect
import json
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import BaseModel
from rich.console import Console
from rich.table import Table

from panacea.cli.arguments import flat_keys
from panacea.experiment.config import build_config, key_help

if TYPE_CHECKING:
    from panacea.core.method import Method

__all__ = [
    "FACTS",
    "UNIT",
    "console",
    "field_rows",
    "print_fields",
    "print_keys",
    "show_config",
    "show_methods",
]

FACTS = {
    "paper": "paper", "year": "year", "server": "server keeps", "client": "client keeps", "down": "bytes down",
    "up": "bytes up", "newcomer": "a newcomer is given",
}  # fmt: skip
UNIT = (
    "bytes per client and round: U = 4 (P parameters + B shared BatchNorm statistics); P_own of them stay with the "
    "client; fedcg: P counts the enlarged network, of which P_given (teacher, A) is not sent back; apfl with "
    "mixing=logits: statistics of both networks travel"
)


def console() -> Console:
    """Where tables go: as wide as the terminal, or 120 columns where there is none."""
    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=120)


def print_keys() -> None:
    """Every top-level key of an experiment."""
    table = Table(title="keys", title_justify="left", box=None, padding=(0, 1))
    for column in ("key", "default", "meaning"):
        table.add_column(column, overflow="fold")
    for row in key_help():
        table.add_row(*row)
    console().print(table)


def show_config(arguments: list[str]) -> None:
    """All keys, or the resolved configuration of a request (nothing is trained or written)."""
    if not arguments:
        print_keys()
        return
    from panacea.experiment.experiment import Experiment  # noqa: PLC0415
    from panacea.experiment.rundir import nested  # noqa: PLC0415

    experiment = Experiment(build_config(flat_keys(arguments)))
    print(yaml.safe_dump(nested(experiment.config), sort_keys=False, allow_unicode=True), end="")  # noqa: T201


def field_rows(model: type[BaseModel]) -> list[dict[str, Any]]:
    """The keys of a model: name, default, type, meaning."""
    rows = []
    for name, field in model.model_fields.items():
        annotation = field.annotation
        kind = annotation.__name__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")
        rows.append({"key": name, "default": field.get_default(), "type": kind, "meaning": field.description or ""})
    return rows


def print_fields(title: str, prefix: str, model: type[BaseModel]) -> None:
    """The keys of a model as a table."""
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1))
    for column in ("key", "default", "type", "meaning"):
        table.add_column(column, overflow="fold")
    for row in field_rows(model):
        table.add_row(f"{prefix}.{row['key']}", str(row["default"]), row["type"], row["meaning"])
    console().print(table)


def _summary_line(cls: type[Method]) -> str:
    return (inspect.getdoc(cls) or "").partition("\n")[0]


def show_methods(name: str | None, *, as_json: bool) -> None:
    """The registry of methods."""
    from panacea.methods import find_method, method_names  # noqa: PLC0415

    if name is None:
        _print_methods({method: find_method(method) for method in method_names()}, as_json)
        return
    cls = find_method(name)
    if as_json:
        content = {"name": name, "facts": _facts(cls), "doc": inspect.getdoc(cls)}
        print(json.dumps({**content, "parameters": field_rows(cls.parameter_model)}))  # noqa: T201
        return
    print(f"{name}\n\n{inspect.getdoc(cls)}\n")  # noqa: T201
    facts = _facts(cls)
    if facts:
        print("\n".join(f"{FACTS[key]}: {facts[key]}" for key in FACTS) + f"\n({UNIT})\n")  # noqa: T201
    if cls.parameter_model.model_fields:
        print_fields("parameters", "method", cls.parameter_model)


def _facts(cls: type[Method]) -> dict[str, Any]:
    return {} if cls.facts is None else dataclasses.asdict(cls.facts)


def _print_methods(methods: dict[str, type[Method]], as_json: bool) -> None:
    """Every method with its facts; one of somebody else's may have none."""
    if as_json:
        lines = {name: {"summary": _summary_line(cls), **_facts(cls)} for name, cls in methods.items()}
        print(json.dumps(lines))  # noqa: T201
        return
    table = Table(
        box=None, padding=(0, 1), caption=f"{UNIT}\npanacea methods NAME explains one", caption_justify="left"
    )
    table.add_column("name", no_wrap=True)
    for header in FACTS.values():
        table.add_column(header, overflow="fold")
    for name, cls in methods.items():
        facts = _facts(cls)
        table.add_row(name, *(str(facts.get(key, "")) for key in FACTS))
    console().print(table)
