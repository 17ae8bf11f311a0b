"""The baseline every speed claim is measured against: FedAvg as one would write it by hand, without torch.optim.

Batches are gathered beforehand, nothing is logged or evaluated: this is the least a loop over clients can do.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call


def plain_round(
    network: nn.Module,
    weights: dict[str, Tensor],
    batches: list[list[tuple[Tensor, Tensor]]],
    lr: float,
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
) -> dict[str, Tensor]:
    """One FedAvg round: `batches[client][step] = (x, y)`; all clients weigh the same."""
    total = {name: torch.zeros_like(value) for name, value in weights.items()}
    for steps in batches:
        local = {name: value.clone().requires_grad_(True) for name, value in weights.items()}
        values = list(local.values())
        for x, y in steps:
            gradients = torch.autograd.grad(loss(functional_call(network, local, (x,)), y), values)
            with torch.no_grad():
                for value, gradient in zip(values, gradients, strict=True):
                    value.sub_(gradient, alpha=lr)
        for name, value in local.items():
            total[name] += value.detach() / len(batches)
    return total
