"""Loops over clients as one would write them by hand: what every claim of speed is measured against.

`plain_round` is the least a loop can do: the module is called as it stands, weights are updated in place without
`torch.optim`, batches are gathered beforehand, nothing is logged or evaluated. `naive_round` is Panacea with the
libraries at hand: an embedding table, three SAGEConv layers of torch_geometric over the whole graph, one head per
tensor for every client, and torch.optim on both sides; a pass for the clients as they are, another with newcomers. It
takes the same steps as `method=panacea` with its defaults.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from panacea.graphs import ClientGraph

__all__ = ["NaiveHypernetwork", "naive_round", "plain_round"]

Batches = Sequence[Sequence[tuple[Tensor, Tensor]]]
"""``batches[client][step] = (x, y)``."""


def plain_round(network: nn.Module, batches: Batches, lr: float, loss: Callable[[Tensor, Tensor], Tensor]) -> nn.Module:
    """One FedAvg round; clients weigh the same. Returns the new network."""
    total = [torch.zeros_like(value) for value in network.parameters()]
    for steps in batches:
        local = copy.deepcopy(network)
        values = list(local.parameters())
        for x, y in steps:
            gradients = torch.autograd.grad(loss(local(x), y), values)
            with torch.no_grad():
                for value, gradient in zip(values, gradients, strict=True):
                    value.sub_(gradient, alpha=lr)
        with torch.no_grad():
            for mean, value in zip(total, values, strict=True):
                mean.add_(value, alpha=1 / len(batches))
    new = copy.deepcopy(network)
    with torch.no_grad():
        for value, mean in zip(new.parameters(), total, strict=True):
            value.copy_(mean)
    return new


class NaiveHypernetwork(nn.Module):
    """Panacea's server with torch_geometric's layers and heads for all nodes."""

    index: Tensor
    adjacency: Tensor

    def __init__(self, graph: ClientGraph, target: nn.Module) -> None:
        super().__init__()
        from torch_geometric.nn import SAGEConv  # noqa: PLC0415  (not needed to run Panacea)

        sources, targets, _ = graph.arcs()
        links = torch.from_numpy(graph.dense())
        self.register_buffer("index", torch.from_numpy(np.stack([sources, targets])))
        self.register_buffer("adjacency", links)
        self.table = nn.Embedding(graph.n, 100)
        self.layers = nn.ModuleList(SAGEConv(100, 100, aggr="mean", root_weight=True) for _ in range(3))
        self.trunk = nn.Sequential(nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU())
        self.heads = nn.ModuleList(nn.Linear(100, value.numel()) for value in target.parameters())
        self.transform = nn.Sequential(nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 100))

    def some_neighbours(self, rows: list[int]) -> list[Tensor]:
        """A random number of each client's neighbours: whom it hears as a newcomer."""
        heard = [self.index[0][self.index[1] == row] for row in rows]
        return [some[torch.randperm(len(some))[: int(torch.randint(max(len(some), 1), ())) + 1]] for some in heard]

    def with_newcomers(self, neighbours: list[Tensor]) -> tuple[Tensor, Tensor]:
        """The table and the arcs with one more node for each of the cohort, which nobody hears."""
        h, n = self.table.weight, len(self.table.weight)
        means = torch.stack([(h[some] if len(some) else h).mean(dim=0) for some in neighbours])
        arcs = [torch.stack([some, torch.full_like(some, n + new)]) for new, some in enumerate(neighbours)]
        return torch.cat([h, means]), torch.cat([self.index, *arcs], dim=1)

    def forward(self, h: Tensor, index: Tensor) -> tuple[list[Tensor], Tensor]:
        """Every client's weights, tensor by tensor, and the embeddings they are made from."""
        for layer in self.layers[:-1]:
            h = layer(h, index).relu()
        z = self.layers[-1](h, index)
        features = self.trunk(z)
        return [head(features) for head in self.heads], z

    def link_loss(self, z: Tensor) -> Tensor:
        """How badly the embeddings tell who is linked."""
        zhat = self.transform(z)
        loss = functional.binary_cross_entropy_with_logits(zhat @ zhat.T / 10, self.adjacency, reduction="none")
        yes = self.adjacency > 0
        no = ~yes & ~torch.eye(len(yes), dtype=torch.bool, device=yes.device)
        return (loss[yes].mean() + loss[no].mean()) / 2


def naive_round(
    server: NaiveHypernetwork, optimiser: torch.optim.Optimizer, network: nn.Module, rows: list[int], batches: Batches
) -> None:
    """One round: generate, half of the models as for newcomers; train every client in turn; K_s = 10 server steps."""
    neighbours = server.some_neighbours(rows)
    known = len(server.table.weight)
    with torch.no_grad():
        parts, _ = server(server.table.weight, server.index)
        new, _ = server(*server.with_newcomers(neighbours))
    targets = []
    for place, (row, steps) in enumerate(zip(rows, batches, strict=True)):
        local = copy.deepcopy(network)
        made, node = (new, known + place) if torch.rand(()) < 0.5 else (parts, row)
        with torch.no_grad():
            for value, part in zip(local.parameters(), made, strict=True):
                value.copy_(part[node].reshape(value.shape))
        inner = torch.optim.SGD(local.parameters(), lr=0.1)
        for x, y in steps:
            inner.zero_grad()
            functional.cross_entropy(local(x), y).backward()
            inner.step()
        targets.append([value.detach().reshape(-1) for value in local.parameters()])
    for _ in range(10):
        optimiser.zero_grad()
        parts, z = server(server.table.weight, server.index)
        new, _ = server(*server.with_newcomers(neighbours))
        loss = 0.01 * server.link_loss(z)
        for place, (row, target) in enumerate(zip(rows, targets, strict=True)):
            for weight, made, node in ((1.0, parts, row), (0.3, new, known + place)):
                for part, wanted in zip(made, target, strict=True):
                    loss = loss + weight * (wanted - part[node]).square().sum() / (2 * len(rows))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(server.parameters(), 50)
        optimiser.step()
