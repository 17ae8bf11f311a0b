"""What a run's page says about attackers and fairness: damage by distance, refused uploads, how even the metric is."""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from panacea.core.files import read_lines
from panacea.evaluation.hops import HopRow
from panacea.experiment.damage import hop_rows
from panacea.experiment.experiment import Experiment
from panacea.experiment.rundir import RunDirectory
from panacea.report.canvas import BLUE, GREY, ORANGE, new_figure
from panacea.report.html_table import html_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["attack_section", "draw_hops", "draw_refused", "fairness_section", "refused_counts"]

_REASONS = 6  # shown by name; rarer ones together
_BARS = 40
_COLOURS = (BLUE, ORANGE, "#009e73", "#cc79a7", "#e69f00", "#56b4e9", GREY)


def draw_hops(experiment: Experiment, directory: RunDirectory) -> Figure | None:
    """The metric by hops from the nearest attacker, beside the same clients without attack; None without attackers."""
    found = hop_rows(experiment, directory)
    if not found:
        return None
    figure, axes = new_figure(6.4, 3.8)
    places = sorted({row.hops for rows in found.values() for row in rows})
    accuracy = experiment.federation.task.metric == "accuracy"
    looks = {"training": ("honest training clients", BLUE, "o", -0.08), "novel": ("novel clients", ORANGE, "s", 0.08)}
    for who, rows in found.items():
        name, colour, marker, shift = looks[who]
        at = np.array([places.index(row.hops) for row in rows]) + (shift if len(found) > 1 else 0)
        _bars(axes, at, [(row.mean, row.std) for row in rows], accuracy, name, colour, marker)
        if any(not math.isnan(row.clean_mean) for row in rows):
            clean = [(row.clean_mean, row.clean_std) for row in rows]
            _bars(axes, at + 0.04, clean, accuracy, f"{name}, without attack", GREY, marker)
    counts = [sum(row.clients for rows in found.values() for row in rows if row.hops == place) for place in places]
    names = ["not\nlinked" if math.isinf(place) else f"{place:.0f}" for place in places]
    axes.set_xticks(range(len(places)), [f"{name}\n({count})" for name, count in zip(names, counts, strict=True)])
    axes.set_xlabel("hops from the nearest attacker (clients)")
    axes.set_ylabel("accuracy, %" if accuracy else "mean squared error")
    axes.legend(frameon=False, fontsize=8)
    return figure


def _bars(
    axes: Axes, at: np.ndarray[Any, Any], values: list[tuple[float, float]], accuracy: bool, name: str, colour: str,
    marker: str,
) -> None:  # fmt: skip
    """Means with one standard deviation over clients, cut off at what a metric can be."""
    mean, std = np.array(values).T
    most = np.minimum(mean + std, 100) if accuracy else mean + std
    error = np.stack([mean - np.maximum(mean - std, 0), most - mean])
    look: dict[str, Any] = {"capsize": 3, "linewidth": 1.2, "markersize": 4, "elinewidth": 0.9}
    axes.errorbar(at, mean, np.maximum(error, 0), color=colour, label=name, marker=marker, **look)


def refused_counts(directory: RunDirectory) -> list[tuple[int, str]]:
    """(round, reason) of every refused upload; what follows a colon or bracket in a reason is left out."""
    lines = read_lines(directory.refused)
    return [(int(line["round"]), re.split(r"\s*[:(]", str(line["reason"]))[0]) for line in lines]


def draw_refused(experiment: Experiment, directory: RunDirectory) -> Figure | None:
    """Refused uploads over rounds, by reason; None where there are none."""
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415

    refused = refused_counts(directory)
    if not refused:
        return None
    common = [reason for reason, _ in Counter(reason for _, reason in refused).most_common(_REASONS)]
    named = [(round, reason if reason in common else "other") for round, reason in refused]
    reasons = [*common, *(["other"] if any(reason == "other" for _, reason in named) else [])]
    rounds = experiment.config.rounds or 1
    edges = np.linspace(0, rounds, min(rounds, _BARS) + 1) + 0.5
    figure, axes = new_figure(6.4, 3.0)
    below = np.zeros(len(edges) - 1)
    for reason, colour in zip(reasons, _COLOURS, strict=False):
        height, _ = np.histogram([round for round, why in named if why == reason], edges)
        axes.bar(edges[:-1], height, np.diff(edges), bottom=below, align="edge", color=colour, label=reason)
        below += height
    axes.set_ylim(0, 1.3 * below.max())  # room for the legend
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    axes.set_xlabel("round")
    axes.set_ylabel("refused uploads")
    axes.legend(frameon=False, fontsize=8)
    return figure


def fairness_section(summary: dict[str, Any]) -> str:
    """How evenly the metric is spread over clients."""
    whose = "honest training clients" if summary.get("attackers") else "training clients"
    rows = [
        ("standard deviation", summary["std"], "0: everybody has the same"),
        ("worst decile", summary["worst_decile"], "mean of the worst tenth of the clients"),
        ("Gini coefficient", summary.get("gini"), "0: everybody has the same; near 1: one has everything"),
        ("Jain's index", summary.get("jain"), "1: everybody has the same; 1/n: one of n has everything"),
        ("best minus worst", summary.get("gap"), "of single clients"),
    ]
    return f"<h2>Fairness over {whose}</h2>{html_table(('measure', 'value', 'meaning'), rows)}"


_NUMBERS = {
    "mean": "honest training clients", "all_mean": "all training clients", "attackers_mean": "attackers",
    "refused": "refused uploads", "detection_precision": "share of refused uploads that attackers sent",
    "detection_recall": "share of attackers' uploads that were refused",
}  # fmt: skip


def attack_section(experiment: Experiment, directory: RunDirectory, summary: dict[str, Any]) -> str:
    """Who attacked how, what was refused, and the damage by distance; nothing where nobody did and nothing was."""
    refused = Counter(reason for _, reason in refused_counts(directory))
    if not summary.get("attackers") and not refused:
        return ""
    rows: list[tuple[Any, ...]] = [
        ("attack", summary["attack"]), ("defence", summary["defence"]),
        ("attackers", f"{summary.get('attackers', 0)} of {summary['clients']} training clients"),
    ]  # fmt: skip
    rows += [(name, summary[key]) for key, name in _NUMBERS.items() if summary.get(key) is not None]
    rows += [(f"refused: {reason}", count) for reason, count in refused.most_common()]
    parts = ["<h2>Attack and defence</h2>", html_table(("what", "value"), rows)]
    for who, some in hop_rows(experiment, directory).items():
        clean = any(not math.isnan(row.clean_mean) for row in some)
        header = ("hops from the nearest attacker", "clients", "mean", "std", "without attack", "change")
        cells = [_cells(row) for row in some]
        note = "" if clean else "<p>The run without attack is not beside this one, so there is nothing to compare.</p>"
        name = "honest training clients" if who == "training" else "novel clients"
        parts.append(f"<h3>Damage by distance: {name}</h3>{note}{html_table(header, cells)}")
    return "".join(parts)


def _cells(row: HopRow) -> tuple[Any, ...]:
    far = "not linked" if math.isinf(row.hops) else int(row.hops)
    return far, row.clients, row.mean, row.std, row.clean_mean, row.change
