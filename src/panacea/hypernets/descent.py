"""The server's optimiser: K_s gradient steps on a loss of the hypernetwork, and the guard that undoes a diverged round.

    g <- clip(grad);  g <- g + weight_decay * w
    sgd       w <- w - alpha g
    momentum  v <- momentum * v + g;  w <- w - alpha v
    adam      the usual bias-corrected step with betas 0.9 and 0.999

The norm that is clipped is that of all gradients together (embeddings and weights).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor

__all__ = ["Gradient", "Objective", "Optimiser", "OptimiserKind", "by_autograd", "descend"]

OptimiserKind: TypeAlias = Literal["sgd", "momentum", "adam"]
Objective: TypeAlias = Callable[[Sequence[Tensor]], tuple[Tensor, Tensor]]
"""Variables in, (loss to descend, terms to log) out."""
Gradient: TypeAlias = Callable[[Sequence[Tensor]], tuple[Tensor, ...]]
"""Variables in, terms to log and the gradient in every variable out."""

_BETAS = (0.9, 0.999)


@dataclass(frozen=True)
class Optimiser:
    """A rule for steps; its memory (`moments`) is passed in and out.

    Attributes:
        kind: sgd, momentum or adam.
        momentum: of `momentum`.
        weight_decay: 0 for none.
        clip: largest norm of the whole gradient, 0 for no clipping.
    """

    kind: OptimiserKind = "momentum"
    momentum: float = 0.9
    weight_decay: float = 0.0
    clip: float = 50.0

    def start(self, variables: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The memory before the first step: nothing, a velocity per variable, or two moments each and a count."""
        if self.kind == "sgd":
            return ()
        zeros = [torch.zeros_like(v) for v in variables]
        if self.kind == "momentum":
            return tuple(zeros)
        return (*zeros, *(torch.zeros_like(v) for v in variables), variables[0].new_zeros(()))

    def step(self, variables: Sequence[Tensor], moments: Sequence[Tensor], gradients: list[Tensor], lr: Tensor) -> None:
        """One step, in place (on the copies `descend` works with)."""
        if self.clip:
            norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in gradients]))
            factor = (self.clip / norm.clamp_min(1e-30)).clamp_max(1.0)
            gradients = [g * factor for g in gradients]
        if self.weight_decay:
            gradients = [g.add(v, alpha=self.weight_decay) for g, v in zip(gradients, variables, strict=True)]
        if self.kind == "momentum":
            for velocity, gradient in zip(moments, gradients, strict=True):
                velocity.mul_(self.momentum).add_(gradient)
            gradients = list(moments)
        elif self.kind == "adam":
            gradients = self._adam(moments, gradients)
        for variable, gradient in zip(variables, gradients, strict=True):
            variable.sub_(lr * gradient)

    @staticmethod
    def _adam(moments: Sequence[Tensor], gradients: list[Tensor]) -> list[Tensor]:
        count = moments[-1].add_(1)
        first, second = moments[: len(gradients)], moments[len(gradients) : -1]
        directions = []
        for m, v, g in zip(first, second, gradients, strict=True):
            m.mul_(_BETAS[0]).add_(g, alpha=1 - _BETAS[0])
            v.mul_(_BETAS[1]).addcmul_(g, g, value=1 - _BETAS[1])
            directions.append((m / (1 - _BETAS[0] ** count)) / ((v / (1 - _BETAS[1] ** count)).sqrt() + 1e-8))
        return directions


def by_autograd(objective: Objective) -> Gradient:
    """The gradient of an objective that returns (loss, terms to log)."""

    def gradient(variables: Sequence[Tensor]) -> tuple[Tensor, ...]:
        with torch.enable_grad():
            leaves = [v.detach().requires_grad_() for v in variables]
            loss, terms = objective(leaves)
            return (terms.detach(), *torch.autograd.grad(loss, leaves, materialize_grads=True))

    return gradient


def descend(
    gradient: Gradient,
    variables: Sequence[Tensor],
    moments: Sequence[Tensor],
    optimiser: Optimiser,
    lr: Tensor,
    steps: int,
) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """Some steps down a loss; nothing given is written to.

    Returns:
        New variables, new moments, and the terms to log, as they were at the last step.
    """
    variables = [v.detach().clone() for v in variables]
    moments = [m.clone() for m in moments]
    terms = torch.zeros(0)
    with torch.no_grad():
        for _ in range(steps):
            terms, *gradients = gradient(variables)
            optimiser.step(variables, moments, gradients, lr)
    return variables, moments, terms
