"""All methods side by side on fl60 and digits, learning rates chosen on validation data.

    python benchmarks/baselines.py fl60                      main and novel clients, 800 rounds, the data set's own rate
    python benchmarks/baselines.py fl60 --lrs 0.01,0.03,0.1  the best rate of each method by validation; --each: all
    python benchmarks/baselines.py fl60_norm                 with BatchNorm, for FedBN
    python benchmarks/baselines.py practical_95              digits, three groups with 95 % of their own digits; tests
    python benchmarks/baselines.py practical_80              with 80 % (or 90), linear_80: with a linear model
    python benchmarks/baselines.py pathological
    python benchmarks/baselines.py iid

Every run is kept as a line of `--store` and not trained again, so that a table can be stopped, widened and continued.
Accuracies are of the last round on fl60 (the protocol of the paper), and of the round chosen on validation data on
digits. p-values are two-sided Wilcoxon tests over clients (all seeds), zero differences dropped.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from stored import numbers, run_all

METHODS = (
    "separate", "fedavg", "fedavg_ft", "fedprox", "fedprox_ft", "scaffold", "fedper", "fedrep", "apfl", "perfedavg",
    "pfedme", "ditto", "sfl", "fedamp", "heurfedamp", "fedcg", "pfedhn", "panacea_mlp", "panacea_gn", "panacea",
)  # fmt: skip
DIGITS: dict[str, Any] = {
    "data": "digits", "data.groups": 3, "rounds": 100, "cohort": 20,
    "eval_every": 5,
}  # fmt: skip
FL60: dict[str, Any] = {"data": "fl60", "rounds": 800, "eval_every": 20}
MLP: dict[str, Any] = {"model": "mlp", "model.hidden": [64]}
SETTINGS: dict[str, dict[str, Any]] = {
    "fl60": FL60,
    "fl60_norm": {**FL60, "model": "mlp", "model.norm": "batch"},
    **{split: {**DIGITS, **MLP, "data.split": split} for split in ("pathological", "iid")},
    **{f"practical_{s}": {**DIGITS, **MLP, "data.split": "practical", "data.dominant": s / 100} for s in (80, 90, 95)},
    "linear_80": {**DIGITS, "data.split": "practical", "model": "linear"},
}
VARIANTS: dict[str, list[dict[str, Any]]] = {  # chosen on validation data together with the learning rate
    "fedamp": [{"method.sigma_factor": 0.3}, {"method.sigma_factor": 1.0}],
    "heurfedamp": [{"method.cos_on": "params"}, {"method.cos_on": "delta", "method.sigma": 5.0}],
    "ditto": [{"method.lam": 0.05}, {"method.lam": 1.0}],
    "fedprox": [{"method.mu": 0.01}, {"method.mu": 0.1}],
    "fedprox_ft": [{"method.mu": 0.01}, {"method.mu": 0.1}],
    "perfedavg": [{"method.inner_lr": 0.01}, {"method.inner_lr": 0.1}],
}
WITH_GRAPH = ("sfl", "panacea", "panacea_gn")
LRS = {setting: [0.1] if setting.startswith("fl60") else [0.03, 0.1, 0.3] for setting in SETTINGS}  # 0.1 is fl60's own


def jobs(setting: str, methods: Iterable[str], lrs: Iterable[float], seeds: Iterable[int]) -> Iterator[dict[str, Any]]:
    """The keys of every run of a table."""
    digits = SETTINGS[setting]["data"] == "digits"
    for method in methods:
        graph = {"graph": "knn", "graph.by": "labels"} if digits and method in WITH_GRAPH else {}
        variants = VARIANTS.get(method, [{}]) if digits else [{}]
        for lr, variant, seed in itertools.product(lrs, variants, seeds):
            yield {**SETTINGS[setting], **graph, "method": method, **variant, "lr": lr, "seed": seed}


def settings_of(results: list[dict[str, Any]], method: str) -> dict[str, list[dict[str, Any]]]:
    """A method's runs by setting (rate and method keys)."""
    settings: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        keys = result["keys"]
        if keys["method"] == method:
            shown = {key: value for key, value in keys.items() if key == "lr" or key.startswith("method.")}
            settings.setdefault(" ".join(f"{key}={value}" for key, value in shown.items()), []).append(result)
    return settings


def best_runs(results: list[dict[str, Any]], method: str) -> tuple[str, list[dict[str, Any]]]:
    """The setting with the best validation metric, and its runs; none where every one failed."""
    settings = settings_of(results, method)
    scores = {
        name: statistics.fmean(run["val"] for run in runs)
        for name, runs in settings.items()
        if all("val" in run for run in runs)
    }
    best = max(scores, key=lambda name: scores[name], default="")
    return best, settings.get(best, [])


def _line(runs: list[dict[str, Any]], which: str) -> str:
    means = [statistics.fmean(run[which]) for run in runs]
    novel = [statistics.fmean(run["novel"]) for run in runs if run["novel"]]
    line = f"main {statistics.fmean(means):6.2f} ({_spread(means):5.2f})"
    return line + (f"  novel {statistics.fmean(novel):6.2f} ({_spread(novel):5.2f})" if novel else "")


def report(setting: str, results: list[dict[str, Any]], methods: list[str], each: bool) -> None:
    """The table, and tests over clients."""
    which = "last" if setting.startswith("fl60") else "chosen"
    clients: dict[str, list[float]] = {}
    print(f"\n{setting}: mean over clients and seeds (spread over seeds)")
    for method in methods:
        best, runs = best_runs(results, method)
        if not runs:
            print(f"{method:12s} {next(r['error'] for r in results if r['keys']['method'] == method and 'error' in r)}")
            continue
        clients[method] = [value for run in runs for value in run[which]]
        for name, some in settings_of(results, method).items() if each else [(best, runs)]:
            if all("val" in run for run in some):
                print(f"{method:12s} {_line(some, which)}  {name}")
    practical = setting.endswith(("80", "90", "95"))
    for method in ["fedamp", "heurfedamp"] if practical else list(clients) if setting == "pathological" else []:
        others = clients if practical else {"fedavg": clients.get("fedavg", [])}
        for other, values in others.items():
            if other != method and method in clients:
                print(f"{method:12s} - {other:12s} {compared(clients[method], values)}")


def compared(ours: list[float], theirs: list[float]) -> str:
    """Mean difference over clients and its p-value."""
    from scipy.stats import wilcoxon

    differences = [a - b for a, b in zip(ours, theirs, strict=True)]
    p = wilcoxon(differences, zero_method="wilcox").pvalue if any(differences) else 1.0
    return f"{statistics.fmean(differences):+6.2f}  p = {p:.2g}  ({len(differences)} clients)"


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
    parser.add_argument("--each", action="store_true", help="every rate, not only the best by validation")
    parser.add_argument("--no-table", action="store_true", help="only train")
    given = parser.parse_args()
    methods = given.methods.split(",")
    lrs = LRS[given.setting] if given.lrs is None else [float(lr) for lr in given.lrs.split(",")]
    wanted = list(jobs(given.setting, methods, lrs, numbers(given.seeds)))
    results = run_all(wanted, given.store, given.workers)
    if not given.no_table:
        report(given.setting, results, methods, given.each)


if __name__ == "__main__":
    main()
