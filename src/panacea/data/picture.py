"""Pictures of a federation: who has what (labels, or the spread of targets), and who is related to whom."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from panacea.data.registry import dataset_names, find_dataset
from panacea.data.storage import contents
from panacea.errors import RequestError
from panacea.graphs.draw import DRAWN_UP_TO, draw_graph, write_figure

if TYPE_CHECKING:
    from panacea.data.federation import Federation

__all__ = [
    "clients_height",
    "drawable",
    "graph_picture",
    "label_counts",
    "label_picture",
    "paint_clients",
    "picture_path",
    "places",
]

_BLUE, _ORANGE, _GREY, _BAND = "#0072b2", "#d55e00", "#5f6b7a", "#eef2f6"  # Okabe and Ito's colours, and greys
_EAST, _NORTH = ("longitude", "easting"), ("latitude", "northing")  # words of `Card.features`
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

    out = picture_path(path)
    n = len(federation)
    size = (min(max(3.0 + 0.26 * n, 6.0), 14.0), clients_height(federation))
    figure = Figure(figsize=size, dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    paint_clients(figure, federation, f"{federation.title}: {federation.total:,} samples of {_clients(n)}")
    return write_figure(figure, out)


def picture_path(path: str | os.PathLike[str]) -> Path:
    """The file to write, if its format is one of ours."""
    out = Path(path)
    if out.suffix.lower() not in (".png", ".svg"):
        raise RequestError(f"{out}: the picture must be a .png or .svg file")
    return out


def clients_height(federation: Federation) -> float:
    """Inches that suit `paint_clients`."""
    if federation.task.kind != "classification":
        return 4.0
    return min(max(2.2 + 0.26 * federation.task.classes, 3.6), 9.0)


def paint_clients(figure: Any, federation: Federation, title: str) -> None:
    """Draw what `label_picture` shows into an empty figure or part of one."""
    axes = figure.add_subplot()
    if federation.task.kind != "classification":
        _spread(axes, federation)
    elif len(federation) <= _FEW_CLIENTS and federation.task.classes <= _FEW_CLASSES:
        _dots(figure, axes, federation)
    else:
        _heat(figure, axes, federation)
    _finish(figure, axes, federation, title)


def places(federation: Federation) -> npt.NDArray[np.float64] | None:
    """Where the clients are, ``[clients, 2]`` east and north, if their features say so; else None.

    Latitude and longitude (or northing and easting) are told by the data set's card; of any other features two columns
    are taken as they are. A map whose sides were both scaled to [0, 1] is drawn three to two, because its true shape is
    not known.
    """
    features = federation.features
    if features is None:
        return None
    words = find_dataset(federation.name).card.features if federation.name in dataset_names() else ()
    east, north = ([i for i, word in enumerate(words) if word in some] for some in (_EAST, _NORTH))
    if len(words) == features.shape[1] and east and north:
        found = features[:, [east[0], north[0]]].astype(np.float64)
        scaled = np.allclose(found.min(axis=0), 0, atol=1e-3) and np.allclose(found.max(axis=0), 1, atol=1e-3)
        return found * [1.5, 1.0] if scaled else found
    return features.astype(np.float64) if features.shape[1] == 2 else None


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
    return draw_graph(
        federation.graph,
        path,
        places(federation),
        federation.groups,
        names=federation.names,
        novel=federation.novel,
        title=federation.title,
    )


def _clients(n: int) -> str:
    return f"{n:,} client{'s' if n > 1 else ''}"


def _dots(figure: Any, axes: Any, federation: Federation) -> None:
    counts = label_counts(federation)
    n, classes = counts.shape
    most = max(int(counts.max()), 1)
    box = np.array(figure.bbox.size) / figure.dpi * 72  # points
    cell = min(0.70 * box[0] / max(n, 1), 0.66 * box[1] / max(classes, 1))  # points between neighbouring dots
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
    values = [contents(federation.y[start:end]).numpy() for start, _, _, end in federation.bounds]
    marks = np.array([_quantiles(value[np.isfinite(value)]) for value in values])
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


def _quantiles(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    marks = (0.05, 0.25, 0.5, 0.75, 0.95)
    return np.quantile(values.astype(np.float64), marks) if len(values) else np.full(len(marks), np.nan)


def _ticks_of_classes(axes: Any, federation: Federation) -> None:
    classes = federation.task.classes
    step = max(1, classes // 30 + (classes % 30 > 0 and classes > 30))
    names = federation.task.class_names or tuple(str(label) for label in range(classes))
    axes.set_yticks(range(0, classes, step), [names[i] if i < len(names) else str(i) for i in range(0, classes, step)])
    axes.set_ylabel("class")


def _finish(figure: Any, axes: Any, federation: Federation, title: str) -> None:
    """Clients on the x axis, groups above it, a title, no frame."""
    n = len(federation)
    longest = max(len(name) for name in federation.names)
    if n <= _FEW_CLIENTS:
        room = 0.75 * figure.bbox.width / figure.dpi / n  # inches per client
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
    axes.set_title(title, loc="left", fontsize=11, pad=22 if groups is not None else 10)
    marks = axes.get_legend_handles_labels()[0]
    if marks:
        dots = [np.sqrt(np.max(mark.get_sizes(), initial=0)) for mark in marks if hasattr(mark, "get_sizes")]
        room = max(1.2, float(max(dots, default=0)) / 8 - 0.6)  # in letters of 8 points
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8, labelspacing=room)
