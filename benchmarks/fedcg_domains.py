"""Does FedCG find two domains nobody told it of, and does that help clients it never saw?

`python benchmarks/fedcg_domains.py [--lrs 0.1 0.2 0.4] [--rounds 150] [--seeds 0 1 2] [--hidden 32] [--only D=2]`:
digits among 20 clients at random, half of them with inverted images turned by 90 degrees (`data.domains=2`), half of
them held out (`novel=0.5`). ARI: adjusted Rand index between the student's favourite domain and the true one, over test
samples of clients held out (1: the same partition, 0: chance), and over clients by their samples' majority. Accuracy:
pooled over the test samples, as in the paper. Of several learning rates each row takes the one with the best accuracy
on the validation samples of the clients that train; a row that diverges at a rate in any seed does not take it. FedAvg
and FedCG see the same batches. Half a minute a row, seed and rate.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.metrics import adjusted_rand_score

from panacea.errors import RunFailure
from panacea.evaluation.evaluate import evaluate_clients
from panacea.experiment.config import build_config
from panacea.experiment.experiment import Experiment
from panacea.experiment.modules import client_module, observed
from panacea.experiment.runner import run_experiment

FOUND = {"student_lr": 0.2, "standardise": "federation"}
ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "fedavg": ("fedavg", {}),
    "fedcg D=4, the paper's student": ("fedcg", {}),
    "fedcg D=4, student_lr 0.2": ("fedcg", {"student_lr": 0.2}),
    "fedcg D=4, levelled": ("fedcg", FOUND),
    "fedcg D=2, levelled": ("fedcg", {"domains": 2, "beta": 0.9, **FOUND}),
    "fedcg D=2, levelled, all layers": ("fedcg", {"domains": 2, "beta": 0.9, "layers": "all", **FOUND}),
    "fedcg D=2, oracle": ("fedcg", {"domains": 2, "beta": 0.9, "source": "oracle"}),
    "fedcg D=2, oracle, all layers": ("fedcg", {"domains": 2, "beta": 0.9, "layers": "all", "source": "oracle"}),
}


@dataclass(frozen=True)
class Outcome:
    """One run: accuracies in percent, and what the student makes of the domains (None for FedAvg)."""

    val: float
    trained: float
    unseen: float
    by_sample: float | None
    by_client: float | None
    entropy: float | None
    seconds: float


def run(method: str, parameters: dict[str, Any], seed: int, lr: float, options: argparse.Namespace) -> Outcome | None:
    """Train and look; None if it diverged."""
    flat: dict[str, Any] = {
        "data": "digits", "data.domains": 2, "data.split": "iid", "novel": 0.5, "seed": seed, "method": method,
        "model": "mlp", "model.hidden": [options.hidden], "rounds": options.rounds, "eval_every": options.rounds,
        "cohort": 5, "local_steps": 10, "batch_size": 16, "lr": lr,
    }  # fmt: skip
    flat |= {f"method.{key}": value for key, value in parameters.items()}
    experiment = Experiment(build_config(flat))
    started = time.perf_counter()
    try:
        run_experiment(experiment)
    except RunFailure:
        return None
    seconds = time.perf_counter() - started
    federation = experiment.federation
    scores = evaluate_clients(experiment.method, experiment.state, experiment.engine, federation)
    counts = federation.counts("test")
    pooled = [float(np.average(scores.val.metric, weights=federation.counts("val")[federation.train_ids]))]
    pooled += [
        float(np.average(metric, weights=counts[ids]))
        for metric, ids in ((scores.test.metric, federation.train_ids), (scores.novel.metric, federation.novel_ids))
    ]
    if method != "fedcg":
        return Outcome(*pooled, None, None, None, seconds)
    assert federation.groups is not None
    student = client_module(experiment, int(federation.train_ids[0])).student
    found: list[npt.NDArray[np.int64]] = []
    for client in federation.novel_ids:
        with torch.no_grad():
            found.append(student(federation.client(int(client), "test")[0]).argmax(dim=1).numpy())
    true = federation.groups[federation.novel_ids]
    by_sample = adjusted_rand_score(np.repeat(true, [len(f) for f in found]), np.concatenate(found))
    by_client = adjusted_rand_score(true, [int(np.bincount(f).argmax()) for f in found])
    return Outcome(*pooled, by_sample, by_client, observed(experiment)["domain_entropy"], seconds)


def best(method: str, parameters: dict[str, Any], options: argparse.Namespace) -> tuple[float, list[Outcome]]:
    """The rate with the best validation accuracy, and its runs."""
    found: dict[float, list[Outcome]] = {}
    for lr in options.lrs:
        outcomes = [run(method, parameters, seed, lr, options) for seed in options.seeds]
        if None not in outcomes:
            found[lr] = [outcome for outcome in outcomes if outcome is not None]
    lr = max(found, key=lambda rate: statistics.mean(o.val for o in found[rate]), default=0.0)
    return lr, found.get(lr, [])


def main() -> None:
    """Print a row per setting: mean over seeds, and every seed's ARI and accuracy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--lrs", type=float, nargs="+", default=[0.1, 0.2, 0.4], help="of the clients")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(
        f"{'':32} {'unseen':>7} {'seen':>7}  {'unseen, by seed':24} {'ARI samples':20} {'ARI clients':20} entropy lr s"
    )
    for name, (method, parameters) in ROWS.items():
        if options.only not in name:
            continue
        lr, outcomes = best(method, parameters, options)
        if not outcomes:
            print(f"{name:32} diverged at every rate")
            continue

        def column(field: str, digits: int, outcomes: list[Outcome] = outcomes) -> str:
            values = [getattr(outcome, field) for outcome in outcomes]
            return "-" if None in values else " ".join(f"{value:.{digits}f}" for value in values)

        unseen, seen = (statistics.mean(getattr(o, field) for o in outcomes) for field in ("unseen", "trained"))
        print(
            f"{name:32} {unseen:7.1f} {seen:7.1f}  {column('unseen', 1):24} {column('by_sample', 2):20} "
            f"{column('by_client', 2):20} {column('entropy', 2)}  {lr:g}  "
            f"{statistics.mean(o.seconds for o in outcomes):.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
