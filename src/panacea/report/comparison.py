"""The files of a comparison: tables as CSV, Markdown, LaTeX and JSON, and a figure as PNG and SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from panacea.core.files import write_atomically, write_csv, write_json
from panacea.errors import RequestError
from panacea.experiment.comparison import Results
from panacea.experiment.plain_table import Plain
from panacea.report.canvas import BLUE, GREY, ORANGE, new_figure
from panacea.report.curves import draw_curves, write_figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_methods", "write_comparison"]


def draw_methods(table: Plain) -> Figure:
    """A row per method: its mean with the interval, a small dot per run, and the novel clients' mean."""
    records = [record for record in table.records() if record["mean"] is not None]
    figure, axes = new_figure(6.4, 1.1 + 0.34 * max(len(records), 2))
    said: set[str] = set()

    def once(label: str) -> str:
        text = "_" + label if label in said else label  # matplotlib's legend skips names that begin with _
        said.add(label)
        return text

    for row, record in enumerate(records):
        runs = [o.summary["mean"] for o in table.outcomes if o.method == record["method"] and o.summary is not None]
        if record["low"] is not None:
            axes.plot(
                [record["low"], record["high"]], [row, row], color=BLUE, linewidth=1.8, label=once("95 % interval")
            )
        axes.plot(record["mean"], row, "o", color=BLUE, markersize=6, label=once("mean"))
        axes.plot(runs, [row + 0.2] * len(runs), "o", color=GREY, alpha=0.7, markersize=3, label=once("a run"))
        if record["novel_mean"] is not None:
            look: dict[str, Any] = {"markerfacecolor": "white", "markersize": 4.5, "label": once("novel clients")}
            axes.plot(record["novel_mean"], row - 0.2, "D", color=ORANGE, **look)
    axes.set_ylim(-0.6, len(records) - 0.4)
    axes.set_yticks(range(len(records)), [record["method"] for record in records])
    axes.invert_yaxis()
    axes.set_xlabel("accuracy, %" if table.higher_is_better else "mean squared error")
    axes.set_title(table.title, fontsize=8, wrap=True)
    figure.legend(loc="outside right center", frameon=False, fontsize=8)
    return figure


def write_comparison(results: Results, folder: Path) -> str | None:
    """Write table.csv/.md/.tex/.json, tests.csv/.md, runs.csv, clients.csv and the figure.

    Returns:
        A note if the figure could not be drawn.

    Raises:
        RequestError: the folder cannot be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _records(folder / "table.csv", results.table.records())
        _records(folder / "runs.csv", results.run_records())
        _records(folder / "clients.csv", results.client_records())
        tests = results.test_records()
        if tests:
            _records(folder / "tests.csv", tests)
            write_atomically(folder / "tests.md", results.tests_markdown())
        write_atomically(folder / "table.md", results.markdown())
        write_atomically(folder / "table.tex", results.latex())
        write_json(folder / "table.json", results.content())
        try:
            if isinstance(results.table, Plain):
                write_figures(draw_methods(results.table), folder, "methods")
            else:
                write_figures(draw_curves(results.table), folder, "curve")
        except ImportError as error:
            return f"no figure: {error.name} is not installed"
    except OSError as error:
        raise RequestError(f"out: {folder} cannot be written ({error.strerror or error})") from error
    return None


def _records(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    write_csv(path, list(records[0]), [list(record.values()) for record in records])
