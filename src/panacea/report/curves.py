"""The picture of a comparison in which a key was varied: a curve per method, as PNG and SVG."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from panacea.core.files import write_atomically
from panacea.experiment.sweep_table import Line, Swept
from panacea.experiment.table import data_title
from panacea.report.canvas import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["COLOURS", "draw_curves", "write_figures"]

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5f6b7a", "#000000")  # Okabe and Ito's
_MARKERS = "osD^vPX*"


def draw_curves(swept: Swept) -> Figure:
    """A curve per method along the first key, its spread over seeds shaded; a panel for each value of the second."""
    others: tuple[Any, ...] = swept.axes[1].values if len(swept.axes) > 1 else (None,)
    figure, axes = new_figure(2.2 + 4.2 * min(len(others), 4), 3.9)
    figure.clear()
    lines, methods = swept.lines(), list(dict.fromkeys(outcome.method for outcome in swept.outcomes))
    panels: list[Axes] = []
    for number, other in enumerate(others, 1):
        axes = figure.add_subplot(1, len(others), number, sharey=panels[0] if panels else None)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
        for line in (line for line in lines if line.other == other):
            _curve(axes, swept, line, methods.index(line.method))
        lost = any(cell.mean is None for line in lines for cell in line.cells)
        axes.set_xlabel(_AXES.get(swept.axes[0].key, swept.axes[0].key) + (" (x: a run failed)" if lost else ""))
        if len(swept.axes) > 1:
            axes.set_title(f"{swept.axes[1].key}={other}", fontsize=9)
        panels.append(axes)
    whose = "honest clients" if swept.attacked else "clients"
    metric = "accuracy, %" if swept.higher_is_better else "mean squared error"
    panels[0].set_ylabel(f"{metric} (mean over {whose})")
    figure.suptitle(data_title(swept.first) + (f", {swept.request}" if swept.request else ""), fontsize=9)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=8)
    return figure


_AXES = {"attack.ratio": "share of training clients that attack"}


def _curve(axes: Axes, swept: Swept, line: Line, number: int) -> None:
    axis, colour = swept.axes[0], COLOURS[number % len(COLOURS)]
    place = np.array(axis.values, float) if axis.numeric else np.arange(len(axis.values), dtype=float)
    mean = np.array([np.nan if cell.mean is None else cell.mean for cell in line.cells])
    around = np.array([0.0 if cell.spread is None else cell.spread for cell in line.cells])
    if around.any():
        top = np.minimum(mean + around, 100) if swept.higher_is_better else mean + around
        axes.fill_between(place, np.maximum(mean - around, 0), top, color=colour, alpha=0.13, linewidth=0)
    look: dict[str, Any] = {"marker": _MARKERS[number % len(_MARKERS)], "markersize": 4, "linewidth": 1.4}
    axes.plot(place, mean, color=colour, label=line.method, linestyle="-" if number < len(COLOURS) else "--", **look)
    lost = np.isnan(mean)
    if lost.any():  # beside each other along the lower edge
        width = (place.max() - place.min()) / max(len(place) - 1, 1)
        edge = axes.get_xaxis_transform()
        beside = place[lost] + 0.09 * width * (number - 3)
        axes.plot(beside, np.full(lost.sum(), 0.02), "x", color=colour, markersize=5, transform=edge, clip_on=False)
    if not axis.numeric:
        axes.set_xticks(place, [str(value) for value in axis.values])


def write_figures(figure: Figure, folder: Path, stem: str) -> None:
    """PNG and SVG, each whole or not at all."""
    for suffix in ("png", "svg"):
        content = io.BytesIO()
        figure.savefig(content, format=suffix, metadata={"Date": None} if suffix == "svg" else None)
        write_atomically(folder / f"{stem}.{suffix}", content.getvalue())
