"""Where a Panacea run spends its time and memory as the number of clients grows.

    python benchmarks/scale.py                             # 1e3, 1e4, 1e5 clients, cohorts of 5 and 50, both presets
    python benchmarks/scale.py --clients 1000 --graph given --profile

Every case is a process of its own, so that its peak memory is its own; one thread, and seconds are of that thread, so
that other work on the machine does not count. A round is timed after two that warm up. The graph is random with a mean
degree of six (`--graph given`: that of the data set).
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import Any

DEGREE = 6


def one(case: dict[str, Any], profile: bool) -> dict[str, float]:
    """Measure one case in this process."""
    import torch

    from panacea.experiment.checkpoint import CheckpointStore
    from panacea.experiment.config import build_config
    from panacea.experiment.experiment import Experiment
    from panacea.experiment.runner import _one_round

    torch.set_num_threads(1)
    keys: dict[str, Any] = {
        "data": "fl60", "data.clients": case["clients"], "method": case["method"], "rounds": 1000, "eval_every": 10**9,
        "checkpoint_every": 10**9, "cohort": case["cohort"], "device": "cpu", **case["keys"],
    }  # fmt: skip
    if case["graph"] == "random":
        keys |= {"graph": "random", "graph.density": min(1.0, DEGREE / (case["clients"] - 1))}
    marks = [time.process_time()]
    experiment = Experiment(build_config(keys))
    marks.append(time.process_time())
    loaded = _peak()
    rounds = []
    tracer = cProfile.Profile() if profile else None
    for number in range(2 + case["rounds"]):
        if tracer is not None and number == 2:
            tracer.enable()
        begun = time.process_time()
        _one_round(experiment, None, ())
        rounds.append(time.process_time() - begun)
    if tracer is not None:
        tracer.disable()
        pstats.Stats(tracer).sort_stats("tottime").print_stats(25)
    trained, before = _peak(), time.process_time()
    from panacea.evaluation.evaluate import evaluate_clients

    evaluate_clients(experiment.method, experiment.state, experiment.engine, experiment.federation)
    evaluated = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        CheckpointStore(Path(folder)).save(experiment.to_checkpoint())
    saved = time.process_time()
    return {
        "setup_s": marks[1] - marks[0], "round_ms": 1e3 * statistics.median(rounds[2:]),
        "evaluate_s": evaluated - before, "checkpoint_s": saved - evaluated,
        "setup_MB": loaded, "rounds_MB": trained, "peak_MB": _peak(),
    }  # fmt: skip


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Run the cases, each in a process of its own, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--cohort", type=int, nargs="+", default=[5, 50])
    parser.add_argument("--method", nargs="+", default=["panacea"])
    parser.add_argument("--preset", nargs="+", default=["default", "paper"])
    parser.add_argument("--graph", choices=["random", "given"], default="random")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--case", help="(internal) one case as JSON")
    parser.add_argument("keys", nargs="*", help="further keys, key=value")
    given = parser.parse_args()
    if given.case:
        sys.stdout.write(json.dumps(one(json.loads(given.case), given.profile)) + "\n")
        return
    sys.stdout.write("method preset cohort clients | setup s, round ms, evaluate s, checkpoint s | peak MB\n")
    for method, preset, cohort, clients in product(given.method, given.preset, given.cohort, given.clients):
        keys = dict(key.split("=", 1) for key in given.keys)
        if method.startswith("panacea") and method != "panacea_mlp":
            keys["method.preset"] = preset
        case = {
            "clients": clients, "cohort": cohort, "method": method, "graph": given.graph, "rounds": given.rounds,
            "keys": keys,
        }  # fmt: skip
        command = [sys.executable, __file__, "--case", json.dumps(case), *(["--profile"] if given.profile else [])]
        done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
        *shown, last = done.stdout.strip().splitlines()
        found = json.loads(last)
        sys.stdout.write("\n".join([*shown, ""]) if given.profile else "")
        sys.stdout.write(
            f"{method} {preset} {cohort} {clients:,} | {found['setup_s']:.1f}, {found['round_ms']:.1f}, "
            f"{found['evaluate_s']:.1f}, {found['checkpoint_s']:.2f} | {found['peak_MB']:.0f} "
            f"(set-up {found['setup_MB']:.0f}, rounds {found['rounds_MB']:.0f})\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
