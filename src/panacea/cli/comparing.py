"""`panacea compare`: methods x seeds, one table with tests; with a key of several values, a curve per method."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from panacea.cli.arguments import flat_keys
from panacea.cli.live import LiveTable
from panacea.cli.progress import say
from panacea.cli.show import console
from panacea.errors import RequestError, RunFailure
from panacea.experiment.comparison import run_comparison
from panacea.experiment.formats import Mark
from panacea.experiment.planning import plan_comparison
from panacea.report.comparison import write_comparison

__all__ = ["compare_methods"]


def compare_methods(
    arguments: list[str], workers: int | None, target: float | None, *, as_json: bool, quiet: bool
) -> None:
    """Train every method on every seed, for every value of a varied key; write the files, print the tables."""
    keys = flat_keys(arguments)
    for name, option in (("workers", workers), ("target", target)):
        if option is not None and name in keys:
            raise RequestError(f"{name} is given twice, as a key and as --{name}")
    number = keys.pop("workers", workers)
    if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
        raise RequestError(f"workers={number}: a whole number from 1 is needed")
    plan = plan_comparison(keys if target is None else {**keys, "target": target})
    with LiveTable(plan, quiet) as live:
        results = run_comparison(plan, workers=number, listener=live)
    note = write_comparison(results, plan.folder)
    failures = results.failures
    if as_json:
        print(json.dumps({**results.content(), "folder": str(plan.folder)}))  # noqa: T201
    elif not quiet:
        _print(results.table.title, results.table.caption, results.header, results.table.cells("\n"))
        if results.tests:
            _print("", results.test_caption, results.test_header, results.test_cells())
        say(f"runs: {plan.config.out}; tables and figure: {plan.folder}")
    if note and not quiet:
        say(f"note: {note}")
    if failures:
        raise RunFailure(f"{len(failures)} of {len(plan.runs)} runs failed; the first: {failures[0]}")


_STYLES = {0: "", 1: "bold", 2: "underline"}


def _print(title: str, caption: str, header: Sequence[str], rows: Sequence[Sequence[Mark]]) -> None:
    """A table on standard output."""
    table = Table(
        title=Text(title) if title else None, caption=Text(caption), title_justify="left", caption_justify="left"
    )
    table.add_column(header[0])
    for column in header[1:]:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*(Text.assemble((cell.text, _STYLES[cell.rank]), cell.around) for cell in row))
    console().print(table)
