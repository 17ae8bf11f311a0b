"""What the graph is worth: novel clients of fl60 when a share of its edges is replaced by random ones.

    python benchmarks/ablation.py                    shares 0 to 1, seeds 0..4, both presets; prints a table
    python benchmarks/ablation.py --out figure.png   also draws it

Every setting is trained for 800 rounds; numbers are test accuracies after the last round, mean over clients and seeds.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import torch

from panacea.core.round import run_round
from panacea.evaluation.evaluate import evaluate_clients
from panacea.experiment.config import build_config
from panacea.experiment.experiment import Experiment

SHARES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


def trained(keys: dict[str, Any]) -> Experiment:
    """An experiment after its last round, nothing evaluated or written."""
    experiment = Experiment(build_config(keys))
    for round in range(1, (experiment.config.rounds or 0) + 1):
        cohort = experiment.cohort(round)
        experiment.state, _ = run_round(experiment.method, experiment.state, cohort, experiment.engine)
    return experiment


def scores(preset: str, share: float, seed: int, rounds: int) -> tuple[float, float]:
    """(main, novel) test accuracy."""
    keys = {"data": "fl60", "method": "panacea", "method.preset": preset, "rounds": rounds, "seed": seed}
    experiment = trained(keys | {"graph.replace": share})
    found = evaluate_clients(experiment.method, experiment.state, experiment.engine, experiment.federation)
    return float(np.mean(found.test.metric)), float(np.mean(found.novel.metric))


def draw(curves: dict[str, list[list[float]]], out: Path) -> None:
    """Novel accuracy against the share of replaced edges."""
    from panacea.report.canvas import BLUE, ORANGE, new_figure

    figure, axes = new_figure(5.6, 3.4)
    for (preset, rows), colour in zip(curves.items(), (ORANGE, BLUE), strict=True):
        means = [statistics.fmean(row) for row in rows]
        spread = [statistics.stdev(row) if len(row) > 1 else 0.0 for row in rows]
        axes.errorbar(
            SHARES, means, spread, color=colour, marker="o", markersize=4, capsize=3, label=f"preset={preset}"
        )
    axes.set_xlabel("share of edges replaced by random ones")
    axes.set_ylabel("accuracy of novel clients, %")
    axes.legend(frameon=False)
    figure.savefig(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument("--rounds", type=int, default=800)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    seeds = [int(seed) for seed in given.seeds.split(",")]
    presets = ("paper", "default")
    with multiprocessing.get_context("spawn").Pool(given.processes, torch.set_num_threads, (1,)) as pool:
        jobs = [(preset, share, seed, given.rounds) for preset in presets for share in SHARES for seed in seeds]
        found = dict(zip(jobs, pool.starmap(scores, jobs, chunksize=1), strict=True))
    print("| edges replaced | " + " | ".join(f"{p}: main | {p}: novel" for p in presets) + " |")
    print("| ---: |" + " ---: |" * 2 * len(presets))
    curves: dict[str, list[list[float]]] = {preset: [] for preset in presets}
    for share in SHARES:
        cells = []
        for preset in presets:
            main_values, novel = zip(*(found[preset, share, seed, given.rounds] for seed in seeds), strict=True)
            curves[preset].append(list(novel))
            spread = statistics.stdev(novel) if len(novel) > 1 else 0.0
            cells += [f"{statistics.fmean(main_values):.1f}", f"{statistics.fmean(novel):.1f} ± {spread:.1f}"]
        print(f"| {share:.0%} | " + " | ".join(cells) + " |")
    if given.out is not None:
        draw(curves, given.out)


if __name__ == "__main__":
    main()
