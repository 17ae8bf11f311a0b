"""Files of `panacea theory --out`: theory.csv, theory.md and figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from panacea.core.files import write_atomically, write_csv
from panacea.errors import RequestError
from panacea.report.canvas import new_figure, save_figure
from panacea.theory import Finding, Row, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["DISTANCE", "columns_of", "make_folder", "number", "write_theory"]

_BLUE, _ORANGE, _GREY, _GREEN = "#0072b2", "#d55e00", "#5f6b7a", "#009e73"  # Okabe and Ito's colours

DISTANCE = "|diff| / SE"

_CSV = (
    "statement", "table", "case", "printed", "corrected", "measured", "standard_error", "distance", "reference",
    "printed_holds", "holds", "verdict",
)  # fmt: skip

_FEDAMP = {
    "fedamp-1": ("FedAMP, Theorem 1", r"$\min_k\ \mathcal{G}(W^k) - \mathcal{G}^*$"),
    "fedamp-2": ("FedAMP, Theorem 2", r"$\min_k\ \|\nabla\mathcal{G}(W^k)\|^2$"),
}


def number(value: float | None) -> str:
    """Four significant digits, whole numbers as such.

    >>> number(12.91666), number(60.0), number(4.45e-9), number(None)
    ('12.92', '60', '4.45e-09', '')
    """
    if value is None or math.isnan(value):
        return ""
    if value == round(value) and abs(value) < 1e6:
        return str(round(value))
    return f"{value:.2f}" if 10 <= abs(value) < 1e6 else f"{value:.4g}" if abs(value) >= 1e-3 else f"{value:.3g}"


def columns_of(table: Table) -> list[tuple[str, list[str]]]:
    """Headings and cells of the columns that have something to say."""
    rows, names = table.rows, table.headings
    cells = {
        "case": [row.case for row in rows],
        "printed": [number(row.printed) for row in rows],
        "corrected": [number(row.corrected) for row in rows],
        "measured": [_measured(row) for row in rows],
        "distance": ["" if row.distance is None else f"{row.distance:.1f}" for row in rows],
        "reference": [number(row.reference) for row in rows],
        "verdict": [row.verdict for row in rows],
    }
    plain = {"measured": "measured", "distance": DISTANCE, "reference": "reference"}
    return [(names.get(key, plain.get(key, key)), column) for key, column in cells.items() if any(column)]


def _measured(row: Row) -> str:
    if row.error is None or row.measured is None or row.error <= 0:
        return number(row.measured)
    digits = max(0, 1 - math.floor(math.log10(row.error)))  # two of the error's own
    return f"{row.measured:.{digits}f} ± {row.error:.{digits}f}"


def markdown(findings: Sequence[Finding]) -> str:
    """All tables as Markdown."""
    parts = []
    for finding in findings:
        parts.append(f"## {finding.title}\n\n{finding.explanation}\n")
        for table in finding.tables:
            columns = columns_of(table)
            lines = [[heading for heading, _ in columns], ["---"] * len(columns)]
            lines += [list(line) for line in zip(*(cells for _, cells in columns), strict=True)]
            body = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
            parts.append(f"{table.title}:\n\n{body}\n")
    return "\n".join(parts)


def make_folder(folder: Path) -> None:
    """Make the folder for the files, before anything long is computed for it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"--out {folder}: cannot make this folder ({error.strerror})") from None


def write_theory(findings: Sequence[Finding], folder: Path) -> None:
    """Write everything; figures are drawn for the statements that are there."""
    rows = [
        (finding.name, table.title, row.case, row.printed, row.corrected, row.measured, row.error, row.distance,
         row.reference, row.printed_holds, row.holds, row.verdict)
        for finding in findings
        for table in finding.tables
        for row in table.rows
    ]  # fmt: skip
    make_folder(folder)
    try:
        write_csv(folder / "theory.csv", _CSV, rows)
        write_atomically(folder / "theory.md", "# The theorems, checked\n\n" + markdown(findings))
        for finding in findings:
            for name, figure in _figures(finding).items():
                save_figure(figure, folder, name)
    except OSError as error:
        raise RequestError(f"--out {folder}: cannot write there ({error.strerror or error})") from None


def _figures(finding: Finding) -> dict[str, Figure]:
    if finding.name == "theorem-3.3":
        return {"check-b": _check_b(finding.tables[1])}
    if finding.name == "lemma":
        return {"lemma": _lemma(finding.curves)}
    if finding.name == "ordering":
        return {"ordering": _ordering(finding.curves)}
    if finding.name in _FEDAMP:
        return {finding.name: _convergence(finding.curves, *_FEDAMP[finding.name])}
    return {}


def _check_b(table: Table) -> Figure:
    figure, axes = new_figure(8.0)
    rows = table.rows
    place = np.arange(len(rows))
    series = (
        ("printed (2dk/n) r", [row.printed for row in rows], None, _ORANGE),
        ("corrected", [row.corrected for row in rows], None, _BLUE),
        (
            "Monte-Carlo ± 3 standard errors",
            [row.measured for row in rows],
            [3 * (row.error or 0) for row in rows],
            _GREY,
        ),
    )
    for shift, (label, values, errors, colour) in zip((-0.27, 0.0, 0.27), series, strict=True):
        heights = np.array(values, dtype=float)
        bars = axes.bar(place + shift, heights, 0.25, color=colour, label=label, yerr=errors, capsize=2)
        axes.bar_label(bars, [f"{height:.1f}" for height in heights], fontsize=7, padding=2)
    names = [row.case.replace(", ", "\n", 1) for row in rows]
    axes.set_xticks(place, names, fontsize=8)
    axes.set_ylabel("expected risk of Panacea")
    axes.set_title("Theorem 3.3 where V* G = V*", fontsize=10, loc="left")
    axes.legend(frameon=False, fontsize=8)
    axes.grid(visible=False, axis="x")
    return figure


def _lemma(curves: dict[str, list[float]]) -> Figure:
    figure, axes = new_figure()
    for hubs, colour in ((1, _GREEN), (2, _BLUE), (3, _ORANGE)):
        word = "hub" if hubs == 1 else "hubs"
        axes.plot(
            curves["n"], curves[f"{hubs} hubs, rows"], color=colour, label=f"{hubs} {word}, rows to one (printed)"
        )
        axes.plot(
            curves["n"],
            curves[f"{hubs} hubs, columns"],
            color=colour,
            linestyle="--",
            label=f"{hubs} {word}, columns to one",
        )
    axes.axhline(1, color=_GREY, linewidth=1)
    axes.annotate(
        "the lemma's bound",
        (1, 1),
        xycoords=("axes fraction", "data"),
        fontsize=8,
        color=_GREY,
        ha="right",
        va="bottom",
    )
    axes.set_xlabel("clients n (hubs attacked, the others leaves)")
    axes.set_ylabel("r / m")
    axes.set_ylim(0)
    axes.set_title("Lemma III.4: 0 ≤ r ≤ m", fontsize=10, loc="left")
    axes.legend(frameon=False, fontsize=8)
    return figure


def _ordering(curves: dict[str, list[float]]) -> Figure:
    figure, axes = new_figure()
    for layers, colour in ((1, _GREEN), (2, _ORANGE), (3, _BLUE)):
        axes.plot(curves["n"], curves[f"L={layers}"], color=colour, marker="o", markersize=3, label=f"L = {layers}")
    axes.axhline(1, color=_GREY, linewidth=1)
    axes.annotate(
        "pFedHN", (1, 1), xycoords=("axes fraction", "data"), fontsize=8, color=_GREY, ha="right", va="bottom"
    )
    axes.set_xlabel("clients n (3 hubs attacked, the others leaves)")
    axes.set_ylabel("risk of Panacea / risk of pFedHN")
    axes.set_ylim(0)
    axes.set_title("Remark 1 where V* G = V*", fontsize=10, loc="left")
    axes.legend(frameon=False, fontsize=8)
    return figure


def _convergence(curves: dict[str, list[float]], title: str, label: str) -> Figure:
    figure, axes = new_figure()
    rounds = np.array(curves["K"])
    drawn = (("bound", "the theorem's bound", _GREY, "--"), ("printed", "Eq. (5) as printed", _ORANGE, "-"))
    for key, name, colour, line in (*drawn, ("corrected", "with the factor 2", _BLUE, "-")):
        values = np.maximum(curves[key], 1e-16)
        axes.loglog(rounds, values, color=colour, linestyle=line, marker="o", markersize=3, label=name)
    axes.set_ylim(bottom=1e-6)  # below, nothing is to be compared
    axes.set_xlabel(r"K (rounds, $\alpha_k = \lambda / \sqrt{K}$)")
    axes.set_ylabel(label)
    axes.set_title(title, fontsize=10, loc="left")
    axes.legend(frameon=False, fontsize=8)
    return figure
