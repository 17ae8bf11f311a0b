"""The page's figures for a paper: PNG and SVG, one column (3.3 inches) wide, colours that everyone can tell apart."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from panacea.errors import RequestError
from panacea.experiment.table import between
from panacea.report.canvas import new_figure, save_figure
from panacea.report.curves import COLOURS
from panacea.report.page.attacks import attack_curves
from panacea.report.page.curves import curve
from panacea.report.page.series import Suite, skewed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["write_page_figures"]

_WIDTH = 3.3  # inches
_LINES = ("-", "--", ":", "-.")
_MARKERS = "osD^vPX*"


def write_page_figures(suites: Sequence[Suite], folder: Path) -> list[Path]:
    """Draw what there is of each suite; returns the files.

    Raises:
        RequestError: the folder cannot be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"{folder}: cannot make this folder ({error.strerror or error})") from None
    written = []
    for suite in suites:
        stem = re.sub(r"[^a-z0-9]+", "-", suite.title.lower()).strip("-") or "runs"
        for name, draw in _FIGURES.items():
            figure = draw(suite)
            if figure is not None:
                save_figure(figure, folder, f"{stem}-{name}")
                written += [folder / f"{stem}-{name}{suffix}" for suffix in (".png", ".svg")]
    return written


def _canvas(height: float = 2.3) -> tuple[Figure, Axes]:
    figure, axes = new_figure(_WIDTH, height, dpi=300)
    axes.tick_params(labelsize=7, length=2.5)
    for axis in (axes.xaxis, axes.yaxis):
        axis.label.set_fontsize(8)
    return figure, axes


def _look(i: int, *, marks: bool) -> dict[str, Any]:
    look: dict[str, Any] = {"color": COLOURS[i % len(COLOURS)], "linestyle": _LINES[i // len(COLOURS) % len(_LINES)]}
    return look | {"linewidth": 1.3, "marker": _MARKERS[i % len(_MARKERS)] if marks else None, "markersize": 3}


def _legend(figure: Figure, axes: Axes) -> None:
    """Above the picture, where no curve is; the figure grows by what it needs."""
    handles, labels = axes.get_legend_handles_labels()
    if len(handles) > 1:
        labels = [_short(label, 50) for label in labels]
        wide = max(len(label) for label in labels)
        columns = 4 if wide < 9 else 3 if wide < 13 else 2 if wide < 22 else 1
        figure.legend(
            handles, labels, loc="outside upper left", ncols=columns, frameon=False, fontsize=6.5, handlelength=1.8,
            columnspacing=1.0,
        )  # fmt: skip
        figure.set_figheight(figure.get_figheight() + 0.13 * -(-len(labels) // columns))


def _short(label: str, most: int) -> str:
    """Cut in the middle: labels differ at their ends."""
    return label if len(label) <= most else f"{label[: most // 3]}...{label[3 - most + most // 3 :]}"


def _numbers(values: Sequence[float | None]) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([np.nan if value is None else value for value in values], float)


def _along(suite: Suite, key: str, label: str, what: str = "mean") -> Figure | None:
    figure, axes = _canvas()
    drawn = False
    for i, one in enumerate(suite.series):
        found = curve(one, suite)
        if what not in found["what"] or len(found["rounds"]) < 2:
            continue
        x, values = _numbers(found[key]), found["what"][what]
        low, high = _numbers(values["low"]), _numbers(values["high"])
        axes.fill_between(x, low, high, color=COLOURS[i % len(COLOURS)], alpha=0.14, linewidth=0)
        axes.plot(x, _numbers(values["mean"]), label=one.label, **_look(i, marks=len(x) < 15))
        drawn = True
    if not drawn:
        return None
    axes.set_xlabel(label)
    axes.set_ylabel(suite.axis)
    _legend(figure, axes)
    return figure


def _convergence(suite: Suite) -> Figure | None:
    return _along(suite, "rounds", "round")


def _novel(suite: Suite) -> Figure | None:
    return _along(suite, "rounds", "round (novel clients)", "novel_mean")


def _communication(suite: Suite) -> Figure | None:
    return _along(suite, "bytes", "MiB sent, down and up")


def _clients(suite: Suite) -> Figure | None:
    """The share of clients up to a value."""
    figure, axes = _canvas()
    every = [one.pooled() for one in suite.series]
    together = np.concatenate(every)
    if not len(together):
        return None
    for i, values in enumerate(every):
        x = np.concatenate([[together.min()], np.sort(values), [together.max()]])
        y = 100 * np.concatenate([[0], np.arange(1, len(values) + 1) / max(len(values), 1), [1]])
        axes.step(x, y, where="post", label=suite.series[i].label, **_look(i, marks=False))
    if skewed(suite):
        axes.set_xscale("log")
    axes.set_xlabel(suite.axis)
    axes.set_ylabel("share of clients, %")
    _legend(figure, axes)
    return figure


def _methods(suite: Suite) -> Figure | None:
    """Means with one standard deviation over seeds, and the seeds themselves."""
    if len(suite.series) < 2:
        return None
    figure, axes = _canvas(0.75 + 0.2 * len(suite.series))
    for i, one in enumerate(suite.series):
        values, place = one.numbers("mean"), len(suite.series) - 1 - i
        if not values:
            continue
        axes.plot(values, [place] * len(values), ".", color=COLOURS[i % len(COLOURS)], alpha=0.4, markersize=4)
        mean, around = float(np.mean(values)), between(values) or 0.0
        error = [[around], [min(around, 100 - mean) if suite.higher_is_better else around]]
        look: dict[str, Any] = {"color": COLOURS[i % len(COLOURS)], "marker": _MARKERS[i % len(_MARKERS)], "capsize": 2}
        axes.errorbar([mean], [place], xerr=error, markersize=4.5, linewidth=1, **look)
    axes.set_yticks(range(len(suite.series)), [_short(one.label, 30) for one in reversed(suite.series)], fontsize=6.5)
    axes.set_xlabel(suite.axis)
    return figure


def _robustness(suite: Suite) -> Figure | None:
    """The metric of honest clients against the share of attackers."""
    found = attack_curves(suite)
    if not found:
        return None
    figure, axes = _canvas()
    for i, one in enumerate(found):
        mean, around = (_numbers(one["what"]["mean"][part]) for part in ("mean", "around"))
        top = np.minimum(mean + around, 100) if suite.higher_is_better else mean + around
        colour = COLOURS[i % len(COLOURS)]
        axes.fill_between(one["ratios"], np.maximum(mean - around, 0), top, color=colour, alpha=0.14, linewidth=0)
        axes.plot(one["ratios"], mean, label=one["label"], **_look(i, marks=True))
    axes.set_xlabel("share of training clients that attack")
    axes.set_ylabel(suite.axis)
    _legend(figure, axes)
    return figure


_FIGURES: dict[str, Callable[[Suite], Figure | None]] = {
    "convergence": _convergence, "novel": _novel, "communication": _communication, "clients": _clients,
    "methods": _methods, "robustness": _robustness,
}  # fmt: skip
