"""The figures of a reproduction: curves over rounds, along a key, clients' values, weights between clients."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from panacea.experiment.reproduce import Cell, Reproduction
from panacea.experiment.reproduce.entry import Block, Column
from panacea.experiment.reproduce.measures import client_metrics, curve
from panacea.report.canvas import new_figure
from panacea.report.curves import COLOURS, write_figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_reproduction"]

_LINES = ("-", "--", "-.", ":", (0, (1, 1)))


def draw_reproduction(found: Reproduction, folder: Path) -> list[str]:
    """Draw what the entry asks for, as PNG and SVG; returns the names of the figures."""
    kind = found.plan.entry.figure
    run = {cell.column.name for cell in found.cells if cell.ours is not None}
    columns = [column for column in found.plan.entry.columns if column.name in run]
    if kind == "none" or not columns:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    write_figures(_DRAW[kind](found, columns), folder, "figure")
    return ["figure"]


def _panels(count: int, width: float = 3.6, height: float = 3.2) -> tuple[Figure, list[Axes]]:
    """At most three side by side."""
    across = min(count, 3)
    figure, _ = new_figure(width * across + 1.6, height * -(-count // across))
    figure.clear()
    panels = [figure.add_subplot(-(-count // across), across, number + 1) for number in range(count)]
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
        axes.set_axisbelow(True)
    return figure, panels


def _finish(figure: Figure, panels: Sequence[Axes]) -> Figure:
    handles: dict[str, Any] = {}
    for axes in panels:
        drawn, labels = axes.get_legend_handles_labels()
        handles |= dict(zip(labels, drawn, strict=True))
    if handles:
        figure.legend(list(handles.values()), list(handles), loc="outside right upper", frameon=False, fontsize=8)
    return figure


def _look(found: Reproduction, cell: Cell) -> dict[str, Any]:
    """A colour for every method, the same in all panels."""
    number = [row.name for row in found.plan.rows].index(cell.row.name)
    line = _LINES[number % len(_LINES)]  # where two lie on each other, both are seen
    return {"color": COLOURS[number % len(COLOURS)], "linestyle": line, "label": cell.row.name, "linewidth": 1.3}


def _title(axes: Axes, name: str, cells: Sequence[Cell]) -> None:
    label = next((cell.label for cell in cells if cell.label), "").partition(":")[0]
    axes.set_title(name + (f" ({label[:40]})" if label else ""), fontsize=9, loc="left")


def _metric(block: Block) -> str:
    return "accuracy, %" if block.metric == "accuracy" else block.unit


def _over_rounds(found: Reproduction, columns: Sequence[Column]) -> Figure:
    """The mean over clients at every evaluation, averaged over seeds."""
    figure, panels = _panels(len(columns))
    for axes, column in zip(panels, columns, strict=True):
        cells = [cell for cell in found.of(column.name) if cell.ours is not None]
        for cell in cells:
            curves = [curve(one.finished.directory) for one in cell.outcomes]
            values = np.mean([value for _, value in curves], axis=0) * column.block.scale
            axes.plot(curves[0][0], values, **_look(found, cell))
        _title(axes, column.block.name, cells)
        axes.set_xlabel("round")
        axes.set_ylabel(_metric(column.block))
        if column.block.metric == "mse":
            axes.set_yscale("log")
    return _finish(figure, panels)


def _along_axis(found: Reproduction, columns: Sequence[Column]) -> Figure:
    """Ours against the varied key; bars are the spread over seeds."""
    figure, panels = _panels(len(columns))
    for axes, column in zip(panels, columns, strict=True):
        cells = found.of(column.name)
        values = list(dict.fromkeys(cell.value for cell in cells))
        for name in dict.fromkeys(cell.row.name for cell in cells):
            own = [cell for cell in cells if cell.row.name == name and cell.ours is not None]
            if own:
                place = [values.index(cell.value) for cell in own]
                mean = [cell.ours.mean for cell in own if cell.ours]
                around = [(cell.ours.between if cell.ours else None) or 0.0 for cell in own]
                axes.errorbar(place, mean, around, marker="o", markersize=3, capsize=2, **_look(found, own[0]))
        axes.ticklabel_format(axis="y", useOffset=False)  # 99.98, not -0.02 with a 100 above
        axes.set_xticks(range(len(values)), [str(value) for value in values])
        axes.set_xlabel(column.block.axis.key if column.block.axis else "")
        axes.set_ylabel(_metric(column.block) + (", novel clients" if "novel" in column.measure.key else ""))
        _title(axes, column.name, cells)
    return _finish(figure, panels)


def _over_clients(found: Reproduction, columns: Sequence[Column]) -> Figure:
    """For every method the share of clients with at most so much: the further right, the better."""
    figure, panels = _panels(len(columns))
    for axes, column in zip(panels, columns, strict=True):
        cells = [cell for cell in found.of(column.name) if cell.ours is not None]
        for cell in cells:
            values = np.sort([v for one in cell.outcomes for v in client_metrics(one.finished.directory).values()])
            share = np.arange(1, len(values) + 1) / len(values)
            axes.step(values * column.scale, share, where="post", **_look(found, cell))
        axes.set_xlabel(f"a client's {_metric(column.block)}")
        axes.set_ylabel("share of clients at or below")
        _title(axes, column.block.name, cells)
    return _finish(figure, panels)


def _between_clients(found: Reproduction, columns: Sequence[Column]) -> Figure:
    """Weights of others in each client's model, first seed; white lines part the groups."""
    cells = [cell for column in columns for cell in found.of(column.name) if cell.ours is not None]
    figure, panels = _panels(len(cells), 4.0, 3.8)
    for axes, cell in zip(panels, cells, strict=True):
        directory = cell.outcomes[0].finished.directory
        with np.load(directory / "collaboration.npz", allow_pickle=False) as file:
            weights, clients = np.array(file["weights"]), np.array(file["clients"])
        np.fill_diagonal(weights, np.nan)  # a client's own share would hide all others
        image = axes.imshow(weights, cmap="viridis", interpolation="nearest", aspect="equal")
        groups = _groups(directory)[clients]
        for place in np.flatnonzero(np.diff(groups)) + 0.5:
            axes.axhline(place, color="white", linewidth=0.8)
            axes.axvline(place, color="white", linewidth=0.8)
        axes.grid(visible=False)
        axes.set_xlabel("weight of client")
        axes.set_ylabel("in the model of client")
        figure.colorbar(image, ax=axes, shrink=0.75)
        _title(axes, f"{cell.row.name}, {cell.column.block.name}", [cell])
    return figure


def _groups(directory: Path) -> np.ndarray[Any, np.dtype[np.int64]]:
    with (directory / "clients.csv").open(encoding="utf-8", newline="") as file:
        return np.array([int(row["group"] or 0) for row in csv.DictReader(file)], np.int64)


_DRAW: dict[str, Callable[[Reproduction, Sequence[Column]], Figure]] = {
    "curves": _over_rounds,
    "axis": _along_axis,
    "clients": _over_clients,
    "weights": _between_clients,
}
