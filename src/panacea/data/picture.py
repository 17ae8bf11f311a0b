"""Pictures of a federation: who has what (labels, or the spread of targets), and who is related to whom."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from panacea.errors import RequestError
from panacea.graphs.draw import DRAWN_UP_TO, draw_graph, write_figure

if TYPE_CHECKING:
    from panacea.data.federation import Federation

__all__ = ["drawable", "graph_picture", "label_counts", "label_picture"]

_BLUE, _ORANGE, _GREY, _BAND = "#0072b2", "#d55e00", "#5f6b7a", "#eef2f6"  # Okabe and Ito's colours, and greys
_FEW_CLIENTS, _FEW_CLASSES = 64, 40  # up to here every client has a mark of its own


def label_counts(federation: Federation) -> npt.NDArray[np.int64]:
    """Samples of every class at every client, all splits together, ``[clients, classes]``."""
    classes = federation.task.classes
    spans = enumerate(federation.bounds[:, [0, 3]])
    marks = np.concatenate([client * classes + federation.y[first:end].numpy() for client, (first, end) in spans])
    flat = np.bincount(marks, minlength=len(federation) * classes)
    return flat.reshape(len(federation), classes).astype(np.int64)


def label_picture(federation: Federation, path: str | os.PathLike[str]) -> Path:
    """Draw the label distribution (classification) or the spread of targets (otherwise) of every client.

    Classes: a dot per client and class whose area is the number of samples; many clients or classes: a heat map of
    shares. Amounts: a box per client; many clients: bands of quantiles. Groups are marked above, held-out clients
    drawn in orange (many clients: with an orange mark below).

    Args:
        federation: what to draw.
        path: file to write; its suffix (.png or .svg) says the format.

    Returns:
        The path.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415  (heavy)
    from matplotlib.figure import Figure  # noqa: PLC0415

    out = Path(path)
    if out.suffix.lower() not in (".png", ".svg"):
        raise RequestError(f"{out}: the picture must be a .png or .svg file")
    n = len(federation)
    classes = federation.task.classes
    is_labels = federation.task.kind == "classification"
    height = min(max(2.2 + 0.26 * classes, 3.6), 9.0) if is_labels else 4.0
    figure = Figure(figsize=(min(max(3.0 + 0.26 * n, 6.0), 14.0), height), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    if is_labels and n <= _FEW_CLIENTS and classes <= _FEW_CLASSES:
        _dots(axes, federation)
    elif is_labels:
        _heat(figure, axes, federation)
    else:
        _spread(axes, federation)
    _finish(axes, federation)
    return write_figure(figure, out)


def drawable(federation: Federation) -> bool:
    """Whether there is a graph, and not too large a one for a picture."""
    return federation.graph is not None and federation.graph.n <= DRAWN_UP_TO


def graph_picture(federation: Federation, path: str | os.PathLike[str]) -> Path:
    """Draw the relation graph: where the clients are if their features are coordinates, coloured by group or degree.

    Args:
        federation: what to draw; it must have a graph.
        path: file to write; its suffix (.png, .svg or .pdf) says the format.
    """
    if federation.graph is None:
        raise RequestError(f"{federation.name} has no relation graph to draw")
    features = federation.features
    return draw_graph(
        federation.graph,
        path,
        features if features is not None and features.shape[1] == 2 else None,
        federation.groups,
        names=federation.names,
        novel=federation.novel,
        title=federation.name,
    )


def _dots(axes: Any, federation: Federation) -> None:
    counts = label_counts(federation)
    n, classes = counts.shape
    most = max(int(counts.max()), 1)
    box = axes.get_figure().get_size_inches() * 72
    cell = min(0.80 * box[0] / max(n, 1), 0.66 * box[1] / max(classes, 1))  # points between neighbouring dots
    largest = (0.92 * cell) ** 2
    client, label = np.nonzero(counts)
    colours = np.where(federation.novel[client], _ORANGE, _BLUE)
    sizes = counts[client, label] / most * largest
    axes.scatter(client, label, s=sizes, c=colours.tolist(), linewidths=0, zorder=3)
    for legend_count in sorted({most, max(most // 4, 1)}, reverse=True):
        size = legend_count / most * largest
        axes.scatter([], [], s=size, c=_BLUE, linewidths=0, label=f"{legend_count} samples")
    _ticks_of_classes(axes, federation)
    axes.set_xlim(-0.7, n - 0.3)
    axes.set_ylim(-0.7, classes - 0.3)


def _heat(figure: Any, axes: Any, federation: Federation) -> None:
    counts = label_counts(federation)
    share = 100 * counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    image = axes.imshow(share.T, aspect="auto", origin="lower", cmap="cividis", interpolation="nearest", vmin=0)
    figure.colorbar(image, ax=axes, label="share of the client's samples (%)", pad=0.01)
    _ticks_of_classes(axes, federation)


def _spread(axes: Any, federation: Federation) -> None:
    values = [federation.y[start:end].numpy().reshape(-1) for start, _, _, end in federation.bounds]
    marks = np.array([np.quantile(value, (0.05, 0.25, 0.5, 0.75, 0.95)) for value in values])
    if len(values) <= _FEW_CLIENTS:
        names = ("whislo", "q1", "med", "q3", "whishi")
        boxes = [dict(zip(names, row, strict=True)) for row in marks.tolist()]
        drawn = axes.bxp(boxes, positions=range(len(boxes)), widths=0.6, showfliers=False, patch_artist=True)
        for i, patch in enumerate(drawn["boxes"]):
            patch.set(facecolor=_ORANGE if federation.novel[i] else _BLUE, alpha=0.55, edgecolor="none")
        for line in drawn["medians"]:
            line.set(color="black", linewidth=1.4)
        for line in drawn["whiskers"] + drawn["caps"]:
            line.set(color=_GREY, linewidth=1.0)
        axes.plot([], [], color=_BLUE, alpha=0.55, linewidth=7, label="25 to 75 %")
        axes.plot([], [], color=_GREY, linewidth=1.0, label="5 to 95 %")
        axes.plot([], [], color="black", linewidth=1.4, label="median")
    else:
        place = np.arange(len(values))
        axes.fill_between(place, marks[:, 0], marks[:, 4], color=_BLUE, alpha=0.18, linewidth=0, label="5 to 95 %")
        axes.fill_between(place, marks[:, 1], marks[:, 3], color=_BLUE, alpha=0.4, linewidth=0, label="25 to 75 %")
        axes.plot(place, marks[:, 2], color="black", linewidth=1.0, label="median")
    axes.set_ylabel(f"target ({federation.task.scale})")
    axes.set_xlim(-0.7, len(values) - 0.3)
    axes.grid(axis="y", color="#d9dfe5", linewidth=0.6)
    axes.set_axisbelow(True)


def _ticks_of_classes(axes: Any, federation: Federation) -> None:
    classes = federation.task.classes
    step = max(1, classes // 30 + (classes % 30 > 0 and classes > 30))
    names = federation.task.class_names or tuple(str(label) for label in range(classes))
    axes.set_yticks(range(0, classes, step), [names[i] if i < len(names) else str(i) for i in range(0, classes, step)])
    axes.set_ylabel("class")


def _finish(axes: Any, federation: Federation) -> None:
    """Clients on the x axis, groups above it, a title, no frame."""
    n = len(federation)
    longest = max(len(name) for name in federation.names)
    if n <= _FEW_CLIENTS:
        room = 0.75 * axes.get_figure().get_size_inches()[0] / n  # inches per client
        turn = 0 if 0.075 * min(longest, 18) <= room else 90
        axes.set_xticks(range(n), [name[:18] for name in federation.names], rotation=turn, fontsize=8)
    axes.set_xlabel("client")
    axes.tick_params(length=0, pad=8 if n > _FEW_CLIENTS else 4)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)
    groups = federation.groups
    if groups is not None and (np.diff(groups) >= 0).all():
        for g in np.unique(groups):
            first, last = np.flatnonzero(groups == g)[[0, -1]]
            if g % 2 == 0:
                axes.axvspan(first - 0.5, last + 0.5, color=_BAND, linewidth=0, zorder=0)
            top = axes.get_xaxis_transform()
            axes.text((first + last) / 2, 1.01, f"group {g}", transform=top, ha="center", va="bottom", color=_GREY)
    if federation.novel.any():
        axes.scatter([], [], s=30, c=_ORANGE, linewidths=0, label="held out of training")
        if n > _FEW_CLIENTS:  # clients have no mark of their own that could be orange
            low, bottom = np.full(len(federation.novel_ids), -0.015), axes.get_xaxis_transform()
            axes.scatter(federation.novel_ids, low, s=12, c=_ORANGE, linewidths=0, transform=bottom, clip_on=False)
    title = f"{federation.title}: {federation.total:,} samples of {n} client{'s' if n > 1 else ''}"
    axes.set_title(title, loc="left", fontsize=11, pad=22 if groups is not None else 10)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8, labelspacing=1.2)
