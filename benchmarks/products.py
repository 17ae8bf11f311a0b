"""Matrix products on one CPU core by either of torch's libraries: why `panacea.engines.products` chooses as it does.

    python benchmarks/products.py
    python benchmarks/products.py --rows 1

Products ``[R, M, K] x [R, K, N]`` of the workloads of `panacea bench` and around the limits of that choice; in
microseconds a row, the best of several turns, in which both take part. *Taken* is the library that the engine takes
for it here.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor

from panacea.engines.allocation import keep_freed_memory
from panacea.engines.products import PRODUCT, faster_by_onednn

SHAPES: dict[str, tuple[int, int, int, tuple[bool, bool]]] = {  # M, K, N, whether a side lies in columns
    "W2, a GRU's step": (64, 104, 300, (False, False)),
    "W2, its gradient at the state": (64, 300, 104, (False, True)),
    "W2, weights' gradient, 12 steps": (300, 768, 104, (True, True)),
    "W3, linear layer": (64, 1024, 512, (False, False)),
    "W3, its weights' gradient": (512, 64, 1024, (True, True)),
    "W3, first layer by patches": (36864, 25, 32, (True, False)),
    "W3, their weights' gradient": (32, 36864, 25, (True, False)),
    "64 samples, 64 to 64": (64, 64, 64, (False, False)),
    "64 samples, 96 to 96": (64, 96, 96, (False, False)),
    "64 samples, 128 to 128": (64, 128, 128, (False, False)),
    "64 samples, 256 to 256": (64, 256, 256, (False, False)),
}
TURNS = 15


def fastest(functions: list[Callable[[], Tensor]], calls: int) -> list[float]:
    """Seconds of a call of each, in turns."""
    best = [float("inf")] * len(functions)
    for turn in range(TURNS + 1):
        for number, function in enumerate(functions):
            started = time.perf_counter()
            for _ in range(calls):
                function()
            if turn:  # the first one warms up
                best[number] = min(best[number], (time.perf_counter() - started) / calls)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5, help="clients in a call")
    rows = parser.parse_args().rows
    if rows < 1:
        parser.error("--rows must be 1 or more")
    if not torch.backends.mkldnn.is_available():
        parser.error("this torch has no oneDNN")
    torch.set_num_threads(1)
    keep_freed_memory()
    print(f"| product, {rows} rows | M | K | N | MKL, us a row | oneDNN | taken |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | --- |")
    for name, (m, k, n, in_columns) in SHAPES.items():
        left = torch.randn(rows, k, m).transpose(1, 2) if in_columns[0] else torch.randn(rows, m, k)
        turned = torch.randn(rows, k, n).transpose(1, 2) if in_columns[1] else torch.randn(rows, n, k)
        ways = [lambda a=left, b=turned: torch.bmm(a, b.transpose(1, 2)), lambda a=left, b=turned: PRODUCT(a, b, None)]
        calls = max(1, int(2e8 / (2 * m * k * n * rows)))
        with torch.no_grad():
            mkl, onednn = (1e6 * seconds / rows for seconds in fastest(ways, calls))
        taken = "oneDNN" if faster_by_onednn(left, turned) else "MKL"
        print(f"| {name} | {m} | {k} | {n} | {mkl:.1f} | {onednn:.1f} | {taken} |", flush=True)


if __name__ == "__main__":
    main()
