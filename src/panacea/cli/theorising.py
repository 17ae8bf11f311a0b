"""`panacea theory`: the theorems as tables, files or JSON."""

from __future__ import annotations

import json
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table as RichTable

from panacea.cli.progress import say
from panacea.errors import RunFailure
from panacea.report.theory import DISTANCE, columns_of, make_folder, write_theory
from panacea.theory import STATEMENTS, Finding, Table, chosen

__all__ = ["check_theory"]


def check_theory(
    names: list[str], trials: int, seed: int, search: int, out: Path | None, *, as_json: bool, quiet: bool
) -> None:
    """Check, show, write; fails if a corrected statement does."""
    wanted, settings = chosen(names, trials, seed, search)
    if out is not None:
        make_folder(out)
    errors = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    findings = []
    with Progress(*columns, console=errors, transient=True, disable=quiet or not errors.is_terminal) as bar:
        task = bar.add_task("", total=len(wanted))
        for name in wanted:
            bar.update(task, description=name)
            findings.append(STATEMENTS[name](settings))
            bar.advance(task)
    if as_json:
        records = [finding.record() for finding in findings]
        print(json.dumps({"trials": trials, "seed": seed, "search": search, "statements": records}))  # noqa: T201
    elif not quiet:
        _show(findings)
    if out is not None:
        write_theory(findings, out)
        if not quiet:
            say(f"written: {out}")
    failed = [f"{finding.name} ({row.case})" for finding in findings for row in finding.rows if not row.holds]
    if failed:
        raise RunFailure(f"a corrected statement fails its check: {', '.join(failed)}")


def _show(findings: list[Finding]) -> None:
    console = Console() if Console().is_terminal else Console(width=120)
    for finding in findings:
        console.print(f"\n[bold]{finding.title}[/bold]", highlight=False)
        console.print(finding.explanation, highlight=False, markup=False)
        for table in finding.tables:
            console.print(_table(table, narrow=console.width < 100), markup=False)


def _table(content: Table, *, narrow: bool) -> RichTable:
    """Words get the room that numbers leave; on a narrow terminal there are no lines and one column less."""
    table = RichTable(title=content.title, title_justify="left")
    if narrow:
        table.box, table.show_edge = SIMPLE_HEAD, False
    columns = [column for column in columns_of(content) if not (narrow and column[0] == DISTANCE)]
    for heading, cells in columns:
        if heading in ("case", "verdict"):
            table.add_column(heading)
        else:
            least = max(map(len, [*cells, *heading.split()]))
            table.add_column(heading, justify="right", min_width=least, max_width=least)
    for line in zip(*(cells for _, cells in columns), strict=True):
        table.add_row(*line)
    return table
