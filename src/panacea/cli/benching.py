"""`panacea bench`: the speed of this installation."""

from __future__ import annotations

import dataclasses
import json

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from panacea.cli.show import console
from panacea.errors import RequestError, unknown
from panacea.experiment.speed import WORKLOAD, measure_methods
from panacea.methods import method_names

__all__ = ["bench_command"]


def bench_command(what: str, methods: str | None, repeats: int, *, as_json: bool, quiet: bool) -> None:
    """Measure and print."""
    if what != "methods":
        raise unknown("bench", what, ("methods",))
    if repeats < 1:
        raise RequestError(f"--repeats={repeats}: at least 1")
    names = [name.strip() for name in methods.split(",")] if methods else []
    errors = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True, disable=quiet or not errors.is_terminal) as bar:
        task = bar.add_task("", total=len(names or method_names()))
        rows = measure_methods(names, repeats, lambda name: bar.update(task, description=name, advance=1))
    if as_json:
        print(json.dumps({"workload": WORKLOAD, "methods": [dataclasses.asdict(row) for row in rows]}))  # noqa: T201
        return
    table = Table(title=WORKLOAD, title_justify="left", box=None, padding=(0, 1))
    table.add_column("method")
    for header in ("gradients a step", "vectorised ms", "sequential ms", "times faster"):
        table.add_column(header, justify="right")
    for row in rows:
        numbers = (f"{row.vectorised_ms:.1f}", f"{row.sequential_ms:.1f}", f"{row.ratio:.1f}")
        table.add_row(f"{row.method} {row.model}".strip(), str(row.gradients), *numbers)
    console().print(table)
