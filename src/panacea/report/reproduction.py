"""What a reproduction found, as tables for the terminal, Markdown, CSV and JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from panacea.core.files import write_atomically, write_csv, write_json
from panacea.errors import RequestError
from panacea.experiment.reproduce import Cell, Checked, Reproduction
from panacea.experiment.reproduce.entry import Block, Column
from panacea.experiment.reproduce.verdict import VERDICTS
from panacea.experiment.table import markdown_table, shown

__all__ = [
    "TextTable",
    "block_lines",
    "cell_record",
    "json_record",
    "legend",
    "reasons",
    "result_tables",
    "write_reproduction",
]

STAR = "*"
"""Marks a verdict of a shorter protocol than the paper's."""


@dataclass(frozen=True)
class TextTable:
    """A table as a person reads it; the first column is words, the others numbers unless they are in `words`."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: tuple[str, ...] = ("verdict", "claim", "on", "as printed", "ours", "numbers")

    def markdown(self) -> str:
        """With its title."""
        return f"**{self.title}**\n\n{markdown_table(self.header, self.rows)}"


def result_tables(found: Reproduction, claims: Sequence[Checked]) -> list[TextTable]:
    """A table for every column of the paper that was (or was to be) run, and one of its claims."""
    tables = []
    for column in found.plan.entry.columns:
        if any(cell.ours or cell.printed for cell in found.of(column.name)):
            tables.append(_table(found, column))
    checked = [one for one in claims if one.numbers or one.printed]
    return [*tables, *([_claims(checked)] if checked else [])]


def _table(found: Reproduction, column: Column) -> TextTable:
    cells = found.of(column.name)
    title = f"{column.name} ({_unit(found, column)}){_about(cells)}"
    if column.block.axis is not None:
        return _along(title, column.block, cells)
    several = max((cell.ours.seeds for cell in cells if cell.ours is not None), default=1) > 1
    seeds = ("± seeds",) if several else ()
    header: tuple[str, ...] = ("method", "ours ± clients", *seeds)
    if any(cell.printed for cell in cells):
        header = ("method", "published", "ours ± clients", *seeds, "difference", "allowed", "verdict")
    rows = []
    for cell in cells:
        texts = {
            "method": cell.row.name,
            "published": "-" if cell.printed is None else str(cell.printed),
            "ours ± clients": ours_text(cell),
            "± seeds": shown(cell.ours.between) if cell.ours else "-",
            "difference": "-" if cell.difference is None else f"{cell.difference:+.2f}",
            "allowed": shown(cell.allowed),
            "verdict": verdict_text(cell),
        }
        rows.append(tuple(texts[name] for name in header))
    return TextTable(title, header, tuple(rows))


def _along(title: str, block: Block, cells: Sequence[Cell]) -> TextTable:
    """Methods down, values of the axis across."""
    values = list(dict.fromkeys(cell.value for cell in cells))
    names = list(dict.fromkeys(cell.row.name for cell in cells))
    by = {(cell.row.name, cell.value): ours_text(cell) for cell in cells}
    rows = tuple((name, *(by[name, value] for value in values)) for name in names)
    return TextTable(title, (f"{block.axis.key if block.axis else ''}:", *map(str, values)), rows)


def _claims(claims: Sequence[Checked]) -> TextTable:
    rows = []
    for one in claims:
        ours = one.ours + (STAR if one.reduced and one.numbers else "")
        where = one.column + (f" ({one.label.partition(':')[0]})" if one.label and one.numbers else "")
        rows.append((one.text, where, one.printed or "-", ours, one.numbers or "-"))
    return TextTable("What the paper says", ("claim", "on", "as printed", "ours", "numbers"), tuple(rows))


def _unit(found: Reproduction, column: Column) -> str:
    """What a column's numbers are, beside what its name says."""
    own = column.measure.name if len(found.plan.entry.measures) == 1 and column.measure.name != "main" else ""
    return ", ".join(filter(None, (own, column.block.unit if column.measure.scaled else "")))


def _about(cells: Sequence[Cell]) -> str:
    """What part of a data set, or which other data, the numbers are of."""
    labels = dict.fromkeys(cell.label for cell in cells if cell.label)
    return "".join(f"; {label}" for label in labels)


def ours_text(cell: Cell) -> str:
    """Our mean ± its spread over clients."""
    ours = cell.ours
    if ours is None:
        return cell.failed or "-"
    return shown(ours.mean) + ("" if ours.spread is None else f" ± {shown(ours.spread)}")


def verdict_text(cell: Cell) -> str:
    """The verdict, with a star if it is of a shorter protocol."""
    judged = cell.verdict in ("reproduced", "better", "worse")
    return cell.verdict + (STAR if judged and cell.reduced else "")


def legend(tables: Sequence[TextTable]) -> str:
    """What the star means, where there is one."""
    starred = any(text.endswith(STAR) for table in tables for row in table.rows for text in row[1:])
    return f"{STAR}: of a shorter protocol than the paper's" if starred else ""


def reasons(found: Reproduction) -> list[str]:
    """Why cells cannot be right, and why runs are missing, once each."""
    lines: dict[str, None] = {}
    for cell in found.cells:
        if cell.verdict == "cannot be right":
            lines[f"{cell.row.like or cell.row.name} on {cell.column.name} cannot be right: {cell.why}"] = None
    for failure in found.failures:
        lines[f"failed: {failure}"] = None
    return list(lines)


def block_lines(found: Reproduction) -> list[str]:
    """What every block was run on, and what of it is less than the paper's."""
    lines = []
    for part in found.plan.parts:
        words = [f"not run ({part.missing})"] if part.missing else [f"data={part.data}"]
        if not part.missing:
            words += [f"seeds {', '.join(map(str, part.seeds))}", found.partial(part), part.label]
            words += [f"REDUCED: {part.reduced}"] if part.reduced else ["as published, as far as the paper says"]
        lines.append(f"{part.block.name}: {'; '.join(filter(None, words))}")
    return lines


def cell_record(cell: Cell) -> dict[str, Any]:
    """A cell for CSV and JSON."""
    ours, printed = cell.ours, cell.printed
    return {
        "row": cell.row.name,
        "method": cell.row.method,
        "column": cell.column.name,
        "data": cell.outcomes[0].planned.part.data if cell.outcomes else cell.column.block.data,
        "value": cell.value,
        "published": None if printed is None else printed.mean,
        "published_spread": None if printed is None else printed.spread,
        "ours": None if ours is None else ours.mean,
        "spread_clients": None if ours is None else ours.spread,
        "spread_seeds": None if ours is None else ours.between,
        "clients": None if ours is None else ours.clients,
        "seeds": None if ours is None else ours.seeds,
        "difference": cell.difference,
        "allowed": cell.allowed,
        "verdict": cell.verdict,
        "why": cell.why,
        "label": cell.label,
        "reduced": cell.reduced,
    }


def counts(found: Reproduction) -> dict[str, int]:
    """How many cells have which verdict; cells without a published number do not count."""
    counted = Counter(cell.verdict for cell in found.cells)
    return {verdict: counted[verdict] for verdict in VERDICTS if counted[verdict] and verdict != "-"}


def json_record(found: Reproduction, claims: Sequence[Checked], about: Mapping[str, Any]) -> dict[str, Any]:
    """Everything, for `result.json` and `--json`."""
    entry = found.plan.entry
    runs = [
        {"label": one.planned.job.label, "directory": str(one.finished.directory), "error": one.finished.error}
        for one in found.outcomes
    ]
    head = {"name": entry.name, "title": entry.title, "paper": entry.paper, "where": entry.where}
    return {
        **head, **about, "quick": found.plan.request.quick, "blocks": block_lines(found), "verdicts": counts(found),
        "cells": [cell_record(cell) for cell in found.cells], "claims": [asdict(one) for one in claims],
        "reasons": reasons(found), "notes": list(entry.notes), "runs": runs,
    }  # fmt: skip


def markdown(found: Reproduction, claims: Sequence[Checked], about: Mapping[str, Any], figures: Sequence[str]) -> str:
    """The page."""
    entry, quick = found.plan.entry, found.plan.request.quick
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    tables = result_tables(found, claims)
    parts = [
        f"# {entry.title}\n",
        f"{entry.where} of {entry.paper}: {entry.what}.\n",
        f"```\n$ {about['command']}\n```\n",
        f"{'Quick form. ' if quick else ''}{versions}; {about['seconds']:.0f} s on {about['cores']} cores, "
        f"{about['trained']} runs trained, {about['read']} read from earlier.\n",
        "\n".join(f"- {line}" for line in block_lines(found)) + "\n",
        *(table.markdown() for table in tables),
    ]
    said = "± is the spread over clients."
    if counts(found):
        parts += [f"Verdicts: {', '.join(f'{n} {verdict}' for verdict, n in counts(found).items())}.\n"]
        said = _COMPARED
    parts += [f"{said} {legend(tables)}, as listed above.\n" if legend(tables) else f"{said}\n"]
    parts += [f"![{name}]({name}.png)\n" for name in figures]
    lines = [*reasons(found), *entry.notes]
    parts += ["\n".join(f"- {line}" for line in lines) + "\n"] if lines else []
    return "\n".join(parts)


_COMPARED = (
    "± is the spread over clients, as in the paper; a difference within *allowed* is `reproduced` "
    "(rounding of the printed number plus two standard errors; docs/reproduce.md has the formula)."
)


def write_reproduction(
    found: Reproduction, claims: Sequence[Checked], about: Mapping[str, Any], folder: Path, figures: Sequence[str]
) -> None:
    """Write result.md, result.csv and result.json.

    Raises:
        RequestError: the folder cannot be written to.
    """
    records = [cell_record(cell) for cell in found.cells]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_csv(folder / "result.csv", list(records[0]), [list(record.values()) for record in records])
        write_json(folder / "result.json", json_record(found, claims, about))
        write_atomically(folder / "result.md", markdown(found, claims, about, figures))
    except OSError as error:
        raise RequestError(f"out: {folder} cannot be written ({error.strerror or error})") from error
