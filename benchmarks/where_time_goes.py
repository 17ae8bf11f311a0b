"""Where the time of a round goes, by kind of operation: W1, W2 and W3 of `panacea bench`, FedAvg, one thread.

    python benchmarks/where_time_goes.py                 both engines
    python benchmarks/where_time_goes.py --only W2

Shares are of the time spent in torch's operations as torch's profiler sees them, of one round after two that warm up;
"outside" is the rest of the round: Python, the dispatcher, autograd's bookkeeping. The profiler itself costs a little
for every operation, so that many small ones look dearer than they are.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict

import torch
from torch.profiler import ProfilerActivity, profile

from panacea.core.round import run_round
from panacea.experiment.speed.workloads import Workload, choose, experiment_of

KINDS = {
    "products": ("mm", "bmm", "addmm", "baddbmm"),
    "convolutions": ("mkldnn_convolution", "convolution_backward"),
    "pooling": ("max_pool2d_with_indices", "max_pool2d_with_indices_backward"),
    "copies": ("copy_", "cat", "fill_", "index_select"),
    "sums": ("add", "add_", "sub", "sub_", "sum", "mean"),
    "activations": (
        "tanh", "tanh_", "sigmoid", "sigmoid_", "tanh_backward", "sigmoid_backward", "clamp_min", "relu",
        "threshold_backward", "mul", "mul_", "lerp",
    ),
}  # fmt: skip


def shares(work: Workload, engine: str) -> tuple[float, dict[str, float]]:
    """Milliseconds of a round without the profiler, and the share of every kind of operation with it."""
    experiment = experiment_of(work, {"engine": engine}, "cpu")

    def one_round(number: int) -> float:
        started = time.perf_counter()
        run_round(experiment.method, experiment.state, experiment.cohort(number), experiment.engine)
        return time.perf_counter() - started

    plain = min(one_round(number) for number in range(1, 6))
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        whole = one_round(6)
    found: dict[str, float] = defaultdict(float)
    kind_of = {f"aten::{name}": kind for kind, names in KINDS.items() for name in names}
    kind_of |= dict.fromkeys(("mkldnn::_linear_pointwise", "panacea::product"), "products")
    for event in recorded.key_averages():
        if event.key.startswith(("aten::", "mkldnn::", "panacea::")):
            found[kind_of.get(event.key, "other operations")] += event.self_cpu_time_total * 1e-6 / whole
    found["outside"] = max(0.0, 1 - sum(found.values()))
    return plain * 1e3, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="W1,W2,W3", help="workloads, by commas")
    options = parser.parse_args()
    torch.set_num_threads(1)
    columns = [*KINDS, "other operations", "outside"]
    print("| per cent of a round | ms | " + " | ".join(columns) + " |")
    print("| --- | ---: | " + " | ".join("---:" for _ in columns) + " |")
    for work in choose(options.only.split(","), "cpu"):
        for engine in ("sequential", "vectorised"):
            milliseconds, found = shares(work, engine)
            values = " | ".join(f"{100 * found[kind]:.0f}" for kind in columns)
            print(f"| {work.key}, {engine} | {milliseconds:.0f} | {values} |", flush=True)


if __name__ == "__main__":
    main()
