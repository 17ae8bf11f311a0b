"""Files of `panacea bench --out`: bench.json or growth.json, and a figure of each."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from panacea.core.files import write_json
from panacea.experiment.speed import OURS, PEERS, Bench, Curve, Row
from panacea.report.canvas import GREY, new_figure
from panacea.report.curves import COLOURS, write_figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_growth", "draw_rows", "write_bench"]

_SAME_PLACE = {"ray": "captured", "deterministic": "sequential"}  # never in one figure
_NAMES = tuple(name for name in (*OURS, *PEERS) if name not in _SAME_PLACE)  # each has its own colour and mark
_MARKS = "osD^vPX*"


def write_bench(bench: Bench, folder: Path) -> None:
    """All numbers as JSON, and what can be drawn as PNG and SVG."""
    name = "growth" if bench.curves else "bench"
    write_json(folder / f"{name}.json", bench.record())
    if bench.rows:
        write_figures(draw_rows(bench.rows), folder, name)
    curves = [curve for curve in bench.curves if curve.points]
    if curves:
        write_figures(draw_growth(curves), folder, name)


def draw_rows(rows: list[Row]) -> Figure:
    """For every workload, how many times as fast as the sequential engine everything else is; bars on a log axis."""
    names = list(dict.fromkeys(name for row in rows for name in row.timings if name != "sequential"))
    names.sort(key=_place)
    figure, axes = new_figure(1.6 + 1.7 * len(rows), 3.8)
    width = 0.8 / max(1, len(names))
    for number, name in enumerate(names):
        found = [(place, row.ratio(name, "sequential")) for place, row in enumerate(rows)]
        measured = [(place, ratio) for place, ratio in found if ratio is not None]
        places = [place + (number - (len(names) - 1) / 2) * width for place, _ in measured]
        heights = [ratio for _, ratio in measured]
        colour, label = COLOURS[_place(name)], "plain loop" if name == "plain" else name
        from_one = [height - 1 for height in heights]  # a bar begins at 1: as fast as the sequential engine
        bars = axes.bar(places, from_one, 0.92 * width, 1, color=colour, label=label)
        axes.bar_label(bars, [f"{ratio:.2g}" for ratio in heights], fontsize=6, padding=1)
    axes.axhline(1, color=GREY, linewidth=1)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    labels = [f"{row.work.key}\n{row.work.model}, {row.work.cohort} a round" for row in rows]
    axes.set_xticks(range(len(rows)), labels, fontsize=7)
    axes.set_ylabel("times as fast as the sequential engine")
    axes.grid(visible=False, axis="x")
    figure.legend(loc="outside lower center", ncols=min(6, len(names)), frameon=False, fontsize=8)
    return figure


def draw_growth(curves: list[Curve]) -> Figure:
    """A panel for every curve, both axes logarithmic."""
    figure, first = new_figure(0.6 + 3.3 * len(curves), 3.6)
    first.remove()
    for number, curve in enumerate(curves, 1):
        axes = figure.add_subplot(1, len(curves), number)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
        _panel(axes, curve)
        if number == 1:
            axes.set_ylabel("milliseconds a round")
    return figure


def _place(name: str) -> int:
    """Among the colours: an engine's or peer's own; workloads (of seeds in lock-step) in their order."""
    name = _SAME_PLACE.get(name, name)
    return _NAMES.index(name) if name in _NAMES else 2 + ("W1", "W2").index(name.split()[0])


def _panel(axes: Axes, curve: Curve) -> None:
    for name in dict.fromkeys(name for point in curve.points for name in point.ms):
        points = [(point.size, point.ms[name]) for point in curve.points if name in point.ms]
        xs, ys = zip(*points, strict=True)
        line = "--" if name.endswith("training") else "-"  # of the rounds of the same colour
        axes.plot(xs, ys, line, marker=_MARKS[_place(name)], markersize=4, color=COLOURS[_place(name)], label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    every = [ms for point in curve.points for ms in point.ms.values()]
    axes.set_ylim(min(every) / 2, 2 * max(every))  # so that noise does not look like growth
    grows, _, how = curve.title.partition(" (")
    axes.set_xlabel("\n".join([grows, *textwrap.wrap(f"({how}" if how else "", 42)]), fontsize=8)
    axes.legend(frameon=False, fontsize=7)
