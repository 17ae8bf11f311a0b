"""Figures of what a method learnt about its clients: the map of embeddings, how alike the models are, the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from panacea.evaluation.collaboration import collaboration_weights
from panacea.experiment.experiment import Experiment
from panacea.experiment.views import client_property, model_similarity
from panacea.hypernets import GeneratingMethod
from panacea.report.canvas import BLUE, GREY, ORANGE, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_collaboration", "draw_embeddings", "draw_server", "draw_similarity"]

Floats = npt.NDArray[np.float64]
_MOST = 1_000  # clients in a figure, at most: the first ones


def _principal(rows: Floats) -> Floats:
    """The two directions of largest variance."""
    centred = rows - rows.mean(axis=0)
    left, size, _ = np.linalg.svd(centred, full_matrices=False)
    return np.asarray((left * size)[:, :2])


def draw_embeddings(experiment: Experiment, colours: tuple[Floats, str] | None = None) -> Figure | None:
    """The clients' embeddings after the encoder in two dimensions, with their links; None for methods without any.

    Args:
        experiment: after training.
        colours: a number per client and what it is; by default `client_property`.
    """
    method, federation = experiment.method, experiment.federation
    if not isinstance(method, GeneratingMethod):
        return None
    ids = federation.train_ids[:_MOST]
    z = method.encode(experiment.state.server, method.rows_of(ids)).double().cpu().numpy()
    if len(ids) < 3 or z.shape[1] < 2:
        return None
    place = _principal(z)
    figure, axes = new_figure(5.6, 4.6)
    if federation.graph is not None and len(ids) <= 300:
        row = np.full(len(federation), -1)
        row[ids] = np.arange(len(ids))
        for a, b in row[federation.graph.edges]:
            if a >= 0 and b >= 0:
                axes.plot(*place[[a, b]].T, color=GREY, alpha=0.15, linewidth=0.6, zorder=1)
    values, name = colours or client_property(experiment)
    points = axes.scatter(
        place[:, 0], place[:, 1], c=values[ids], cmap="viridis", s=28, zorder=2, edgecolors="white", linewidths=0.4
    )
    figure.colorbar(points, ax=axes, label=name, shrink=0.8)
    axes.set_xlabel("first principal direction of z")
    axes.set_ylabel("second")
    return figure


def _matrix_canvas() -> tuple[Figure, Axes]:
    """An empty figure for a matrix over clients: no grid, whole numbers at its sides."""
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415

    figure, axes = new_figure(5.2, 4.4)
    axes.grid(visible=False)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    return figure, axes


def draw_similarity(experiment: Experiment, order: tuple[Floats, str] | None = None) -> Figure | None:
    """Cosine between the clients' models, their common mean taken off; None where all are one model.

    Args:
        experiment: after training.
        order: a number per client to sort them by, and what it is; by default `client_property`.
    """
    alike = model_similarity(experiment, 400)
    if alike is None:
        return None
    ids, cosine = alike
    values, name = order or client_property(experiment)
    sorted_ = np.argsort(values[ids], kind="stable")
    figure, axes = _matrix_canvas()
    image = axes.imshow(cosine[np.ix_(sorted_, sorted_)], cmap="RdBu_r", vmin=-1, vmax=1, interpolation="nearest")
    figure.colorbar(image, ax=axes, label="cosine of models, mean taken off", shrink=0.8)
    axes.set_xlabel(f"training clients, ordered by {name}")
    axes.set_ylabel("training clients")
    return figure


def draw_collaboration(experiment: Experiment) -> Figure | None:
    """The weights a method mixes clients' models with, clients ordered by group; None for methods without any."""
    federation = experiment.federation
    weights = collaboration_weights(experiment.method, experiment.state, federation)
    if weights is None or len(weights) < 2:
        return None
    values, name = client_property(experiment)
    own = values[federation.train_ids]
    order = np.argsort(own, kind="stable")
    figure, axes = _matrix_canvas()
    image = axes.imshow(weights[np.ix_(order, order)], cmap="viridis", vmin=0, interpolation="nearest")
    if federation.groups is not None:
        for edge in np.flatnonzero(np.diff(own[order])) + 0.5:
            axes.axhline(edge, color="white", linewidth=0.8)
            axes.axvline(edge, color="white", linewidth=0.8)
    figure.colorbar(image, ax=axes, label="weight", shrink=0.8)
    axes.set_xlabel(f"whose model (training clients, ordered by {name})")
    axes.set_ylabel("is mixed into whose")
    return figure


def draw_server(lines: list[dict[str, Any]]) -> Figure | None:
    """The server's fit, how well it tells links, and the spread of embeddings over rounds."""
    if not lines or "fit_before" not in lines[-1]:
        return None
    figure, _ = new_figure(9.6, 2.9)
    figure.clear()
    panels: list[tuple[str, list[tuple[str, str, str]]]] = [
        ("distance to clients' models", [("fit_before", GREY, "before the steps"), ("fit_after", BLUE, "after")]),
        ("link AUC", [("link_auc", BLUE, "")]),
        ("embeddings", [("embedding_spread", BLUE, "spread"), ("embedding_common", ORANGE, "common part")]),
    ]  # fmt: skip
    shown = [panel for panel in panels if any(key in lines[-1] for key, _, _ in panel[1])]
    for number, (title, curves) in enumerate(shown, 1):
        axes = figure.add_subplot(1, len(shown), number)
        for key, colour, label in curves:
            values = np.array([line.get(key, np.nan) for line in lines], float)
            axes.plot([line["round"] for line in lines], values, color=colour, label=label or None, linewidth=1)
        if title != "link AUC":
            axes.set_yscale("log")
        if any(label for _, _, label in curves):
            axes.legend(frameon=False, fontsize=7)
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("round")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    return figure
