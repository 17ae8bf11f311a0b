"""How the defaults of Panacea were chosen: candidate settings on three data sets, scored on validation data only.

`main` is the mean over training clients on their validation split, `novel` the mean over novel clients on their train
and validation samples (they never train, so these samples are new to the model; their test split is not touched).
Seeds differ from those the results are reported on. Each cell is the mean over seeds, and in brackets the largest.
`fl60 false` is fl60 with 60 % of its links replaced by random ones: what a setting does with a graph that says little.

    python benchmarks/defaults.py                       all candidates, all data sets (about half an hour on one core)
    python benchmarks/defaults.py --data tpt48 --candidates paper,residual --seeds 10
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
from typing import Any

import numpy as np
import torch

from ablation import trained
from panacea.evaluation.evaluate import evaluate_clients, personal_models

DATA: dict[str, dict[str, Any]] = {
    "fl60": {"data": "fl60", "rounds": 800},
    "tpt48": {"data": "tpt48", "rounds": 800},
    "fl60 false": {"data": "fl60", "rounds": 800, "graph.replace": 0.6},
    "digits": {"data": "digits", "model": "mlp", "model.hidden": [64], "novel": 0.2, "rounds": 200},
}
CANDIDATES: dict[str, dict[str, Any]] = {
    "paper": {"preset": "paper"},
    "view 1": {"preset": "paper", "newcomer_view": 1.0},
    "residual": {"preset": "paper", "residual": True},
    "residual, view 1": {"preset": "paper", "residual": True, "newcomer_view": 1.0},
    "norm": {"preset": "paper", "norm": True},
    "residual, norm": {"preset": "paper", "residual": True, "norm": True},
    "residual, norm, view 0.3": {"preset": "paper", "residual": True, "norm": True, "newcomer_view": 0.3},
    "residual, norm, view 1": {"preset": "paper", "residual": True, "norm": True, "newcomer_view": 1.0},
    "sage, view 1": {"preset": "paper", "encoder": "sage", "newcomer_view": 1.0},
    "sage, norm, view 1": {"preset": "paper", "encoder": "sage", "norm": True, "newcomer_view": 1.0},
    "gat, view 1": {"preset": "paper", "encoder": "gat", "newcomer_view": 1.0},
    "gcn, view 1": {"preset": "paper", "encoder": "gcn", "newcomer_view": 1.0},
    "residual, norm, view 3": {"preset": "paper", "residual": True, "norm": True, "newcomer_view": 3.0},
    "residual, norm, view 1, lambda_d 1": {
        "preset": "paper",
        "residual": True,
        "norm": True,
        "newcomer_view": 1.0,
        "lambda_d": 1.0,
    },
    "residual, norm, view 1, two layers": {
        "preset": "paper",
        "residual": True,
        "norm": True,
        "newcomer_view": 1.0,
        "layers": 2,
    },
    "sage, view 0.5": {"preset": "paper", "encoder": "sage", "newcomer_view": 0.5},
    "sage, view 3": {"preset": "paper", "encoder": "sage", "newcomer_view": 3.0},
    "sage, view 1, two layers": {"preset": "paper", "encoder": "sage", "newcomer_view": 1.0, "layers": 2},
    "sage, view 1, no L_d": {"preset": "paper", "encoder": "sage", "newcomer_view": 1.0, "lambda_d": 0.0},
    "sage, view 1, lambda_d 1": {"preset": "paper", "encoder": "sage", "newcomer_view": 1.0, "lambda_d": 1.0},
    "sage, residual, view 1": {"preset": "paper", "encoder": "sage", "residual": True, "newcomer_view": 1.0},
    "sage, residual, norm, view 3": {
        "preset": "paper",
        "encoder": "sage",
        "residual": True,
        "norm": True,
        "newcomer_view": 3.0,
    },
    "residual, norm, view 10": {"preset": "paper", "residual": True, "norm": True, "newcomer_view": 10.0},
    "gat, view 3": {"preset": "paper", "encoder": "gat", "newcomer_view": 3.0},
    "sage, laplacian h0": {"preset": "paper", "encoder": "sage", "h0": "laplacian"},
    "sage, view 1, lambda_d 0.01": {"preset": "paper", "encoder": "sage", "newcomer_view": 1.0, "lambda_d": 0.01},
    "sage, view 1, lambda_d 0.01, some links": {
        "preset": "paper",
        "encoder": "sage",
        "newcomer_view": 1.0,
        "lambda_d": 0.01,
        "newcomer_links": "some",
    },
    "sage, view 1, lambda_d 0.01, practice 0.5": {
        "preset": "paper",
        "encoder": "sage",
        "newcomer_view": 1.0,
        "lambda_d": 0.01,
        "newcomer_practice": 0.5,
    },
    "default": {},
    "default, practice 0.25": {"newcomer_practice": 0.25},
    "default, practice 1": {"newcomer_practice": 1.0},
    "default, view 1": {"newcomer_view": 1.0},
    "sage, view 3, lambda_d 0.01": {"preset": "paper", "encoder": "sage", "newcomer_view": 3.0, "lambda_d": 0.01},
    "residual, norm, view 10, lambda_d 0.01": {
        "preset": "paper",
        "residual": True,
        "norm": True,
        "newcomer_view": 10.0,
        "lambda_d": 0.01,
    },
    "sage, residual, norm, view 10, lambda_d 0.01": {
        "preset": "paper",
        "encoder": "sage",
        "residual": True,
        "norm": True,
        "newcomer_view": 10.0,
        "lambda_d": 0.01,
    },
    "paper, lambda_d 0.01": {"preset": "paper", "lambda_d": 0.01},
    "residual, norm, view 30": {"preset": "paper", "residual": True, "norm": True, "newcomer_view": 30.0},
    "laplacian h0": {"preset": "paper", "h0": "laplacian"},
}


def scores(data: str, parameters: dict[str, Any], seed: int) -> tuple[float, float]:
    """(main, novel) of one run after its last round."""
    keys = {**DATA[data], "method": "panacea", "seed": seed}
    keys |= {f"method.{key}": value for key, value in parameters.items()}
    experiment = trained(keys)
    federation, engine = experiment.federation, experiment.engine
    main = evaluate_clients(experiment.method, experiment.state, engine, federation).val.metric
    ids = federation.novel_ids
    params, statistics = personal_models(experiment.method, experiment.state, engine, federation, ids, novel=True)
    held = [engine.evaluate(params, statistics, ids, split).metric for split in ("train", "val")]
    return float(np.nanmean(main)), float(np.nanmean(held))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=",".join(DATA))
    parser.add_argument("--candidates", default=";".join(CANDIDATES), help="names joined by ';'")
    parser.add_argument("--seeds", default="10,11,12")
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    sets, seeds = given.data.split(","), [int(seed) for seed in given.seeds.split(",")]
    print("| setting | " + " | ".join(f"{data} main | {data} novel" for data in sets) + " |")
    print("| --- |" + " ---: | ---: |" * len(sets))
    with multiprocessing.get_context("spawn").Pool(given.processes, torch.set_num_threads, (1,)) as pool:
        waiting = {
            name: [[pool.apply_async(scores, (data, CANDIDATES[name], seed)) for seed in seeds] for data in sets]
            for name in given.candidates.split(";")
        }
        for name, columns in waiting.items():
            cells = []
            for data, runs in zip(sets, columns, strict=True):
                scale = 1000 if data == "tpt48" else 1
                for values in zip(*(run.get() for run in runs), strict=True):
                    cells.append(f"{scale * statistics.fmean(values):.2f} ({scale * max(values):.2f})")
            print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
