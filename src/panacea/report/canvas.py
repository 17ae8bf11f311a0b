"""What all figures share: colours, an empty canvas, saving."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from panacea.graphs.draw import write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["BLUE", "GREY", "ORANGE", "new_figure", "save_figure"]

BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#5f6b7a"  # Okabe and Ito's colours: readable by everyone


def new_figure(width: float = 6.4, height: float = 3.6, dpi: int = 150) -> tuple[Figure, Axes]:
    """An empty figure that needs no display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure as MplFigure  # noqa: PLC0415

    figure = MplFigure(figsize=(width, height), dpi=dpi, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    axes.set_axisbelow(True)
    return figure, axes


def save_figure(figure: Figure, folder: Path, name: str) -> None:
    """PNG and SVG."""
    for suffix in (".png", ".svg"):
        write_figure(figure, folder / f"{name}{suffix}")
