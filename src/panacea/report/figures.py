"""Figures of one run, drawn by matplotlib without a display; PNG and SVG of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from panacea.core.files import read_lines
from panacea.data.picture import drawable, graph_picture, label_picture
from panacea.experiment.experiment import Experiment
from panacea.experiment.results import client_table
from panacea.experiment.rundir import RunDirectory
from panacea.report.canvas import BLUE, GREY, ORANGE, new_figure, save_figure
from panacea.report.model_figures import draw_collaboration, draw_embeddings, draw_server, draw_similarity
from panacea.report.robustness import draw_hops, draw_refused

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_run"]

_FEW_CLIENTS = 400  # up to here every client has a bar of its own


def draw_run(experiment: Experiment, directory: RunDirectory) -> list[tuple[str, str]]:
    """Draw everything; returns (file stem, caption) in the order of the page."""
    folder = directory.figures
    folder.mkdir(exist_ok=True)
    lines = read_lines(directory.metrics)
    metric = experiment.federation.task.metric
    drawn = {
        "convergence": _convergence(lines, metric, experiment.history.numbers["selected_round"]),
        "clients": _clients(experiment, metric),
    }
    for suffix in (".png", ".svg"):
        label_picture(experiment.federation, folder / f"labels{suffix}")
        if drawable(experiment.federation):
            graph_picture(experiment.federation, folder / f"graph{suffix}")
    learnt = [
        (
            "embeddings",
            draw_embeddings(experiment),
            "what the server knows of its clients: embeddings, links",
        ),
        ("models", draw_similarity(experiment), "how alike the clients' models are"),
        ("collaboration", draw_collaboration(experiment), "whose models are mixed into whose, and how much"),
        ("server", draw_server(lines), "the server's steps over rounds"),
        (
            "hops",
            draw_hops(experiment, directory),
            f"{metric} by distance from the nearest attacker on the graph: mean and standard deviation over clients",
        ),
        ("refused", draw_refused(experiment, directory), "uploads the server refused, by reason"),
    ]
    drawn |= {stem: figure for stem, figure, _ in learnt if figure is not None}
    for stem, figure in drawn.items():
        if experiment.federation.partial:
            figure.suptitle(experiment.federation.title, x=0.01, ha="left", fontsize=10)
        save_figure(figure, folder, stem)
    whose = "clients" if experiment.attackers is None else "honest clients"
    captions = [
        ("convergence", f"{metric} on test data over rounds: mean over {whose} and one standard deviation"),
        ("clients", f"{metric} of every client's own model on its own test data, sorted"),
        ("labels", "what every client has"),
    ]
    captions += [("graph", "who is related to whom")] if drawable(experiment.federation) else []
    return captions + [(stem, caption) for stem, figure, caption in learnt if figure is not None]


def _convergence(lines: list[dict[str, Any]], metric: str, selected: int) -> Figure:
    figure, axes = new_figure()
    rounds = np.array([line["round"] for line in lines])

    def column(name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        return np.array([np.nan if line[name] is None else line[name] for line in lines], float)

    mean, std = column("mean"), column("std")
    top = np.minimum(mean + std, 100) if metric == "accuracy" else mean + std
    axes.fill_between(rounds, np.maximum(mean - std, 0), top, color=BLUE, alpha=0.15, linewidth=0)
    marks: dict[str, Any] = {"marker": "o", "markersize": 3} if len(rounds) < 12 else {}
    axes.plot(rounds, mean, color=BLUE, label="training clients, test", **marks)
    axes.plot(rounds, column("val_mean"), color=GREY, linestyle=":", label="training clients, validation", **marks)
    if np.isfinite(column("novel_mean")).any():
        axes.plot(rounds, column("novel_mean"), color=ORANGE, linestyle="--", label="novel clients, test", **marks)
    axes.axvline(selected, color=GREY, linewidth=0.8, alpha=0.6)
    axes.annotate(
        "chosen", (selected, 0.02), xycoords=("data", "axes fraction"), rotation=90, fontsize=8, color=GREY, ha="right"
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
        axes.bar(place, values, color=np.where(novel, ORANGE, BLUE), width=0.8)
    else:  # thousands of bars are one colour anyway
        for chosen, colour in ((~novel, BLUE), (novel, ORANGE)):
            axes.plot(place[chosen], values[chosen], ".", color=colour, markersize=2, rasterized=True)
    if len(rows) <= 70:
        axes.set_xticks(place, [row[1] for row in rows], rotation=90, fontsize=6)
    axes.set_xlabel("client" + (" (orange: novel)" if any(row[2] for row in rows) else ""))
    axes.set_ylabel("accuracy, %" if metric == "accuracy" else "mean squared error")
    axes.grid(visible=False, axis="x")
    return figure
