"""What the graph is worth: novel clients of fl60 when a share of edges is replaced by random ones.

    everywhere   the whole graph is made false before training (`graph.replace`); the server learns how far to trust it
    newcomers    the server was trained on the true graph; only the links newcomers come with are false

    python benchmarks/ablation.py                    shares 0 to 1, seeds 0..4, both presets; prints a table
    python benchmarks/ablation.py --out figure.png   also draws it

Every setting is trained for 800 rounds; numbers are test accuracies after the last round, mean over clients and seeds.
"""

from __future__ import annotations

import argparse
import dataclasses
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
from panacea.graphs import ClientGraph

SHARES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


def trained(keys: dict[str, Any]) -> Experiment:
    """An experiment after its last round, nothing evaluated or written."""
    experiment = Experiment(build_config(keys))
    for round in range(1, (experiment.config.rounds or 0) + 1):
        cohort = experiment.cohort(round)
        experiment.state, _ = run_round(experiment.method, experiment.state, cohort, experiment.engine)
    return experiment


def everywhere(preset: str, share: float, seed: int, rounds: int) -> tuple[float, float]:
    """(main, novel) test accuracy with a share of all edges false."""
    keys = {"data": "fl60", "method": "panacea", "method.preset": preset, "rounds": rounds, "seed": seed}
    experiment = trained(keys | {"graph.replace": share})
    found = evaluate_clients(experiment.method, experiment.state, experiment.engine, experiment.federation)
    return float(np.mean(found.test.metric)), float(np.mean(found.novel.metric))


def newcomers(preset: str, seed: int, rounds: int) -> list[float]:
    """Novel test accuracy for every share of false links of the newcomers; one training run serves all."""
    keys = {"data": "fl60", "method": "panacea", "method.preset": preset, "rounds": rounds, "seed": seed}
    experiment = trained(keys)
    federation, graph = experiment.federation, experiment.federation.graph
    own = np.flatnonzero(federation.novel[graph.edges].any(axis=1))
    generator = np.random.default_rng(seed)
    order = generator.permutation(own)
    found = []
    for share in SHARES:
        pairs = {
            tuple(sorted(pair)) for pair in np.delete(graph.edges, order[: round(share * len(own))], axis=0).tolist()
        }
        for edge in graph.edges[order[: round(share * len(own))]].tolist():
            newcomer = next(end for end in edge if federation.novel[end])
            pair = tuple(sorted((newcomer, int(generator.choice(federation.train_ids)))))
            while pair in pairs:
                pair = tuple(sorted((newcomer, int(generator.choice(federation.train_ids)))))
            pairs.add(pair)
        false = dataclasses.replace(federation, graph=ClientGraph.from_edges(len(federation), sorted(pairs))[0])
        scores = evaluate_clients(experiment.method, experiment.state, experiment.engine, false)
        found.append(float(np.mean(scores.novel.metric)))
    return found


def steepest_rise(rows: list[list[float]]) -> str:
    """Where more false edges seem to help most: by the mean difference over seeds, in units of its standard error."""
    found = []
    for a, low in enumerate(rows):
        for b in range(a + 1, len(rows)):
            rises = [after - before for before, after in zip(low, rows[b], strict=True)]
            error = statistics.stdev(rises) / len(rises) ** 0.5 if len(rises) > 1 else 0.0
            mean = statistics.fmean(rises)
            found.append((mean / max(error, 1e-9), f"{SHARES[a]:.0%} to {SHARES[b]:.0%}: {mean:+.1f} ± {error:.1f}"))
    return max(found)[1]


def draw(curves: dict[tuple[str, str], list[list[float]]], out: Path) -> None:
    """Novel accuracy against the share of replaced edges."""
    from panacea.report.canvas import BLUE, ORANGE, new_figure

    figure, axes = new_figure(5.8, 3.6)
    looks = {"paper": ORANGE, "default": BLUE}
    for (preset, where), rows in curves.items():
        means = [statistics.fmean(row) for row in rows]
        error = [statistics.stdev(row) / len(row) ** 0.5 if len(row) > 1 else 0.0 for row in rows]
        line = "-" if where == "newcomers" else ":"
        label = f"{preset}, {'newcomers' if where == 'newcomers' else 'all'} links false"
        axes.errorbar(SHARES, means, error, color=looks[preset], linestyle=line, marker="o", markersize=3, label=label)
    axes.set_xlabel("share of edges replaced by random ones")
    axes.set_ylabel("accuracy of novel clients, %")
    axes.legend(frameon=False, fontsize=8)
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
        own = {
            preset: [pool.apply_async(newcomers, (preset, seed, given.rounds)) for seed in seeds] for preset in presets
        }
        whole = {
            (preset, share): [pool.apply_async(everywhere, (preset, share, seed, given.rounds)) for seed in seeds]
            for preset in presets
            for share in SHARES
        }
        curves: dict[tuple[str, str], list[list[float]]] = {}
        mains: dict[str, list[list[float]]] = {}
        for preset in presets:
            curves[preset, "newcomers"] = [list(row) for row in zip(*(run.get() for run in own[preset]), strict=True)]
            found = [[run.get() for run in whole[preset, share]] for share in SHARES]
            curves[preset, "everywhere"] = [[novel for _, novel in runs] for runs in found]
            mains[preset] = [[main for main, _ in runs] for runs in found]
    header = "newcomers' links: novel | everywhere: novel | everywhere: main"
    print("| edges replaced | " + " | ".join(f"{p}, {cell}" for p in presets for cell in header.split(" | ")) + " |")
    print("| ---: |" + " ---: |" * 3 * len(presets))
    for place, share in enumerate(SHARES):
        cells = []
        for preset in presets:
            for where in ("newcomers", "everywhere"):
                row = curves[preset, where][place]
                error = statistics.stdev(row) / len(row) ** 0.5 if len(row) > 1 else 0.0
                cells.append(f"{statistics.fmean(row):.1f} ± {error:.1f}")
            cells.append(f"{statistics.fmean(mains[preset][place]):.1f}")
        print(f"| {share:.0%} | " + " | ".join(cells) + " |")
    print("± is the standard error over seeds")
    for (preset, where), rows in curves.items():
        print(f"steepest rise, {preset}, {where}: {steepest_rise(rows)}")
    if given.out is not None:
        draw(curves, given.out)


if __name__ == "__main__":
    main()
