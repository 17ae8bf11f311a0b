"""A ResNet-18 as the target of Panacea: seconds of a round, of an evaluation, and the memory they take.

    python benchmarks/resnet.py --device cuda                              # generates all 11 million parameters
    python benchmarks/resnet.py --device cuda method.optimiser=sgd         # keys of the run
    python benchmarks/resnet.py --steps 2 --rounds 2 method.scope=fc       # on a CPU: the last layer only

20 clients with 64 generated pictures of 32 x 32 x 3 each, linked in a ring, 5 of them in a round; nothing is written to
disk. The first round (in which a GPU's libraries are loaded and steps are captured) is shown apart.
"""

from __future__ import annotations

import argparse
import statistics
import sys

import numpy as np
import torch

from panacea.data.federation import Federation
from panacea.errors import PanaceaError
from panacea.evaluation.evaluate import evaluate_clients
from panacea.experiment.config import build_config
from panacea.experiment.experiment import Experiment
from panacea.experiment.memory import peak_memory
from panacea.experiment.runner import _one_round
from panacea.experiment.speed.measuring import timed

KEYS = {"method": "panacea", "method.scope": "all", "model": "resnet18", "model.stem": "cifar", "model.norm": "group"}


def pictures(clients: int = 20, images: int = 64) -> Federation:
    """Noisy pictures; each of ten classes has a pattern of its own."""
    generator = np.random.default_rng(0)
    patterns = generator.normal(size=(10, 3, 32, 32))
    y = [generator.integers(0, 10, images) for _ in range(clients)]
    x = [(0.5 * patterns[labels] + generator.normal(size=(images, 3, 32, 32))).astype(np.float32) for labels in y]
    ring = np.array([(i, (i + 1) % clients) for i in range(clients)])
    return Federation.from_arrays(x, y, classes=10, edges=ring, name="pictures")


def main() -> None:
    """Print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--rounds", type=int, default=5, help="at least 2: the first is shown apart")
    parser.add_argument("--steps", type=int, default=50, help="local steps of a client")
    parser.add_argument("keys", nargs="*", help="keys of the run, NAME=VALUE")
    given = parser.parse_args()
    if given.rounds < 2 or not all("=" in key for key in given.keys):
        parser.error("--rounds is at least 2, and keys are NAME=VALUE")
    torch.set_num_threads(1)
    keys = {
        **KEYS, "data": "pictures", "cohort": 5, "batch_size": 64, "lr": 0.01, "device": given.device, "rounds": 10**6,
        "eval_every": 10**6, "local_steps": given.steps, **dict(key.split("=", 1) for key in given.keys),
    }  # fmt: skip
    try:
        experiment = Experiment(build_config(keys), pictures())
    except PanaceaError as error:
        sys.exit(f"error: {error}")
    rounds = [timed(given.device, lambda: _one_round(experiment, None, ())) for _ in range(given.rounds)]

    def scored() -> None:
        evaluate_clients(experiment.method, experiment.state, experiment.engine, experiment.federation)

    evaluation, peak = timed(given.device, scored), peak_memory(given.device) or 0
    sys.stdout.write(
        f"{experiment.target.layout.size:,} parameters, {' '.join(given.keys) or 'scope=all'}: first round "
        f"{rounds[0]:.2f} s, then {statistics.median(rounds[1:]):.2f} s a round, evaluation of all clients "
        f"{evaluation:.2f} s, peak memory {peak / 1e9:.1f} GB\n"
    )


if __name__ == "__main__":
    main()
