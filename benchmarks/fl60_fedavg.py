"""FedAvg on fl60 a second time, written from the description alone: is what the package prints what FedAvg does?

The loop below shares no code with the package: it draws the data, splits it, trains and averages by itself, all seeds
at once. One global model never settles on fl60: its accuracy jumps from round to round, so that a number after one
round and a few seeds says little. The table has, for both programs, the mean after the last round, the mean over the
last hundred rounds, and how often the mean over three seeds after one of these rounds lies below 93, between 93 and 99,
and above 99.

    python benchmarks/fl60_fedavg.py                  30 seeds each, 800 rounds (a few minutes on two cores)
    python benchmarks/fl60_fedavg.py --lr 0.03
"""

from __future__ import annotations

import argparse
import math
import multiprocessing

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from panacea.core.round import run_round
from panacea.evaluation.evaluate import evaluate_clients
from panacea.experiment.config import build_config
from panacea.experiment.experiment import Experiment

CLIENTS, TRAINING, COHORT, STEPS, BATCH, LAST = 60, 48, 5, 50, 64, 100
SAMPLES, TEST = 72, 80  # of 100 samples the first 72 are trained on, 8 are for validation, the last 20 for tests
Floats = npt.NDArray[np.float64]


def data_by_hand(generator: np.random.Generator) -> tuple[Floats, npt.NDArray[np.int64]]:
    """``[60, 100, 2]`` points and ``[60, 100]`` labels: two unit discs on opposite ends of a spiral for each client."""
    angle = generator.uniform(0, 2 * np.pi, CLIENTS)
    centre = (1 + 6 * angle / (2 * np.pi))[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    x, y = np.zeros((CLIENTS, 100, 2)), np.zeros((CLIENTS, 100), np.int64)
    for client in range(CLIENTS):
        for label, sign in enumerate((1, -1)):
            drawn = generator.normal(size=(300, 2))
            inside = drawn[(drawn**2).sum(axis=1) <= 1]
            half = slice(50 * label, 50 * label + 50)
            x[client, half] = sign * centre[client] + inside[generator.choice(len(inside), 50, replace=False)]
            y[client, half] = label
        order = generator.permutation(100)
        x[client], y[client] = x[client, order], y[client, order]
    return x, y


def forward(weights: list[Tensor], x: Tensor) -> Tensor:
    """The MLP 2-16-16-2 of every row."""
    hidden = torch.baddbmm(weights[1], x, weights[0]).relu()
    hidden = torch.baddbmm(weights[3], hidden, weights[2]).relu()
    return torch.baddbmm(weights[5], hidden, weights[4])


def by_hand(seeds: int, rounds: int, lr: float) -> Floats:
    """``[rounds counted, seeds]``: mean test accuracy of the training clients."""
    made = [data_by_hand(np.random.default_rng(1000 + seed)) for seed in range(seeds)]
    x, y = (torch.as_tensor(np.stack(parts)) for parts in zip(*made, strict=True))
    x, generator = x.float(), torch.Generator().manual_seed(0)
    training = torch.stack([torch.randperm(CLIENTS, generator=generator)[:TRAINING] for _ in range(seeds)])
    every = torch.arange(seeds)[:, None]
    test_x = x[every, training][:, :, TEST:].reshape(seeds, -1, 2)
    test_y = y[every, training][:, :, TEST:].reshape(seeds, -1)
    model = []
    for wide, out in ((2, 16), (16, 16), (16, 2)):
        for rows in (wide, 1):
            model.append((2 * torch.rand(seeds, rows, out, generator=generator) - 1) / math.sqrt(wide))
    found = []
    for round in range(rounds):
        places = torch.rand(seeds, TRAINING, generator=generator).argsort(dim=1)[:, :COHORT]
        cohort = training.gather(1, places)
        own_x = x[every, cohort][:, :, :SAMPLES].reshape(-1, SAMPLES, 2)
        own_y = y[every, cohort][:, :, :SAMPLES].reshape(-1, SAMPLES)
        local = [part.repeat_interleave(COHORT, 0) for part in model]
        for _ in range(STEPS):
            local = [part.detach().requires_grad_() for part in local]
            batch = torch.rand(len(own_x), SAMPLES, generator=generator).argsort(dim=1)[:, :BATCH]
            logits = forward(local, own_x.gather(1, batch[..., None].expand(-1, -1, 2)))
            loss = functional.cross_entropy(logits.flatten(0, 1), own_y.gather(1, batch).flatten(), reduction="sum")
            local = [
                part - lr / BATCH * slope for part, slope in zip(local, torch.autograd.grad(loss, local), strict=True)
            ]
        model = [part.detach().unflatten(0, (seeds, COHORT)).mean(dim=1) for part in local]
        if round >= rounds - LAST:
            found.append(100 * (forward(model, test_x).argmax(dim=-1) == test_y).double().mean(dim=1).numpy())
    return np.stack(found)


def by_panacea(seed: int, rounds: int, lr: float) -> Floats:
    """``[rounds counted]``: the same of `panacea run data=fl60 method=fedavg`."""
    torch.set_num_threads(1)
    experiment = Experiment(
        build_config({"data": "fl60", "method": "fedavg", "rounds": rounds, "lr": lr, "seed": seed})
    )
    found = []
    for round in range(1, rounds + 1):
        experiment.state, _ = run_round(
            experiment.method, experiment.state, experiment.cohort(round), experiment.engine
        )
        if round > rounds - LAST:
            scores = evaluate_clients(experiment.method, experiment.state, experiment.engine, experiment.federation)
            found.append(float(np.mean(scores.test.metric)))
    return np.array(found)


def row(name: str, accuracy: Floats) -> str:
    """A line of the table, of ``[rounds, seeds]``."""
    threes = accuracy[:, : accuracy.shape[1] // 3 * 3].reshape(len(accuracy), -1, 3).mean(axis=-1)
    below, above = (threes < 93).mean(), (threes > 99).mean()
    cells = [
        f"{accuracy[-1].mean():.2f}",
        f"{accuracy[-1].min():.1f}",
        f"{accuracy.mean():.2f}",
        f"{accuracy.min():.1f}",
    ]
    return f"| {name} | " + " | ".join([*cells, *(f"{part:.0%}" for part in (below, 1 - below - above, above))]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=800)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    if given.seeds < 3 or given.rounds < LAST:
        parser.error(f"--seeds is at least 3 and --rounds at least {LAST}")
    if not 0 < given.lr < math.inf or given.processes < 1:
        parser.error("--lr is a positive number and --processes at least 1")
    torch.set_num_threads(1)
    with multiprocessing.get_context("spawn").Pool(given.processes) as pool:
        runs = [pool.apply_async(by_panacea, (seed, given.rounds, given.lr)) for seed in range(given.seeds)]
        hand = by_hand(given.seeds, given.rounds, given.lr)
        ours = np.stack([run.get() for run in runs], axis=1)
    print("| fedavg | last round | lowest seed | last 100 rounds | lowest | three seeds < 93 | 93 to 99 | > 99 |")
    print("| --- |" + " ---: |" * 7)
    print(row("by hand", hand))
    print(row("panacea", ours))


if __name__ == "__main__":
    main()
