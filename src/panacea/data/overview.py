"""One picture of a data set: what some clients have, who is related to whom, and a few samples."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from panacea.data.federation import Federation
from panacea.data.picture import clients_height, drawable, paint_clients, picture_path, places
from panacea.data.storage import contents, decoded
from panacea.graphs.draw import paint_graph, write_figure
from panacea.graphs.layout import force_layout

__all__ = ["evenly", "federation_picture", "some_clients"]

_SHOWN = 16  # clients of the distribution
_EXAMPLES = 4  # clients whose samples are shown
_STEPS = 288  # of a series; a day of five-minute values
_IMAGES = (2, 6)  # rows and columns of images per client
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")  # Okabe and Ito's


def federation_picture(federation: Federation, path: str | os.PathLike[str]) -> Path:
    """Draw a federation.

    On the left the labels (or the spread of targets) of 16 clients, evenly chosen where there are more; on the right
    the relation graph, on a map where the clients have coordinates; below, samples of four clients: images, a stretch
    of a series, or points in the plane.

    Args:
        federation: what to draw.
        path: file to write; its suffix (.png or .svg) says the format.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415  (heavy)
    from matplotlib.figure import Figure  # noqa: PLC0415

    out = picture_path(path)
    related, samples = federation.graph is not None, _sampler(federation)
    width, top = 14.0 if related else 9.0, max(clients_height(federation), 4.4)
    bottom = 0.0 if samples is None else _height(federation, width)
    figure = Figure(figsize=(width, top + bottom + 0.4), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    total = f"{federation.total:,} samples of {len(federation):,} client{'s' if len(federation) > 1 else ''}"
    figure.suptitle(f"{federation.title}: {total}", x=0.01, ha="left", fontsize=13)
    rows: Any = figure.subfigures(1 if samples is None else 2, 1, height_ratios=[top, bottom] if bottom else [top])
    upper, lower = (rows, None) if samples is None else tuple(rows)
    left, right = upper.subfigures(1, 2, width_ratios=[8, 6]) if related else (upper, None)
    shown = some_clients(federation, _SHOWN)
    several = len(shown) < len(federation)
    what = "labels" if federation.task.kind == "classification" else "targets"
    paint_clients(left, shown, f"{what} of {len(shown)} clients" + (" (evenly chosen)" if several else ""))
    if samples is not None and lower is not None:
        chosen = evenly(len(federation), _EXAMPLES)
        panels = np.atleast_1d(lower.subplots(1, len(chosen), sharey=samples is _series, gridspec_kw={"wspace": 0.06}))
        for place, (axes, client) in enumerate(zip(panels, chosen.tolist(), strict=True)):
            samples(axes, federation, client, first=place == 0)
            axes.set_title(f"client {federation.names[client][:24]}", loc="left", fontsize=9)
    if federation.graph is not None and right is not None:
        _graph(right, federation)  # last: names go where there is room
    return write_figure(figure, out)


def evenly(n: int, count: int) -> npt.NDArray[np.int64]:
    """At most `count` of n positions, from the first to the last, evenly apart.

    >>> evenly(10, 4).tolist(), evenly(3, 4).tolist()
    ([0, 3, 6, 9], [0, 1, 2])
    """
    return np.unique(np.linspace(0, n - 1, min(n, count)).round()).astype(np.int64)


def some_clients(federation: Federation, count: int) -> Federation:
    """At most so many clients of a federation, evenly chosen, without their graph."""
    ids = evenly(len(federation), count)
    if len(ids) == len(federation):
        return federation
    return dataclasses.replace(
        federation,
        bounds=federation.bounds[ids],
        names=tuple(federation.names[i] for i in ids),
        graph=None,
        groups=None if federation.groups is None else federation.groups[ids],
        features=None if federation.features is None else federation.features[ids],
        novel=federation.novel[ids],
    )


def _graph(figure: Any, federation: Federation) -> None:
    graph = federation.graph
    assert graph is not None
    if not drawable(federation):
        axes = figure.add_subplot()
        axes.set_axis_off()
        words = f"{graph.n:,} clients, {len(graph.edges):,} edges:\ntoo many to draw"
        axes.text(0.5, 0.5, words, ha="center", va="center", transform=axes.transAxes)
        return
    where = places(federation)
    span = np.ones(2) if where is None else np.maximum(np.ptp(where, axis=0), 1e-9)
    even = bool(span.max() <= 4 * span.min())
    where = force_layout(graph) if where is None else where
    title = "map" if federation.features is not None and places(federation) is not None else "relation graph"
    paint_graph(
        figure, graph, where, federation.groups, names=federation.names, novel=federation.novel, title=title, even=even
    )


def _sampler(federation: Federation) -> Any:
    """How samples of a client are drawn, if they can be."""
    task = federation.task
    if len(task.inputs) == 3 and task.inputs[0] in (1, 3):
        return _images
    if task.kind == "forecasting" and len(task.outputs) == 1:
        return _series
    return _points if task.kind == "classification" and task.inputs == (2,) else None


def _height(federation: Federation, width: float) -> float:
    """Inches that the samples take."""
    if len(federation.task.inputs) != 3:
        return 2.3
    _, tall, wide = federation.task.inputs
    return width / _EXAMPLES * (_IMAGES[0] * tall) / (_IMAGES[1] * wide) + 0.5


def _inputs(federation: Federation, client: int, most: int) -> tuple[Tensor, Tensor]:
    """The first train samples of a client; nothing else is read."""
    first, end = (int(place) for place in federation.bounds[client, :2])
    part = slice(first, min(end, first + most))
    x = federation.x[part] if federation.rows is None else federation.x[federation.rows[part]]
    return decoded(x, torch.float32), federation.y[part]


def _images(axes: Any, federation: Federation, client: int, *, first: bool) -> None:
    rows, columns = _IMAGES
    x, _ = _inputs(federation, client, rows * columns)
    channels, height, width = federation.task.inputs
    sheet = np.ones((rows * (height + 1) - 1, columns * (width + 1) - 1, channels), np.float32)
    low, high = float(x.min()), float(x.max())
    for place, image in enumerate(((x - low) / max(high - low, 1e-9)).numpy()):
        row, column = divmod(place, columns)
        y0, x0 = row * (height + 1), column * (width + 1)
        sheet[y0 : y0 + height, x0 : x0 + width] = image.transpose(1, 2, 0)
    axes.imshow(sheet.squeeze(), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    axes.set_axis_off()


def _series(axes: Any, federation: Federation, client: int, *, first: bool) -> None:
    start, end = (int(place) for place in federation.bounds[client, :2])
    y = federation.y[start:end]
    overlapping = len(y) > 1 and y.stride(0) < y.shape[1]
    values = (contents(y) if overlapping else y[:, 0]).numpy()
    seen = np.flatnonzero(np.isfinite(values))
    values = values[seen[0] if len(seen) else 0 :][:_STEPS]
    axes.plot(np.arange(len(values)), values, color=_COLOURS[0], linewidth=0.9)
    axes.set_xlabel("steps from the start of training")
    if first:
        axes.set_ylabel(federation.task.scale)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)


def _points(axes: Any, federation: Federation, client: int, *, first: bool) -> None:
    x, y = _inputs(federation, client, 500)
    for label in y.unique().tolist():
        own = x[y == label]
        names = federation.task.class_names
        name = names[label] if label < len(names) else f"class {label}"
        axes.scatter(own[:, 0], own[:, 1], s=9, color=_COLOURS[label % len(_COLOURS)], linewidths=0, label=name)
    axes.set_aspect("equal", adjustable="datalim")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    if first:
        axes.legend(frameon=False, fontsize=7, loc="best", handletextpad=0.1)
