"""The picture of a search: validation metric against the values of each key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from panacea.experiment.search.study import Found, Trial
from panacea.experiment.search.tables import title
from panacea.report.canvas import GREY, new_figure
from panacea.report.curves import COLOURS, write_figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_search", "write_search_figure"]

_ACROSS = 3  # panels in a row


def draw_search(found: Found) -> Figure:
    """A panel for every varied key: filled points ran to the end, hollow ones were stopped, stars are chosen.

    Stopped settings are drawn at the validation metric they had when they were stopped. Those that diverged have none.
    """
    keys = list(dict.fromkeys(key for trial in found.trials for key in trial.setting))
    across = min(len(keys), _ACROSS)
    down = -(-len(keys) // across)
    figure, axes = new_figure(1.2 + 3.3 * across, 0.9 + 2.8 * down)
    figure.clear()
    first: Axes | None = None
    for number, key in enumerate(keys, 1):
        axes = figure.add_subplot(down, across, number, sharey=first)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
        _panel(axes, found, key)
        if (number - 1) % across == 0:
            axes.set_ylabel("validation accuracy, %" if found.higher_is_better else "validation MSE")
        first = first or axes
    figure.suptitle(title(found), fontsize=8)
    figure.legend(*_legend(found), loc="outside lower center", ncols=5, frameon=False, fontsize=8)
    return figure


def _panel(axes: Axes, found: Found, key: str) -> None:
    mine = [trial for trial in found.trials if key in trial.setting and trial.score is not None]
    values = _sorted([trial.setting[key] for trial in mine])
    numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    log = numeric and min(values, default=0) > 0 and max(values) / min(values) >= 9
    for number, method in enumerate(found.request.spaces):
        colour, best = COLOURS[number % len(COLOURS)], found.best(method)
        for trial in mine:
            if trial.method == method:
                place = trial.setting[key] if numeric else values.index(trial.setting[key])
                _point(axes, trial, place, colour, chosen=trial is best)
    axes.set_xlabel(key)
    if log:
        axes.set_xscale("log")
    if not numeric:
        axes.set_xticks(np.arange(len(values)), [str(value) for value in values])
        axes.margins(x=0.25)


def _point(axes: Axes, trial: Trial, place: float, colour: str, *, chosen: bool) -> None:
    assert trial.score is not None
    face = colour if trial.state == "finished" else "none"
    look: dict[str, Any] = {"markerfacecolor": face, "markeredgecolor": colour, "ecolor": colour, "elinewidth": 0.8}
    marker, size, above = ("*", 12, 4) if chosen else ("o", 5, 3)
    axes.errorbar(
        place, trial.score, yerr=trial.spread, fmt=marker, markersize=size, alpha=1 if chosen else 0.75, zorder=above,
        **look,
    )  # fmt: skip


def _sorted(values: Sequence[Any]) -> list[Any]:
    """Different values, numbers in their order, others as they came."""
    different = list({repr(value): value for value in values}.values())
    numeric = all(isinstance(value, int | float) for value in different)
    return sorted(different) if numeric else different


def _legend(found: Found) -> tuple[list[Any], list[str]]:
    from matplotlib.lines import Line2D  # noqa: PLC0415

    def sign(colour: str, marker: str, face: str, size: float) -> Line2D:
        return Line2D([], [], linestyle="", marker=marker, color=colour, markerfacecolor=face, markersize=size)

    grey = "#5f6b7a"
    signs = [
        sign(COLOURS[n % len(COLOURS)], "s", COLOURS[n % len(COLOURS)], 6) for n in range(len(found.request.spaces))
    ]
    signs += [sign(grey, "*", grey, 10), sign(grey, "o", grey, 5)]
    names = [*found.request.spaces, "chosen", "ran to the end"]
    if any(trial.state == "stopped" for trial in found.trials):
        signs, names = [*signs, sign(GREY, "o", "none", 5)], [*names, "stopped early"]
    return signs, names


def write_search_figure(found: Found) -> str | None:
    """Write validation.png and validation.svg; returns a note if there is nothing to draw or to draw with."""
    if all(trial.score is None for trial in found.trials):
        return "no figure: no setting has a validation metric"
    try:
        write_figures(draw_search(found), found.request.folder, "validation")
    except ImportError as error:
        return f"no figure: {error.name} is not installed"
    return None
