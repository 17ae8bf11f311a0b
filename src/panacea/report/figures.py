"""Figures of one run, drawn by matplotlib without a display; PNG and SVG of each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from panacea.data.picture import label_picture
from panacea.experiment.experiment import Experiment
from panacea.experiment.rundir import RunDirectory
from panacea.experiment.runner import client_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_run", "new_figure", "save_figure"]

_BLUE, _ORANGE, _GREY = "#0072b2", "#d55e00", "#5f6b7a"  # Okabe and Ito's colours: readable by everyone
_FEW_CLIENTS = 400  # up to here every client has a bar of its own


def new_figure(width: float = 6.4) -> tuple[Figure, Axes]:
    """An empty figure in the project's look."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure as MplFigure  # noqa: PLC0415

    figure = MplFigure(figsize=(width, 3.6), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    axes.set_axisbelow(True)
    return figure, axes


def save_figure(figure: Figure, folder: Path, name: str) -> None:
    """Write NAME.png and NAME.svg."""
    for suffix in (".png", ".svg"):
        figure.savefig(folder / f"{name}{suffix}", metadata={"Date": None} if suffix == ".svg" else None)


def draw_run(experiment: Experiment, directory: RunDirectory) -> list[tuple[str, str]]:
    """Draw everything; returns (file stem, caption) in the order of the page."""
    folder = directory.figures
    folder.mkdir(exist_ok=True)
    lines = [json.loads(line) for line in directory.metrics.read_text(encoding="utf-8").splitlines()]
    metric = experiment.federation.task.metric
    save_figure(_convergence(lines, metric, experiment.history.numbers["selected_round"]), folder, "convergence")
    save_figure(_clients(experiment, metric), folder, "clients")
    for suffix in (".png", ".svg"):
        label_picture(experiment.federation, folder / f"labels{suffix}")
    return [
        ("convergence", f"{metric} on test data over rounds: mean over clients and one standard deviation"),
        ("clients", f"{metric} of every client's own model on its own test data, sorted"),
        ("labels", "what every client has"),
    ]


def _convergence(lines: list[dict[str, Any]], metric: str, selected: int) -> Figure:
    figure, axes = new_figure()
    rounds = np.array([line["round"] for line in lines])

    def column(name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        return np.array([np.nan if line[name] is None else line[name] for line in lines], float)

    mean, std = column("mean"), column("std")
    top = np.minimum(mean + std, 100) if metric == "accuracy" else mean + std
    axes.fill_between(rounds, np.maximum(mean - std, 0), top, color=_BLUE, alpha=0.15, linewidth=0)
    marks: dict[str, Any] = {"marker": "o", "markersize": 3} if len(rounds) < 12 else {}
    axes.plot(rounds, mean, color=_BLUE, label="training clients, test", **marks)
    axes.plot(rounds, column("val_mean"), color=_GREY, linestyle=":", label="training clients, validation", **marks)
    if np.isfinite(column("novel_mean")).any():
        axes.plot(rounds, column("novel_mean"), color=_ORANGE, linestyle="--", label="novel clients, test", **marks)
    axes.axvline(selected, color=_GREY, linewidth=0.8, alpha=0.6)
    axes.annotate(
        "chosen", (selected, 0.02), xycoords=("data", "axes fraction"), rotation=90, fontsize=8, color=_GREY, ha="right"
    )
    axes.set_xlabel("round")
    axes.set_ylabel("accuracy, %" if metric == "accuracy" else "mean squared error")
    axes.legend(frameon=False, fontsize=8)
    return figure


def _clients(experiment: Experiment, metric: str) -> Figure:
    rows = [row for row in client_table(experiment) if row[7] == row[7]]
    rows.sort(key=lambda row: row[7])
    figure, axes = new_figure(min(14.0, max(6.4, 0.14 * len(rows) + 2)))
    values = np.array([row[7] for row in rows], float)
    novel = np.array([bool(row[2]) for row in rows])
    place = np.arange(len(rows))
    if len(rows) <= _FEW_CLIENTS:
        axes.bar(place, values, color=np.where(novel, _ORANGE, _BLUE), width=0.8)
    else:  # thousands of bars are one colour anyway
        for chosen, colour in ((~novel, _BLUE), (novel, _ORANGE)):
            axes.plot(place[chosen], values[chosen], ".", color=colour, markersize=2, rasterized=True)
    if len(rows) <= 70:
        axes.set_xticks(place, [row[1] for row in rows], rotation=90, fontsize=6)
    axes.set_xlabel("client" + (" (orange: novel)" if any(row[2] for row in rows) else ""))
    axes.set_ylabel("accuracy, %" if metric == "accuracy" else "mean squared error")
    axes.grid(visible=False, axis="x")
    return figure
