"""`panacea compare`: methods x seeds, one table with tests; with a key of several values, a curve per method."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace

from rich.table import Table
from rich.text import Text

from panacea.cli.arguments import flat_keys
from panacea.cli.live import LiveTable
from panacea.cli.progress import say
from panacea.cli.show import console
from panacea.cli.tuning import tuned_keys
from panacea.errors import RequestError, RunFailure, unknown
from panacea.experiment.comparison import run_comparison
from panacea.experiment.config import ExperimentConfig
from panacea.experiment.formats import Mark
from panacea.experiment.keys import SECTIONS
from panacea.experiment.planning import plan_comparison
from panacea.report.comparison import write_comparison

__all__ = ["compare_methods"]


def compare_methods(
    arguments: list[str],
    workers: int | None,
    target: float | None,
    tune: int | None = None,
    *,
    cluster: str | None = None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Train every method on every seed, for every value of a varied key; write the files, print the tables.

    With `tune`, each method first gets a search of so many settings, and is compared with the best of them.
    """
    keys = flat_keys(arguments)
    _check_names(keys)
    for name, option in (("workers", workers), ("target", target)):
        if option is not None and name in keys:
            raise RequestError(f"{name} is given twice, as a key and as --{name}")
    number = keys.pop("workers", workers)
    if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
        raise RequestError(f"workers={number}: a whole number from 1 is needed")
    keys |= {} if target is None else {"target": target}
    plan = plan_comparison(keys)
    if tune is not None:
        chosen, tuned = tuned_keys(keys, tune, number, cluster, quiet=quiet)
        plan = replace(plan_comparison(chosen), tuned=tuned)
    with LiveTable(plan, quiet) as live:
        results = run_comparison(plan, workers=number, listener=live, cluster=cluster)
    note = write_comparison(results, plan.folder)
    failures = results.failures
    if as_json:
        print(json.dumps({**results.content(), "folder": str(plan.folder)}))  # noqa: T201
    elif not quiet:
        caption = "\n".join(text for text in (results.table.caption, plan.tuned) if text)
        _print(results.table.title, caption, results.header, results.table.cells("\n"))
        if results.tests:
            _print("", results.test_caption, results.test_header, results.test_cells())
        say(f"runs: {plan.config.out}; tables and figure: {plan.folder}")
    if note and not quiet:
        say(f"note: {note}")
    if failures:
        raise RunFailure(f"{len(failures)} of {len(plan.runs)} runs failed; the first: {failures[0]}")


def _check_names(keys: Iterable[str]) -> None:
    """A key that no run and no comparison has is named with those of a comparison."""
    refused = {"method", "seed"}  # with their own words, by the plan
    allowed = {*ExperimentConfig.model_fields, "methods", "seeds", "target", "workers"} - refused
    for key in keys:
        if key.partition(".")[0] not in SECTIONS and key not in allowed | refused:
            raise unknown("key", key, allowed)


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
