"""Draw the figures of the docs: `python docs/figures.py` (two minutes; the ablation is benchmarks/ablation.py)."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
from matplotlib.patches import FancyBboxPatch

from panacea.data.picture import graph_picture
from panacea.experiment.config import build_config
from panacea.experiment.experiment import Experiment
from panacea.experiment.rundir import RunDirectory
from panacea.experiment.runner import run_experiment
from panacea.report.canvas import BLUE, GREY, ORANGE, new_figure
from panacea.report.model_figures import draw_collaboration, draw_embeddings, draw_server, draw_similarity

HERE = Path(__file__).parent / "figures"


def draw_loop(path: Path) -> None:
    """Who does what in one round."""
    figure, axes = new_figure(9.2, 3.9)
    axes.set_axis_off()
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 42)

    def box(x: float, y: float, width: float, height: float, text: str, colour: str) -> None:
        look = {"boxstyle": "round,pad=0.6", "linewidth": 1.2, "edgecolor": colour, "facecolor": f"{colour}14"}
        axes.add_patch(FancyBboxPatch((x, y), width, height, **look))
        axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=8.5)

    def arrow(start: tuple[float, float], end: tuple[float, float], text: str, shift: float, colour: str) -> None:
        axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 1.3})
        axes.text((start[0] + end[0]) / 2, (start[1] + end[1]) / 2 + shift, text, ha="center", fontsize=8, color=colour)

    axes.text(1, 40, "server", fontsize=10, color=BLUE, weight="bold")
    box(2, 24, 15, 12, "embedding h\nof each client", BLUE)
    box(25, 24, 17, 12, "GNN along the\nrelation graph\nz = GNN(h, A)", BLUE)
    box(50, 24, 17, 12, "trunk and heads\n" + r"$\theta_t$ = heads(MLP($z_t$))", BLUE)
    box(25, 8, 17, 9, "graph generator\nlinks from z:  $L_d$", GREY)
    for a, b in (((17.8, 30), (24, 30)), ((42.8, 30), (49, 30))):
        arrow(a, b, "", 0, BLUE)
    arrow((33.5, 23), (33.5, 18.2), "", 0, GREY)
    axes.text(79, 40, "client t of the cohort", fontsize=10, color=ORANGE, weight="bold")
    box(80, 22, 18, 14, "$K_c$ steps of SGD\non its own data:\n" + r"$\theta_t \rightarrow \tilde\theta_t$", ORANGE)
    arrow((67.8, 33), (79, 33), r"$\theta_t$", 0.8, BLUE)
    arrow((79, 25), (67.8, 25), r"$\tilde\theta_t$", 0.8, ORANGE)
    axes.text(
        50, 2.2,
        r"then $K_s$ steps of the server towards the fixed $\tilde\theta_t$:  "
        r"$\frac{1}{2|S|}\sum_t \|\tilde\theta_t-\theta_t(\psi)\|^2+\lambda_d L_d$",
        fontsize=9, ha="center",
    )  # fmt: skip
    figure.savefig(path)


def main() -> None:
    """All figures, into docs/figures."""
    HERE.mkdir(exist_ok=True)
    draw_loop(HERE / "loop.png")
    with tempfile.TemporaryDirectory() as folder:
        keys = {"data": "fl60", "method": "panacea", "rounds": 400, "seed": 0, "out": folder}
        experiment = Experiment(build_config(keys))
        directory = RunDirectory.of(experiment.config, "panacea")
        run_experiment(experiment, directory)
        lines = [json.loads(line) for line in directory.metrics.read_text(encoding="utf-8").splitlines()]
    place = experiment.federation.features
    assert place is not None
    angle = np.degrees(np.arctan2(place[:, 1], place[:, 0])) % 360, "angle of the client, degrees"
    graph_picture(experiment.federation, HERE / "graph.png")
    for name, figure in (
        ("embeddings", draw_embeddings(experiment, angle)),
        ("models", draw_similarity(experiment, angle)),
        ("server", draw_server(lines)),
    ):
        assert figure is not None
        figure.savefig(HERE / f"{name}.png")
    draw_groups(HERE / "collaboration.png")


def draw_groups(path: Path) -> None:
    """Whom FedAMP lets collaborate on digits with three groups of clients it is not told of."""
    keys = {"data": "digits", "data.groups": 3, "data.dominant": 0.95, "model": "mlp", "model.hidden": [64]}
    experiment = Experiment(build_config({**keys, "method": "fedamp", "cohort": 20, "rounds": 60, "lr": 0.1}))
    run_experiment(experiment)
    figure = draw_collaboration(experiment)
    assert figure is not None
    figure.savefig(path)


if __name__ == "__main__":
    main()
