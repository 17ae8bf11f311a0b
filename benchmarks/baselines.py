"""All methods side by side on fl60 and digits, learning rates chosen on validation data.

    python benchmarks/baselines.py fl60                      main and novel clients, 800 rounds, the data set's own rate
    python benchmarks/baselines.py fl60 --lrs 0.01,0.03,0.1  the best rate of each method by validation
    python benchmarks/baselines.py practical                 digits, three groups; Wilcoxon tests against all others
    python benchmarks/baselines.py pathological
    python benchmarks/baselines.py iid

Every run is kept as a line of `--store` and not trained again, so that a table can be stopped, widened and continued.
`main` and `novel` are of the last round on fl60 (the protocol of the paper) and of the round chosen on validation data
on digits. p-values are two-sided Wilcoxon tests over clients (all seeds), zero differences dropped.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

METHODS = (
    "separate", "fedavg", "fedavg_ft", "fedprox", "fedprox_ft", "scaffold", "fedper", "fedrep", "apfl", "perfedavg",
    "pfedme", "ditto", "sfl", "fedamp", "heurfedamp", "pfedhn", "panacea_mlp", "panacea_gn", "panacea",
)  # fmt: skip
DIGITS: dict[str, Any] = {
    "data": "digits", "data.groups": 3, "model": "mlp", "model.hidden": [64], "rounds": 100, "cohort": 20,
    "eval_every": 5,
}  # fmt: skip
SETTINGS: dict[str, dict[str, Any]] = {
    "fl60": {"data": "fl60", "rounds": 800, "eval_every": 20},
    **{split: {**DIGITS, "data.split": split} for split in ("practical", "pathological", "iid")},
}
WITH_GRAPH = ("sfl", "panacea", "panacea_gn")
LRS = {"fl60": [0.1], "practical": [0.03, 0.1, 0.3], "pathological": [0.03, 0.1, 0.3], "iid": [0.03, 0.1, 0.3]}


def train(keys: dict[str, Any]) -> dict[str, Any]:
    """One run: its keys, what it chose on validation data, and every client's test metric."""
    import numpy as np
    import torch

    from panacea.errors import PanaceaError
    from panacea.experiment.config import build_config
    from panacea.experiment.experiment import Experiment
    from panacea.experiment.runner import run_experiment

    torch.set_num_threads(1)
    try:
        experiment = Experiment(build_config(keys))
        summary = run_experiment(experiment)
    except PanaceaError as error:
        return {"keys": keys, "error": str(error)}
    chosen, last = experiment.history.selected, experiment.history.last
    assert chosen is not None
    assert last is not None
    return {
        "keys": keys,
        "summary": summary,
        "val": float(np.mean(chosen.val.metric)),
        "chosen": [float(v) for v in chosen.test.metric],
        "last": [float(v) for v in last.test.metric],
        "novel": [float(v) for v in last.novel.metric],
    }


def jobs(setting: str, methods: Iterable[str], lrs: Iterable[float], seeds: Iterable[int]) -> Iterator[dict[str, Any]]:
    """The keys of every run of a table."""
    for method in methods:
        graph = {"graph": "knn", "graph.by": "labels"} if setting != "fl60" and method in WITH_GRAPH else {}
        for lr in lrs:
            for seed in seeds:
                yield {**SETTINGS[setting], **graph, "method": method, "lr": lr, "seed": seed}


def run_all(wanted: list[dict[str, Any]], store: Path, workers: int) -> list[dict[str, Any]]:
    """Results of all wanted runs; only those not in the store are trained."""
    known = [json.loads(line) for line in store.read_text().splitlines()] if store.exists() else []
    missing = [keys for keys in wanted if not any(result["keys"] == keys for result in known)]
    with multiprocessing.get_context("spawn").Pool(workers) as pool, store.open("a") as file:
        for result in pool.imap_unordered(train, missing):
            known.append(result)
            print(json.dumps(result), file=file, flush=True)
            print(f"{len(known)} runs kept, {len(missing)} were missing", end="\r", flush=True)
    return [next(result for result in known if result["keys"] == keys) for keys in wanted]


def best_rate(results: list[dict[str, Any]], method: str, lrs: list[float]) -> float | None:
    """The rate with the best validation metric over seeds; None where every run failed."""
    scores = {}
    for lr in lrs:
        runs = [r for r in results if r["keys"]["method"] == method and r["keys"]["lr"] == lr]
        if runs and all("val" in run for run in runs):
            scores[lr] = statistics.fmean(run["val"] for run in runs)
    return max(scores, key=lambda lr: scores[lr]) if scores else None


def report(setting: str, results: list[dict[str, Any]], methods: list[str], lrs: list[float]) -> None:
    """The table."""
    from scipy.stats import wilcoxon

    which = "last" if setting == "fl60" else "chosen"
    clients: dict[str, list[float]] = {}
    print(f"\n{setting}: mean over clients and seeds (spread over seeds)")
    for method in methods:
        lr = best_rate(results, method, lrs)
        runs = [r for r in results if r["keys"]["method"] == method and r["keys"]["lr"] == lr]
        if lr is None:
            failed = next(r for r in results if r["keys"]["method"] == method and "error" in r)
            print(f"{method:12s} {failed['error']}")
            continue
        clients[method] = [value for run in runs for value in run[which]]
        means = [statistics.fmean(run[which]) for run in runs]
        novel = [statistics.fmean(run["novel"]) for run in runs if run["novel"]]
        line = f"{method:12s} lr {lr:<5g} main {statistics.fmean(means):6.2f} ({_spread(means):5.2f})"
        if novel:
            line += f"  novel {statistics.fmean(novel):6.2f} ({_spread(novel):5.2f})"
        print(line)
    for method in ("fedamp", "heurfedamp"):
        for other, values in clients.items():
            if setting == "fl60" or method not in clients or other == method:
                continue
            differences = [a - b for a, b in zip(clients[method], values, strict=True)]
            p = wilcoxon(differences, zero_method="wilcox").pvalue if any(differences) else 1.0
            print(f"{method:12s} - {other:12s} {statistics.fmean(differences):+6.2f}  p = {p:.2g}")
    if setting == "pathological":
        for method, values in clients.items():
            differences = [a - b for a, b in zip(values, clients.get("fedavg", values), strict=True)]
            p = wilcoxon(differences, zero_method="wilcox").pvalue if any(differences) else 1.0
            print(f"{method:12s} - fedavg       {statistics.fmean(differences):+6.2f}  p = {p:.2g}")


def _spread(values: list[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def main() -> None:
    """Train what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("setting", choices=list(SETTINGS))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--lrs", default=None)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--store", type=Path, default=Path("runs/baselines.jsonl"))
    parser.add_argument("--no-table", action="store_true", help="only train")
    given = parser.parse_args()
    methods = given.methods.split(",")
    lrs = LRS[given.setting] if given.lrs is None else [float(lr) for lr in given.lrs.split(",")]
    given.store.parent.mkdir(parents=True, exist_ok=True)
    wanted = list(jobs(given.setting, methods, lrs, [int(seed) for seed in given.seeds.split(",")]))
    results = run_all(wanted, given.store, given.workers)
    if not given.no_table:
        report(given.setting, results, methods, lrs)


if __name__ == "__main__":
    main()
