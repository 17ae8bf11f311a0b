"""A picture of a relation graph."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from panacea.errors import RequestError
from panacea.graphs.client_graph import ClientGraph
from panacea.graphs.layout import force_layout

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["DRAWN_UP_TO", "draw_graph", "paint_graph", "write_figure"]

DRAWN_UP_TO = 2000  # clients
_NAMED_UP_TO = 60  # clients
_LETTERS = 7.0  # points
_EDGES_DRAWN = 20_000
_VECTORS_UP_TO = 5_000  # edges; more would make an SVG of many megabytes, so they are pixels in it, without arrows
_LINE, _INK = "#44505c", "#1b2733"
_SUFFIXES = (".png", ".svg", ".pdf")
_PALETTE = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#d55e00",
    "#7f6dbf",
    "#8c6d31",
    "#5f6b7a",
    "#b5bd61",
)  # fmt: skip  (Okabe and Ito's colours first: readable by everyone)


def draw_graph(
    graph: ClientGraph,
    path: str | os.PathLike[str],
    positions: npt.NDArray[np.floating[Any]] | None = None,
    colours: npt.NDArray[np.int64] | None = None,
    *,
    names: Sequence[str] | None = None,
    novel: npt.NDArray[np.bool_] | None = None,
    title: str | None = None,
    seed: int = 0,
) -> Path:
    """Draw a graph: clients as discs, novel ones as squares, edges as thin lines (arrows to who listens).

    Args:
        graph: at most 2,000 clients; of more than 20,000 edges only so many are drawn, which the title says.
        path: file to write; its suffix (.png, .svg or .pdf) says the format.
        positions: ``[n, 2]`` coordinates of the clients; by default a force-directed layout.
        colours: ``[n]`` a group per client, which decides its colour; by default its degree does.
        names: one per client, written where there are at most 60.
        novel: ``[n]`` which clients are held out of training.
        title: what stands above.
        seed: of the layout.

    Raises:
        RequestError: the format is not known, or there are too many clients.
    """
    out = Path(path)
    if out.suffix.lower() not in _SUFFIXES:
        raise RequestError(f"{out}: the picture of a graph must be a .png, .svg or .pdf file")
    if graph.n > DRAWN_UP_TO:
        raise RequestError(f"{out}: a graph of {graph.n:,} clients is too large to draw; at most {DRAWN_UP_TO:,}")
    if positions is not None and np.shape(positions) != (graph.n, 2):
        raise RequestError(f"positions: [{graph.n}, 2] is needed, not {list(np.shape(positions))}")
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415  (heavy)
    from matplotlib.figure import Figure  # noqa: PLC0415

    places = force_layout(graph, seed) if positions is None else np.asarray(positions, np.float64)
    figure = Figure(figsize=_size(places), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    even = positions is None or not _stretched(places)
    paint_graph(figure, graph, places, colours, names=names, novel=novel, title=title, even=even, seed=seed)
    return write_figure(figure, out)


def paint_graph(
    figure: Any,
    graph: ClientGraph,
    places: npt.NDArray[np.float64],
    colours: npt.NDArray[np.int64] | None = None,
    *,
    names: Sequence[str] | None = None,
    novel: npt.NDArray[np.bool_] | None = None,
    title: str | None = None,
    even: bool = True,
    seed: int = 0,
) -> None:
    """Draw a graph into an empty figure or part of one; arguments as those of `draw_graph`.

    With `even` one unit is as long across as up, else the picture is filled. Everything else of the figure must have
    been drawn before: names are put where there is room.
    """
    axes = figure.add_subplot()
    drawn = _edges(axes, graph, places, seed)
    axes.set_axis_off()
    low, span = places.min(axis=0), np.maximum(np.ptp(places, axis=0), 1e-9)
    margin = np.maximum(0.06 * span, 0.06 * span.max() if even else 0)
    axes.set_xlim(low[0] - margin[0], low[0] + span[0] + margin[0])
    axes.set_ylim(low[1] - margin[1], low[1] + span[1] + margin[1])
    axes.set_aspect("equal" if even else "auto")
    heading = f"{graph.n} clients, {len(graph.edges):,} edges"
    heading += f", {drawn:,} of them drawn" if drawn < len(graph.edges) else ""
    axes.set_title(heading if title is None else f"{title}: {heading}", loc="left", fontsize=11)
    _clients(figure, axes, graph, places, colours, novel, names)


def _stretched(places: npt.NDArray[np.float64]) -> bool:
    """Whether coordinates are so much longer one way that equal units would make a line of them."""
    span = np.maximum(np.ptp(places, axis=0), 1e-9)
    return bool(max(span) > 4 * min(span))


def write_figure(figure: Figure, out: Path) -> Path:
    """Write a figure, the same bytes every time; a place that cannot be written to is a wrong request."""
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)  # a line for every font it does without
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(out, metadata={"Date": None} if out.suffix.lower() == ".svg" else None)
    except OSError as error:
        raise RequestError(f"{out} cannot be written: {error.strerror or error}") from None
    return out


def _size(places: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Inches that suit the shape of the layout."""
    width, height = np.maximum(np.ptp(places, axis=0), 1e-9)
    shape = float(np.clip(height / width, 0.45, 1.1))
    return 8.0, 8.0 * shape * 0.85 + 0.4


def _edges(axes: Any, graph: ClientGraph, places: npt.NDArray[np.float64], seed: int) -> int:
    """Draw the edges, or as many as make sense; returns how many."""
    from matplotlib.collections import LineCollection  # noqa: PLC0415

    edges, weights = graph.edges, graph.weights.astype(np.float64)
    if len(edges) > _EDGES_DRAWN:
        chosen = np.sort(np.random.default_rng(seed).permutation(len(edges))[:_EDGES_DRAWN])
        edges, weights = edges[chosen], weights[chosen]
    if not len(edges):
        return 0
    strength = 0.35 + 0.65 * weights / weights.max() if graph.weighted else np.ones(len(edges))
    alpha = float(np.clip(8 / np.sqrt(len(edges)), 0.06, 0.6))
    pixels = len(edges) > _VECTORS_UP_TO
    start, end = places[edges[:, 0]], places[edges[:, 1]]
    if graph.directed and not pixels:
        for tail, head, wide in zip(start, end, strength, strict=True):
            axes.annotate(
                "", head, tail, zorder=1,
                arrowprops={
                    "arrowstyle": "-|>,head_width=0.18,head_length=0.36", "shrinkA": 4, "shrinkB": 5, "alpha": alpha,
                    "linewidth": 0.9 * wide, "color": _LINE, "connectionstyle": "arc3,rad=0.08",
                },
            )  # fmt: skip
    else:
        lines = np.stack([start, end], axis=1)
        axes.add_collection(
            LineCollection(
                lines.tolist(), colors=_LINE, alpha=alpha, linewidths=0.8 * strength, zorder=1, rasterized=pixels
            )
        )
    return len(edges)


def _clients(
    figure: Any,
    axes: Any,
    graph: ClientGraph,
    places: npt.NDArray[np.float64],
    colours: npt.NDArray[np.int64] | None,
    novel: npt.NDArray[np.bool_] | None,
    names: Sequence[str] | None,
) -> None:
    """Discs and squares, coloured, with names and a legend."""
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415

    size = float(np.clip(6000 / graph.n, 6, 70))
    held = np.zeros(graph.n, np.bool_) if novel is None else novel
    kinds, numbers = np.unique(colours if colours is not None else graph.degree, return_inverse=True)
    paint: dict[str, Any] = {"linewidths": 0.6, "edgecolors": "white"}
    if colours is None:
        paint |= {"cmap": "viridis", "vmin": float(kinds[0]), "vmax": float(max(kinds[-1], kinds[0] + 1))}
    marks = None
    for chosen, marker, scale in ((~held, "o", 1.0), (held, "s", 0.9)):
        if chosen.any():
            value: Any = graph.degree[chosen].astype(np.float64)
            if colours is not None:
                value = [_PALETTE[i % len(_PALETTE)] for i in numbers[chosen]]
            marks = axes.scatter(*places[chosen].T, s=scale * size, c=value, marker=marker, zorder=3, **paint)
    if colours is None and len(kinds) > 1:
        whole = MaxNLocator(integer=True, nbins=6)
        bar = figure.colorbar(marks, ax=axes, shrink=0.55, aspect=25, pad=0.01, label="neighbours", ticks=whole)
        bar.outline.set_visible(False)
    _legend(figure, axes, kinds if colours is not None else None, held)
    if names is not None and graph.n <= _NAMED_UP_TO:
        _write_names(figure, axes, graph, places, names, float(np.sqrt(size)))


def _write_names(
    figure: Any, axes: Any, graph: ClientGraph, places: npt.NDArray[np.float64], names: Sequence[str], width: float
) -> None:
    """A name beside each client, on the first side where it touches nothing; left out where there is no room."""
    from matplotlib.patheffects import withStroke  # noqa: PLC0415

    figure.figure.draw_without_rendering()  # so that places in the picture are known
    centres = axes.transData.transform(places) * 72 / figure.dpi  # points
    taken = np.concatenate([centres - width / 2, centres + width / 2], axis=1)
    plain = graph.undirected()
    for i, name in enumerate(names):
        text = name[:18]
        half = np.array([0.33 * _LETTERS * len(text), 0.42 * _LETTERS])
        best = _free_angle(centres, i, plain.neighbours(i))
        for turn in (0.0, 0.8, -0.8, 1.6, -1.6, 2.4, -2.4, np.pi):
            way = np.array([np.cos(best + turn), np.sin(best + turn)])
            centre = centres[i] + way * (width / 2 + 1.5) + np.clip(way * 1.5, -1, 1) * half
            box = np.concatenate([centre - half, centre + half])
            if ((box[2:] <= taken[:, :2]) | (taken[:, 2:] <= box[:2])).any(axis=1).all():
                taken = np.concatenate([taken, box[None]])
                place = axes.transData.inverted().transform(centre * figure.dpi / 72)
                halo = [withStroke(linewidth=1.6, foreground="white")]
                style = {"ha": "center", "va": "center_baseline", "fontsize": _LETTERS, "color": _INK, "zorder": 4}
                axes.text(*place, text, path_effects=halo, gid=f"name-{i}", **style)
                break


def _free_angle(centres: npt.NDArray[np.float64], i: int, linked: npt.NDArray[np.int64]) -> float:
    """The middle of the widest gap between the edges of a client; away from everyone where it has none."""
    if len(linked) == 0:
        away = centres[i] - centres.mean(axis=0)
        return float(np.arctan2(away[1], away[0]))
    toward = centres[linked] - centres[i]
    angles = np.sort(np.arctan2(toward[:, 1], toward[:, 0]))
    gaps = np.diff(np.append(angles, angles[0] + 2 * np.pi))
    widest = int(gaps.argmax())
    return float(angles[widest] + gaps[widest] / 2)


def _legend(figure: Any, axes: Any, kinds: npt.NDArray[np.int64] | None, held: npt.NDArray[np.bool_]) -> None:
    if kinds is not None and len(kinds) <= len(_PALETTE):
        for i, kind in enumerate(kinds):
            axes.scatter([], [], s=40, c=_PALETTE[i], linewidths=0, label=f"group {kind}")
    if held.any():
        axes.scatter([], [], s=36, c="#8a94a0", marker="s", linewidths=0, label="held out of training")
    if axes.get_legend_handles_labels()[0]:
        figure.legend(loc="outside lower center", ncols=6, frameon=False, fontsize=8, handletextpad=0.3)
