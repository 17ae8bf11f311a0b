"""A server's steps on a full linear head: the ordinary gradient against its factors, and gradient checkpointing.

python benchmarks/large_head.py                 # 300,000 generated parameters, 100 features, cohorts of 5 and 20
python benchmarks/large_head.py --checkpointing # ResNet-18's local step with and without, each in its own process
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from panacea.core.parameters import Layout
from panacea.hypernets.descent import Loss, Optimiser, Outer, Slopes, descend
from panacea.models.resnet import resnet18


def head_times(size: int, features: int, cohort: int, steps: int, repeats: int) -> dict[str, float]:
    """Milliseconds a step, interleaved: momentum, plain SGD by the gradient, plain SGD by its factors."""
    layout = Layout(("bias", "weight"), ((size,), (size, features)))
    start, inputs = torch.randn(layout.size) * 0.01, torch.randn(cohort, features)
    targets = torch.randn(cohort, size)

    def plain(leaves: Sequence[Tensor]) -> tuple[Loss, None]:
        models = nn.functional.linear(inputs, leaves[1], leaves[0])
        return [(models, models.detach() - targets)], None

    def thin(leaves: Sequence[Tensor]) -> tuple[Loss, None]:
        with torch.no_grad():
            slope = nn.functional.linear(inputs, leaves[1], leaves[0]) - targets
        return Slopes([(leaves[0], slope.sum(dim=0))], Outer(slope, inputs)), None

    def run(kind: str, factored: str | None) -> Callable[[], object]:
        optimiser = Optimiser(kind)  # type: ignore[arg-type]
        moments = optimiser.start([start])
        objective = plain if factored is None else thin
        return lambda: descend(objective, [start], moments, optimiser, 1e-3, steps, [layout], factored)

    runs = {"momentum": run("momentum", None), "sgd": run("sgd", None), "sgd, factors": run("sgd", "weight")}
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, call in runs.items():
            begun = time.process_time()
            call()
            seconds[name].append(time.process_time() - begun)
    return {name: 1e3 * statistics.median(found) / steps for name, found in seconds.items()}


def local_step(checkpointed: bool) -> str:
    """Seconds and peak memory of three local steps of ResNet-18 on 64 pictures of 32 x 32."""
    torch.set_num_threads(1)
    network = resnet18(10, "cifar", "group")
    x, y = torch.randn(64, 3, 32, 32), torch.randint(0, 10, (64,))
    begun = 0.0
    for step in range(4):
        begun = time.process_time() if step == 1 else begun
        h = network.relu(network.bn1(network.conv1(x)))
        for stage in (network.layer1, network.layer2, network.layer3, network.layer4):
            h = checkpoint(stage, h, use_reentrant=False) if checkpointed else stage(h)
        loss = nn.functional.cross_entropy(network.fc(h.mean(dim=(2, 3))), y)
        gradients = torch.autograd.grad(loss, list(network.parameters()))
        with torch.no_grad():
            for value, gradient in zip(network.parameters(), gradients, strict=True):
                value.sub_(gradient, alpha=0.01)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return f"{(time.process_time() - begun) / 3:.2f} s a step, peak {peak:.0f} MB"


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=300_000)
    parser.add_argument("--features", type=int, default=100)
    parser.add_argument("--cohort", type=int, nargs="+", default=[5, 20])
    parser.add_argument("--checkpointing", action="store_true")
    parser.add_argument("--one", choices=["with", "without"], help="(internal)")
    given = parser.parse_args()
    if given.one:
        sys.stdout.write(local_step(given.one == "with") + "\n")
        return
    if given.checkpointing:
        for one in ("without", "with"):
            done = subprocess.run([sys.executable, __file__, "--one", one], check=True, capture_output=True, text=True)  # noqa: S603
            sys.stdout.write(f"ResNet-18, batch of 64, {one} checkpointing: {done.stdout}")
        return
    torch.set_num_threads(1)
    for cohort in given.cohort:
        found = head_times(given.size, given.features, cohort, 5, 3)
        shown = ", ".join(f"{name} {ms:.0f} ms" for name, ms in found.items())
        sys.stdout.write(f"{given.size:,} parameters, cohort {cohort}: a step takes {shown}\n")


if __name__ == "__main__":
    main()
