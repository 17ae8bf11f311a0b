"""A whole Panacea round: against a naive loop, and with a thousand and a hundred thousand clients.

    python benchmarks/panacea_round.py naive     fl60, 5 clients, K_c 50, K_s 10: ours against a loop over clients with
                                                 torch_geometric layers and heads for all nodes (interleaved, medians)
    python benchmarks/panacea_round.py scale     random graphs of mean degree 6: time and memory of a round

One thread. The naive loop is what one would write with the libraries at hand: an embedding table, three SAGEConv layers
over the whole graph, one head per tensor for every client, a loop over the round's clients with the network called as
it stands and torch.optim on both sides. It does the same work as ours (default: SAGE layers, the newcomers' view).
"""

from __future__ import annotations

import argparse
import copy
import resource
import statistics
import time

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import panacea as pn
from panacea.core.round import run_round
from panacea.experiment.config import build_config
from panacea.experiment.experiment import Experiment
from panacea.graphs import ClientGraph


class NaiveHypernetwork(nn.Module):
    """Panacea's server with torch_geometric's layers and heads for all nodes."""

    def __init__(self, graph: ClientGraph, target: nn.Module, preset: str) -> None:
        super().__init__()
        self.default = preset == "default"
        from torch_geometric.nn import SAGEConv
        from torch_geometric.utils import add_self_loops

        sources, targets, _ = graph.arcs()
        index, _ = add_self_loops(torch.from_numpy(np.stack([sources, targets])), num_nodes=graph.n)
        self.register_buffer("index", index)
        self.register_buffer("adjacency", torch.from_numpy(graph.dense()))
        self.table = nn.Embedding(graph.n, 100)
        links = torch.from_numpy(graph.dense())
        self.register_buffer("mean", links / links.sum(dim=1, keepdim=True).clamp_min(1))
        if self.default:  # SAGE proper: no self loops, the client's own embedding has weights of its own
            self.index = torch.from_numpy(np.stack([sources, targets]))
        self.layers = nn.ModuleList(SAGEConv(100, 100, aggr="mean", root_weight=self.default) for _ in range(3))
        self.trunk = nn.Sequential(nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU())
        self.heads = nn.ModuleList(nn.Linear(100, value.numel()) for value in target.parameters())
        self.transform = nn.Sequential(nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 100))

    def seen_as_new(self, rows: list[int]) -> Tensor:
        """The table with the cohort's rows replaced by the mean of their neighbours'."""
        h = self.table.weight
        return h.index_copy(0, torch.tensor(rows), self.mean[rows] @ h)

    def forward(self, h: Tensor) -> tuple[list[Tensor], Tensor]:
        for layer in self.layers[:-1]:
            h = layer(h, self.index).relu()
        z = self.layers[-1](h, self.index)
        features = self.trunk(z)
        return [head(features) for head in self.heads], z

    def link_loss(self, z: Tensor) -> Tensor:
        zhat = self.transform(z)
        logits = zhat @ zhat.T / 10
        loss = functional.binary_cross_entropy_with_logits(logits, self.adjacency, reduction="none")
        yes = self.adjacency > 0
        no = ~yes & ~torch.eye(len(yes), dtype=torch.bool)
        return (loss[yes].mean() + loss[no].mean()) / 2


def naive_round(
    server: NaiveHypernetwork,
    optimiser: torch.optim.Optimizer,
    network: nn.Module,
    rows: list[int],
    batches: list[list[tuple[Tensor, Tensor]]],
) -> None:
    """One round: generate, train every client in turn, K_s = 10 server steps."""
    with torch.no_grad():
        parts, _ = server(server.table.weight)
    targets = []
    for row, steps in zip(rows, batches, strict=True):
        local = copy.deepcopy(network)
        with torch.no_grad():
            for value, part in zip(local.parameters(), parts, strict=True):
                value.copy_(part[row].reshape(value.shape))
        inner = torch.optim.SGD(local.parameters(), lr=0.1)
        for x, y in steps:
            inner.zero_grad()
            functional.cross_entropy(local(x), y).backward()
            inner.step()
        targets.append([value.detach().reshape(-1) for value in local.parameters()])
    for _ in range(10):
        optimiser.zero_grad()
        parts, z = server(server.table.weight)
        loss = (0.01 if server.default else 0.1) * server.link_loss(z)
        made = [parts, server(server.seen_as_new(rows))[0]] if server.default else [parts]
        for parts in made:
            for row, target in zip(rows, targets, strict=True):
                for part, wanted in zip(parts, target, strict=True):
                    loss = loss + (wanted - part[row]).square().sum() / (2 * len(rows))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(server.parameters(), 50)
        optimiser.step()


def experiment_of(federation: pn.Federation, preset: str) -> Experiment:
    """Panacea on a federation; enough rounds are announced for the engine to settle as in a long run."""
    keys = {"data": federation.name, "method": "panacea", "method.preset": preset, "rounds": 10_000, "lr": 0.1}
    return Experiment(build_config(keys), federation)


def timed_round(experiment: Experiment) -> float:
    cohort = experiment.cohort(experiment.state.round + 1)
    started = time.perf_counter()
    experiment.state, _ = run_round(experiment.method, experiment.state, cohort, experiment.engine)
    return time.perf_counter() - started


def against_naive(rounds: int) -> None:
    federation = pn.load("fl60", seed=0)
    graph = federation.graph.take(federation.train_ids)
    print("milliseconds a round (median of interleaved rounds), fl60, 5 clients, K_c 50, K_s 10")
    print(f"{'':28}{'naive loop':>12}{'panacea':>10}{'ratio':>8}")
    for preset in ("paper", "default"):
        experiment = experiment_of(federation, preset)
        network = experiment.target.to_module(experiment.target.initial, experiment.target.statistics)
        server = NaiveHypernetwork(graph, network, preset)
        optimiser = torch.optim.SGD(server.parameters(), lr=0.01, momentum=0.9)
        naive, ours = [], []
        for round in range(1, rounds + 4):
            ids = experiment.cohort(round).ids
            batches = [
                [
                    (drawn[0].x[0], drawn[0].y[0])
                    for drawn in experiment.engine.samples.batches(np.array([client]), round, "train", 50, 1, 64)
                ]
                for client in ids
            ]
            rows = np.searchsorted(federation.train_ids, ids).tolist()
            started = time.perf_counter()
            naive_round(server, optimiser, network, rows, batches)
            naive.append(time.perf_counter() - started)
            ours.append(timed_round(experiment))
        slow, fast = (1e3 * statistics.median(values[3:]) for values in (naive, ours))
        print(f"{f'preset={preset}':28}{slow:12.1f}{fast:10.1f}{slow / fast:7.1f}x", flush=True)


def random_federation(clients: int) -> pn.Federation:
    """Clients with fl60-like points and a random graph of mean degree 6."""
    generator = np.random.default_rng(0)
    edges = np.unique(np.sort(generator.integers(0, clients, (3 * clients, 2)), axis=1), axis=0)
    x = generator.normal(size=(clients, 10, 2)).astype(np.float32)
    y = (x.sum(axis=2) > 0).astype(np.int64)
    return pn.Federation.from_arrays(
        list(x), list(y), edges=edges[edges[:, 0] != edges[:, 1]], name="random", classes=2
    )


def scale(rounds: int, sizes: list[int]) -> None:
    print(f"{'clients':>9}{'ms a round':>12}{'x smallest':>12}{'peak GB':>9}   Panacea, preset default, mean degree 6")
    first = None
    for clients in sizes:
        experiment = experiment_of(random_federation(clients), "default")
        seconds = [timed_round(experiment) for _ in range(rounds + 2)][2:]
        found = 1e3 * statistics.median(seconds)
        first = first or found
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"{clients:9}{found:12.1f}{found / first:12.2f}{peak:9.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["naive", "scale"])
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--clients", default="1000,10000,100000", help="sizes of `scale`, ascending")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.what == "naive":
        against_naive(given.rounds)
    else:
        scale(given.rounds, [int(size) for size in given.clients.split(",")])


if __name__ == "__main__":
    main()
