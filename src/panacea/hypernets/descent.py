"""The server's optimiser: K_s gradient steps on a loss of the hypernetwork.

    g <- clip(grad);  g <- g + weight_decay * w
    sgd       w <- w - alpha g
    momentum  v <- momentum * v + g;  w <- w - alpha v
    adam      the usual bias-corrected step with betas 0.9 and 0.999

The norm that is clipped is that of all gradients together (embeddings and weights). Where only the rows of some clients
are touched in a round, the others' memory stands still; Adam's count is that of all steps, not of a row's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

import torch
from torch import Tensor

from panacea.core.parameters import Layout

__all__ = ["Loss", "Objective", "Optimiser", "OptimiserKind", "descend"]

OptimiserKind: TypeAlias = Literal["sgd", "momentum", "adam"]
Loss: TypeAlias = Tensor | Sequence[tuple[Tensor, Tensor]]
"""A loss; or where it is simple to differentiate at the end, values it is made of, each with the loss's slope there."""
Kept = TypeVar("Kept")
Objective: TypeAlias = Callable[[Sequence[Tensor]], tuple[Loss, Kept]]
"""Variables in (cut by their layouts, where they have one), (loss to descend, what to keep of the last step) out."""

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

    def step(self, variables: Sequence[Tensor], moments: Sequence[Tensor], gradients: list[Tensor], lr: float) -> None:
        """One step, in place on the copies `descend` works with; temporaries of that size would cost more than it."""
        if self.clip:
            norm = torch.stack([torch.dot(g.flatten(), g.flatten()) for g in gradients]).sum().sqrt()
            factor = (self.clip / norm).clamp_max(1.0)
        else:
            factor = gradients[0].new_ones(())
        if self.kind == "momentum":
            for variable, velocity, gradient in zip(variables, moments, gradients, strict=True):
                velocity.mul_(self.momentum).addcmul_(gradient, factor)
                if self.weight_decay:
                    velocity.add_(variable, alpha=self.weight_decay)
                variable.sub_(velocity, alpha=lr)
            return
        gradients = [g.mul(factor).add_(v, alpha=self.weight_decay) for g, v in zip(gradients, variables, strict=True)]
        for variable, gradient in zip(variables, self._directions(moments, gradients), strict=True):
            variable.sub_(gradient, alpha=lr)

    def _directions(self, moments: Sequence[Tensor], gradients: list[Tensor]) -> list[Tensor]:
        """Adam's, or the gradients themselves."""
        if self.kind == "sgd":
            return gradients
        count = moments[-1].add_(1)
        first, second = moments[: len(gradients)], moments[len(gradients) : -1]
        directions = []
        for m, v, g in zip(first, second, gradients, strict=True):
            m.mul_(_BETAS[0]).add_(g, alpha=1 - _BETAS[0])
            v.mul_(_BETAS[1]).addcmul_(g, g, value=1 - _BETAS[1])
            directions.append((m / (1 - _BETAS[0] ** count)) / ((v / (1 - _BETAS[1] ** count)).sqrt() + 1e-8))
        return directions


def descend(
    objective: Objective[Kept],
    variables: Sequence[Tensor],
    moments: Sequence[Tensor],
    optimiser: Optimiser,
    lr: float,
    steps: int,
    layouts: Sequence[Layout | None] | None = None,
) -> tuple[list[Tensor], list[Tensor], Kept | None]:
    """Some steps down a loss; nothing given is written to.

    Args:
        objective: the loss.
        variables: where to start.
        moments: the optimiser's memory.
        optimiser: the rule.
        lr: the rate.
        steps: how many.
        layouts: of each variable, of flat vectors that the objective is given in parts. They are cut once and the
            gradient is taken at the parts; autograd is spared the cut in every step.

    Returns:
        New variables, new moments, and what the objective gave to keep at the last step.
    """
    variables = [v.detach().clone() for v in variables]
    moments = [m.clone() for m in moments]
    known = layouts if layouts is not None else [None] * len(variables)
    gradients = [torch.zeros_like(v) for v in variables]
    leaves = []
    for variable, gradient, layout in zip(variables, gradients, known, strict=True):
        pairs = [[t] if layout is None else layout.parts(t) for t in (variable, gradient)]
        for value, slot in zip(*pairs, strict=True):
            leaves.append(value.detach().requires_grad_())  # a part of its variable, which moves with it
            leaves[-1].grad = slot  # a part of the variable's gradient, which autograd adds to
    kept = None
    for _ in range(steps):
        with torch.enable_grad():
            loss, kept = objective(leaves)
            values, slopes = ([loss], None) if isinstance(loss, Tensor) else zip(*loss, strict=True)
            torch.autograd.backward(values, slopes)
        with torch.no_grad():
            optimiser.step(variables, moments, gradients, lr)
            for gradient in gradients:
                gradient.zero_()
    return variables, moments, kept
