"""The baseline every speed claim is measured against: FedAvg as one would write it by hand, without torch.optim.

The module is called as it stands, weights are updated in place, batches are gathered beforehand and nothing is logged
or evaluated: this is the least a loop over clients can do.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn


def plain_round(
    network: nn.Module,
    batches: list[list[tuple[Tensor, Tensor]]],
    lr: float,
    loss: Callable[[Tensor, Tensor], Tensor],
) -> nn.Module:
    """One FedAvg round over ``batches[client][step] = (x, y)``; clients weigh the same. Returns the new network."""
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
