"""What attacks, defences and the gate before the server add to a round, in per cent of the rest of it.

    python benchmarks/robustness_cost.py [--rounds 60] [--methods fedavg,panacea]

fl60, 5 clients of a round, K_c 50, batches of 64, one thread; attackers are 40 % of the clients. Two rounds differ by
more than any of this costs, so the parts are timed inside the rounds they belong to: medians of part / (round - parts).
Poisoned labels cost nothing in a round but the first, which is counted too.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

import panacea.core.round as rounds
from panacea.experiment.config import build_config
from panacea.experiment.experiment import Experiment

ATTACKS = ("none", "label_flip", "model_poisoning", "sign_flip", "gaussian", "absent", "alie", "minmax", "malformed")
DEFENCES = ("screen", "clip", "median", "trimmed_mean", "krum", "multi_krum", "geometric_median")


class Timed:
    """Adds up the time spent in some functions."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **keys: Any) -> Any:
            started = time.perf_counter()
            try:
                return function(*args, **keys)
            finally:
                self.seconds += time.perf_counter() - started

        return timed

    def taken(self) -> float:
        seconds, self.seconds = self.seconds, 0.0
        return seconds


class Liars:
    """The attackers, timed."""

    def __init__(self, adversary: Any, timed: Timed) -> None:
        self.corrupt, self.messages = timed(adversary.corrupt), timed(adversary.messages)


class Guarded:
    """The defence, timed."""

    def __init__(self, defence: Any, timed: Timed) -> None:
        self.judge = timed(defence.judge)


def shares(method: str, count: int, **keys: object) -> tuple[list[float], list[float]]:
    """Medians over rounds: milliseconds of (rest, gate, attack, defence), and per cent of (gate, attack, defence)."""
    flat = {"data": "fl60", "method": method, "rounds": 10_000, "cohort": 5, "local_steps": 50, "batch_size": 64}
    experiment = Experiment(build_config({**flat, **keys}))
    gate, attack, defence = (Timed() for _ in range(3))
    screen, deliver = rounds.screen, rounds.deliver  # type: ignore[attr-defined]
    rounds.screen, rounds.deliver = gate(screen), attack(deliver)  # type: ignore[attr-defined]
    liars = None if experiment.attackers is None else Liars(experiment.attackers, attack)
    guard, found = Guarded(experiment.defence, defence), []
    for round in range(1, count + 1):
        cohort = experiment.cohort(round)
        started = time.perf_counter()
        if experiment.attackers is not None:
            attack(experiment.attackers.poison)(experiment.engine.samples, round)
        experiment.state, _ = rounds.run_round(
            experiment.method, experiment.state, cohort, experiment.engine, liars, guard
        )
        total, parts = time.perf_counter() - started, [part.taken() for part in (gate, attack, defence)]
        found.append([total - sum(parts), *parts])
    rounds.screen, rounds.deliver = screen, deliver  # type: ignore[attr-defined]
    medians = [1e3 * statistics.median(column) for column in zip(*found, strict=True)]
    return medians, [100 * statistics.median(row[i] / row[0] for row in found) for i in (1, 2, 3)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--methods", default="fedavg,panacea")
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'':36}{'round ms':>9}{'gate':>9}{'attack':>9}{'defence':>9}")
    for method in given.methods.split(","):
        jobs: list[dict[str, object]] = [{"attack": name, "attack.ratio": 0.4} for name in ATTACKS[1:]]
        jobs += [{"attack": "sign_flip", "attack.ratio": 0.4, "defence": name} for name in DEFENCES]
        for job in [{}, *jobs]:
            if method == "panacea" and job.get("defence") in DEFENCES[2:]:
                continue  # there is no mean to replace
            milliseconds, more = shares(method, given.rounds, **job)
            label = f"{method} {job.get('attack', 'clean')} {job.get('defence', '')}"
            print(f"{label:36}{milliseconds[0]:9.2f}" + "".join(f"{value:7.2f} %" for value in more), flush=True)


if __name__ == "__main__":
    main()
