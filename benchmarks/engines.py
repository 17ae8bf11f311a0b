"""Speed of the engines against each other and against a plain loop: `make bench`.

All rows are FedAvg rounds on the same clients and batches, one thread, measured in one run, interleaved; the table
shows medians, and ratios are of medians. W1: MLP 2-16-16-2 on fl60. W2: GRU encoder-decoder, 62,501 parameters, on
synthetic series of METR-LA's shape. W3: FedAvgCNN, 582,026 parameters, on synthetic images of MNIST's shape. W2 and W3
take fewer local steps a round than the protocol's 50, so that the whole table is made in a few minutes; ratios are per
step and do not depend on it. The wait is that of the first round of the last way.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent))

import panacea as pn
from panacea.core.round import run_round
from panacea.experiment.config import build_config
from panacea.experiment.experiment import Experiment
from plain_loop import plain_round

Loss = Callable[[Tensor, Tensor], Tensor]
CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}


@dataclass(frozen=True)
class Workload:
    """One row of the table: `repeats` interleaved rounds of each engine."""

    name: str
    federation: pn.Federation
    model: str
    cohort: int
    steps: int
    repeats: int
    loss: Loss


def series_federation(clients: int = 207, windows: int = 120) -> pn.Federation:
    """Clients with windows of a daily curve: 12 observed (speed, time of day) pairs, 12 speeds to come."""
    generator = np.random.default_rng(0)
    t = np.arange(windows)[None, :, None] + np.arange(24)[None, None, :]
    phase = generator.uniform(0, 1, (clients, 1, 1))
    speed = 0.5 + 0.3 * np.sin(2 * np.pi * (t / 288 + phase)) + 0.02 * generator.normal(size=(clients, windows, 24))
    day = np.broadcast_to((t % 288) / 288, speed.shape)
    x = [np.stack([s[:, :12], d[:, :12]], axis=-1).astype(np.float32) for s, d in zip(speed, day, strict=True)]
    y = [s[:, 12:].astype(np.float32) for s in speed]
    return pn.Federation.from_arrays(x, y, task="forecasting", name="series")


def image_federation(clients: int = 100, images: int = 100) -> pn.Federation:
    """Clients with random images of MNIST's shape: the speed of a convolution does not depend on what it sees."""
    generator = np.random.default_rng(0)
    x = [generator.normal(size=(images, 1, 28, 28)).astype(np.float32) for _ in range(clients)]
    y = [generator.integers(0, 10, images) for _ in range(clients)]
    return pn.Federation.from_arrays(x, y, classes=10, name="images")


def workloads() -> list[Workload]:
    """What is measured."""
    repeats = 7
    fl60 = pn.load("fl60", seed=0)
    mse: Loss = F.mse_loss
    return [
        Workload("W1  MLP, 5 clients a round", fl60, "mlp", 5, 50, 21, F.cross_entropy),
        Workload("W1  MLP, 20 clients a round", fl60, "mlp", 20, 50, 11, F.cross_entropy),
        Workload("W2  GRU, 5 clients a round", series_federation(), "gru", 5, 10, repeats, mse),
        Workload("W3  CNN, 10 clients a round", image_federation(), "fedavg_cnn", 10, 5, repeats, F.cross_entropy),
    ]


def experiment_of(work: Workload, engine: str, device: str, compiled: bool = False) -> Experiment:
    """FedAvg on a workload. Enough rounds are announced for the engine to settle as in a long run."""
    flat: dict[str, Any] = {
        "data": work.federation.name, "method": "fedavg", "model": work.model, "cohort": work.cohort, "lr": 0.01,
        "local_steps": work.steps, "rounds": 10_000, "engine": engine, "device": device,
        "engine.compile": compiled,
    }  # fmt: skip
    return Experiment(build_config(flat), work.federation)


def measure(work: Workload, device: str, compiled: bool = False, clock: str = "wall") -> dict[str, float]:
    """Median seconds of a round: plain loop, sequential engine, vectorised engine, and the first round's wait."""
    experiments = {engine: experiment_of(work, engine, device) for engine in ("sequential", "vectorised")}
    now = CLOCKS[clock]
    if compiled:
        experiments["compiled"] = experiment_of(work, "vectorised", device, compiled=True)
    samples = experiments["sequential"].engine.samples
    network = (
        experiments["sequential"]
        .target.to_module(experiments["sequential"].target.initial, experiments["sequential"].target.statistics)
        .to(device)
    )

    def one_round(experiment: Experiment, round: int) -> float:
        cohort = experiment.cohort(round)
        started = now()
        run_round(experiment.method, experiment.state, cohort, experiment.engine)
        _wait(device)
        return now() - started

    def one_plain_round(round: int) -> float:
        ids = experiments["sequential"].cohort(round).ids
        batches = [
            [
                (drawn[0].x[0], drawn[0].y[0])
                for drawn in samples.batches(np.array([client]), round, "train", work.steps, 1, 64)
            ]
            for client in ids
        ]
        started = now()
        plain_round(network, batches, 0.01, work.loss)
        _wait(device)
        return now() - started

    ways: dict[str, Callable[[int], float]] = {
        "plain": one_plain_round,
    }
    for name, experiment in experiments.items():
        ways[name] = lambda round, experiment=experiment: one_round(experiment, round)
    first = {name: way(1) for name, way in ways.items()}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for round in range(2, work.repeats + 2):
        for name, way in ways.items():
            seconds[name].append(way(round))
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    fastest = list(ways)[-1]
    return {**medians, "wait": first[fastest] - medians[fastest]}


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument("--only", default="", help="workloads whose name begins with this, e.g. W1")
    parser.add_argument("--compiled", action="store_true", help="also with engine.compile=true (CPU)")
    parser.add_argument("--clock", choices=list(CLOCKS), default="wall", help="processor: on a machine others use too")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = {}
    fast = ["vectorised", *(["compiled"] if options.compiled else [])]
    if not options.json:
        print(f"{'milliseconds a round (median)':34}{'plain':>9}{'sequential':>12}", end="")
        for name in fast:
            print(f"{name:>12}{'x plain':>9}{'x sequential':>14}", end="")
        print(f"{'first wait':>12}")
    for work in workloads():
        if not work.name.startswith(options.only):
            continue
        result = measure(work, options.device, options.compiled, options.clock)
        rows[work.name] = result
        if not options.json:
            print(f"{work.name:34}{result['plain'] * 1e3:9.1f}{result['sequential'] * 1e3:12.1f}", end="")
            for name in fast:
                ratios = [result[other] / result[name] for other in ("plain", "sequential")]
                print(f"{result[name] * 1e3:12.1f}{ratios[0]:9.2f}{ratios[1]:14.2f}", end="")
            print(f"{result['wait']:10.1f} s", flush=True)
    if options.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
