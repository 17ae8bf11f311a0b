"""`panacea reproduce`: a published table or figure, side by side with the paper."""

from __future__ import annotations

import hashlib
import json
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from panacea.cli.progress import say
from panacea.cli.show import console
from panacea.errors import RequestError, RunFailure
from panacea.experiment.batch import Finished, Job, Listener, run_batch
from panacea.experiment.keys import parse_overrides
from panacea.experiment.reproduce import Entry, Reproduction, Request, check_claims, find_entry, gather, make_plan
from panacea.experiment.rundir import environment
from panacea.report.reproduction import (
    TextTable,
    block_lines,
    json_record,
    legend,
    reasons,
    result_tables,
    write_reproduction,
)
from panacea.report.reproduction_figures import draw_reproduction

__all__ = ["reproduce_command"]


def reproduce_command(
    arguments: list[str],
    *,
    listed: bool,
    quick: bool,
    workers: int | None,
    cluster: str | None,
    out: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """List the reproductions, or run one and put it beside the paper."""
    from panacea.cli.reproducible import show_list  # noqa: PLC0415  (looks at all data)

    names = [argument for argument in arguments if "=" not in argument]
    keys = parse_overrides(argument for argument in arguments if "=" in argument)
    if listed:
        if names or set(keys) - {"data.root"}:
            raise RequestError("--list takes no name and no key but data.root")
        show_list(keys.get("data.root"), as_json=as_json)
        return
    if len(names) != 1:
        given = f"'{' '.join(names)}'" if names else "missing"
        raise RequestError(f"NAME is {given}; one is needed, panacea reproduce --list shows them")
    if workers is not None and workers < 1:
        raise RequestError(f"--workers {workers}: at least one is needed")
    entry = find_entry(names[0])
    request = Request.of(keys, quick=quick, out=out)
    options = [*(["--quick"] if quick else []), *(["--out", str(out)] if out else [])]
    options += ["--workers", str(workers)] if workers else []
    options += ["--cluster", cluster] if cluster else []
    command = shlex.join(["panacea", "reproduce", *arguments, *options])
    folder = _folder(entry, request)
    if entry.theory is not None:
        from panacea.cli.reproduced_theory import reproduce_theory  # noqa: PLC0415  (a layer of its own)

        reproduce_theory(entry, request, folder, command, as_json=as_json, quiet=quiet)
        return
    _reproduce(entry, request, folder, command, workers, cluster, as_json=as_json, quiet=quiet)


def _reproduce(
    entry: Entry,
    request: Request,
    folder: Path,
    command: str,
    workers: int | None,
    cluster: str | None,
    *,
    as_json: bool,
    quiet: bool,
) -> None:
    plan = make_plan(entry, request)
    if not plan.planned:
        why = dict.fromkeys(part.missing or f"{part.block.name} has none of these methods" for part in plan.parts)
        raise RequestError(f"{entry.name}: nothing can be run: " + "; ".join(why))
    make_folder(folder)  # before the first word: an error is one line
    if not quiet:
        for part in plan.parts:
            if part.missing:
                say(f"note: {part.block.name} is not run: {part.missing}")
        many = f"{len(plan.planned)} run{'s' * (len(plan.planned) != 1)}"
        say(f"{many}; expected time: {entry.time['quick' if request.quick else 'full']}")
    started = time.perf_counter()
    with _Bar(quiet) as bar:
        jobs = [one.job for one in plan.planned]
        finished = run_batch(jobs, workers=workers, listener=bar, pages=False, cluster=cluster)
    found = gather(plan, finished)
    claims = check_claims(found)
    about = described(command, time.perf_counter() - started, finished)
    figures = draw_reproduction(found, folder)
    write_reproduction(found, claims, about, folder, figures)
    if as_json:
        print(json.dumps({**json_record(found, claims, about), "folder": str(folder)}))  # noqa: T201
    elif not quiet:
        _show(found, result_tables(found, claims))
        say(f"written: {folder}")
    if len(found.failures) == len(finished):
        raise RunFailure(f"every run failed; the first: {found.failures[0]}")


def make_folder(folder: Path) -> None:
    """Make the folder of the results, so that one that cannot be written to is known before anything is run.

    Raises:
        RequestError: it cannot.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"out={folder.parent}: cannot write there ({error.strerror})") from error


def described(command: str, seconds: float, finished: Sequence[Finished] = ()) -> dict[str, Any]:
    """How a result came about: command, versions, time."""
    here = environment()
    versions = {"python": here["python"], **here["packages"], "commit": here["commit"]}
    read = sum(one.reused for one in finished)
    return {
        "command": command, "date": here["started"], "versions": versions, "platform": here["platform"],
        "processor": here["processor"], "cores": here["cores"], "seconds": round(seconds, 1),
        "trained": len(finished) - read, "read": read,
        "train_seconds": round(sum(_trained(one) for one in finished), 1),
    }  # fmt: skip


def _trained(one: Finished) -> float:
    return float((one.summary or {}).get("train_seconds") or 0.0)


def _folder(entry: Entry, request: Request) -> Path:
    """``<out>/reproduce-<name>[-quick]``; with keys of one's own, six hex digits of them follow."""
    name = f"reproduce-{entry.name}{'-quick' * request.quick}"
    if request.changed:
        digest = hashlib.sha256(json.dumps(request.changed, sort_keys=True, default=str).encode()).hexdigest()
        name = f"{name}-{digest[:6]}"
    return request.out / name


def _show(found: Reproduction, tables: Sequence[TextTable]) -> None:
    entry, terminal = found.plan.entry, console()
    print(f"{entry.title}: {entry.where} of {entry.paper}")  # noqa: T201
    for table in tables:
        show_table(table, terminal)
    for line in [*block_lines(found), *reasons(found), *entry.notes]:
        terminal.print(f"- {line}", markup=False, highlight=False)
    if legend(tables):
        terminal.print(legend(tables), markup=False, highlight=False)


def show_table(content: TextTable, terminal: Console) -> None:
    """A table on the terminal."""
    table = Table(title=content.title, title_justify="left")
    for number, name in enumerate(content.header):
        words = number == 0 or name in content.words
        table.add_column(name, justify="left" if words else "right", overflow="fold")
    for row in content.rows:
        table.add_row(*row)
    terminal.print(table, markup=False, highlight=False)


class _Bar(Listener):
    """Runs done, and the newest number of whichever was evaluated last; notes once each."""

    def __init__(self, quiet: bool) -> None:
        self.quiet, self.jobs, self.said = quiet, list[Job](), set[str]()
        errors = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self.bar = Progress(*columns, console=errors, transient=True, disable=quiet or not errors.is_terminal)
        self.task: TaskID | None = None

    def __enter__(self) -> _Bar:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def on_start(self, jobs: Sequence[Job]) -> None:
        """Count them."""
        self.jobs = list(jobs)
        self.task = self.bar.add_task("", total=len(jobs))

    def on_progress(self, number: int, line: Mapping[str, Any]) -> None:
        """Name the run."""
        if self.task is not None and line.get("mean") is not None:
            text = f"{self.jobs[number].label}, round {line['round']}: {line['mean']:.4g}"
            self.bar.update(self.task, description=text)

    def on_note(self, number: int, note: str) -> None:
        """Say it, the first time."""
        if not self.quiet and note not in self.said:
            self.said.add(note)
            say(f"note: {note}")

    def on_finish(self, number: int, finished: Finished) -> None:
        """Advance."""
        if self.task is not None:
            self.bar.advance(self.task)
        if finished.error is not None and not self.quiet:
            say(f"note: {self.jobs[number].label} failed: {finished.error}")
