"""The reproduction that is not a table of runs: every theorem checked, in the form of the others."""

from __future__ import annotations

import json
import time
from pathlib import Path

from panacea.cli.progress import say
from panacea.cli.reproducing import described, make_folder, show_table
from panacea.cli.show import console
from panacea.core.files import write_atomically, write_csv, write_json
from panacea.errors import RequestError, RunFailure
from panacea.experiment.reproduce import Entry, Request
from panacea.report.reproduction import TextTable
from panacea.report.theory import markdown, write_theory
from panacea.theory import Finding, check

__all__ = ["reproduce_theory"]

_COLUMNS = ("statement", "title", "cases", "printed_holds", "corrected_holds", "verdict", "why")


def reproduce_theory(entry: Entry, request: Request, folder: Path, command: str, *, as_json: bool, quiet: bool) -> None:
    """Check everything, write the files of a reproduction and those of `panacea theory`."""
    settings: dict[str, int] = {str(key): value for key, value in (entry.theory or {}).items()}
    settings |= {**(entry.quick.keys if request.quick else {}), **request.keys}
    wrong = set(settings) - {"trials", "search"}
    if wrong or request.data or request.methods:
        raise RequestError(f"{entry.name} takes the keys trials, search and seeds, and no others")
    seed = next(iter(request.seeds), 0)
    make_folder(folder)
    started = time.perf_counter()
    findings = list(check([], settings["trials"], seed, settings["search"]))
    records = [_record(finding) for finding in findings]
    about = {**described(command, time.perf_counter() - started), "settings": settings, "seed": seed}
    table = TextTable(
        f"Theorems as printed ({settings['trials']:,} draws, graphs up to {settings['search']} clients)",
        ("statement", "cases", "as printed", "corrected", "verdict"),
        tuple((r[0], str(r[2]), _word(r[3]), _word(r[4]), f"{r[5]}: {r[6]}" if r[6] else r[5]) for r in records),
        ("as printed", "corrected", "verdict"),
    )
    write_theory(findings, folder)
    rows = [dict(zip(_COLUMNS, record, strict=True)) for record in records]
    content = {"name": entry.name, "title": entry.title, "paper": entry.paper, "where": entry.where, **about}
    content |= {"quick": request.quick, "cells": rows, "notes": list(entry.notes)}
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    page = (
        f"# {entry.title}\n\n{entry.where} of {entry.paper}: {entry.what}.\n\n```\n$ {command}\n```\n\n"
        f"{versions}; {about['seconds']:.0f} s.\n\n{table.markdown()}\n{markdown(findings)}"
    )
    try:
        write_csv(folder / "result.csv", _COLUMNS, records)
        write_json(folder / "result.json", content)
        write_atomically(folder / "result.md", page)
    except OSError as error:
        raise RequestError(f"out: {folder} cannot be written ({error.strerror or error})") from error
    if as_json:
        print(json.dumps({**content, "folder": str(folder)}))  # noqa: T201
    elif not quiet:
        show_table(table, console())
        say(f"written: {folder}")
    failed = [finding.name for finding in findings if not finding.holds]
    if failed:
        raise RunFailure(f"a corrected statement fails its check: {', '.join(failed)}")


def _record(finding: Finding) -> tuple[str, str, int, bool, bool, str, str]:
    """A statement's row: a printed statement that its own cases refute cannot be right."""
    rows = list(finding.rows)
    against = next((f"{row.case}: {row.verdict}" for row in rows if row.printed_holds is False), "")
    verdict = "reproduced" if finding.printed_holds else "cannot be right"
    return finding.name, finding.title, len(rows), finding.printed_holds, finding.holds, verdict, against


def _word(holds: bool) -> str:
    return "holds" if holds else "does not hold"
