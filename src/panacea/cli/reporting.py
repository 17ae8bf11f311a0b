"""`panacea report`: one page for one or many runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from panacea.cli.progress import say
from panacea.errors import RequestError
from panacea.report.page.figures import write_page_figures
from panacea.report.page.reading import read_runs
from panacea.report.page.series import group_runs
from panacea.report.page.writing import write_page

__all__ = ["report_runs"]


def report_runs(directories: Sequence[Path], out: Path | None, *, figures: bool, as_json: bool, quiet: bool) -> None:
    """Read the runs, write the page and, if asked for, the figures; say where."""
    if not directories:
        raise RequestError("report needs a run directory, or a folder of them: panacea report runs/")
    page = out if out is not None else _place(directories)
    if page.is_dir() or page.suffix.lower() not in (".html", ".htm"):
        raise RequestError(f"--out {page}: the page is a .html file")
    with ExitStack() as stack:
        errors = Console(stderr=True)
        if errors.is_terminal and not quiet:
            stack.enter_context(errors.status("reading the runs and writing the page"))
        runs, notes = read_runs(directories)
        size = write_page(runs, page, notes)
        drawn = write_page_figures(group_runs(runs), page.parent / "figures") if figures else []
    if as_json:
        content = {"page": str(page), "bytes": size, "runs": [str(run.path) for run in runs], "notes": notes}
        print(json.dumps({**content, "figures": [str(path) for path in drawn]}))  # noqa: T201
        return
    if not quiet:
        for note in notes:
            say(f"note: {note}")
        print(f"report: {page} ({len(runs)} run{'s' if len(runs) > 1 else ''}, {size / 1e6:.1f} MB)")  # noqa: T201
        if drawn:
            print(f"figures: {page.parent / 'figures'} ({len(drawn)} files)")  # noqa: T201


def _place(directories: Sequence[Path]) -> Path:
    """In the folder of the runs if it is one folder; else in the current one: a run directory has a page of its own."""
    first = directories[0]
    if len(directories) == 1 and first.is_dir() and not (first / "config.yaml").exists():
        return first / "report.html"
    return Path("report.html")
