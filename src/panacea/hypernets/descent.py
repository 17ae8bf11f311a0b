"""The server's optimiser: K_s gradient steps on a loss of the hypernetwork.

    g <- clip(grad);  g <- g + weight_decay * w
    sgd       w <- w - alpha g
    momentum  v <- momentum * v + g;  w <- w - alpha v
    adam      the usual bias-corrected step with betas 0.9 and 0.999

The norm that is clipped is that of all gradients together (embeddings and weights). Where only the rows of some clients
are touched in a round, the others' memory stands still; Adam's count is that of all steps, not of a row's own.

The gradient of a linear head ``theta_t = W f_t + b`` is of rank |S|: with the slopes ``s_t`` of the loss in theta_t,
``G = sum_t s_t f_t^T``. Plain SGD takes it as these two thin factors (`Outer`): one product adds it to W where it is,

    W <- (1 - alpha * weight_decay) W - alpha * c S^T F,     ||G||^2 = sum_{t,t'} (s_t . s_t') (f_t . f_t')

with c the factor of clipping, and no matrix of the size of W is made beside W. Momentum and Adam cannot: their memory
is a sum over all rounds, soon of full rank, and has to be kept as a matrix anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

import torch
from torch import Tensor

from panacea.core.parameters import Layout

__all__ = ["Descent", "Loss", "Objective", "Optimiser", "OptimiserKind", "Outer", "Slopes", "descend"]

OptimiserKind: TypeAlias = Literal["sgd", "momentum", "adam"]
Pairs: TypeAlias = Sequence[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Outer:
    """The gradient ``left^T right`` of a matrix, not multiplied out.

    Attributes:
        left: ``[k, rows]``.
        right: ``[k, columns]``.
    """

    left: Tensor
    right: Tensor

    def squared_norm(self) -> Tensor:
        """``||left^T right||^2`` by the products within each factor."""
        return ((self.left @ self.left.T) * (self.right @ self.right.T)).sum()


@dataclass(frozen=True)
class Slopes:
    """A loss as values with its slopes there, and the gradient of the variable that `descend` calls `factored`."""

    pairs: Pairs
    outer: Outer


Loss: TypeAlias = Tensor | Pairs | Slopes
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

    def step(
        self,
        variables: Sequence[Tensor],
        moments: Sequence[Tensor],
        gradients: list[Tensor],
        lr: float | Tensor,
        matrix: Tensor | None = None,
        outer: Outer | None = None,
    ) -> None:
        """One step, in place on the copies `descend` works with; temporaries of that size would cost more than it.

        Args:
            variables: what moves.
            moments: the memory.
            gradients: one of each variable.
            lr: the rate.
            matrix: with sgd, one more variable whose gradient is given by its factors.
            outer: these.
        """
        if self.clip:
            squares = [torch.dot(g.flatten(), g.flatten()) for g in gradients]
            squares += [] if outer is None else [outer.squared_norm()]
            factor = (self.clip / torch.stack(squares).sum().sqrt()).clamp_max(1.0)
        else:
            factor = gradients[0].new_ones(())
        if matrix is not None and outer is not None:
            if self.weight_decay:
                matrix.mul_(1 - lr * self.weight_decay)
            matrix.addmm_(outer.left.T, (-lr * factor) * outer.right)
        if self.kind == "momentum":
            for variable, velocity, gradient in zip(variables, moments, gradients, strict=True):
                velocity.mul_(self.momentum).addcmul_(gradient, factor)
                if self.weight_decay:
                    velocity.add_(variable, alpha=self.weight_decay)
                _walk(variable, velocity, lr)
            return
        gradients = [g.mul(factor).add_(v, alpha=self.weight_decay) for g, v in zip(gradients, variables, strict=True)]
        for variable, gradient in zip(variables, self._directions(moments, gradients), strict=True):
            _walk(variable, gradient, lr)

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


def _walk(variable: Tensor, direction: Tensor, lr: float | Tensor) -> None:
    """``variable <- variable - lr * direction`` without a temporary; a rate on the device is never read by the host."""
    if isinstance(lr, Tensor):
        variable.addcmul_(direction, lr.to(variable.dtype), value=-1)
    else:
        variable.sub_(direction, alpha=lr)


class Descent:
    """Copies of variables and memory that move in place, one step after the other; see `descend`."""

    def __init__(
        self,
        variables: Sequence[Tensor],
        moments: Sequence[Tensor],
        optimiser: Optimiser,
        layouts: Sequence[Layout | None] | None = None,
        factored: str | None = None,
    ) -> None:
        self.variables = [v.detach().clone() for v in variables]
        self.moments = [m.clone() for m in moments]
        self.optimiser = optimiser
        self.leaves: list[Tensor] = []
        self.moving: list[Tensor] = []
        self.gradients: list[Tensor] = []
        self.matrix: Tensor | None = None
        known = layouts if layouts is not None else [None] * len(self.variables)
        for variable, layout in zip(self.variables, known, strict=True):
            names = ("",) if layout is None else layout.names
            parts = [variable] if layout is None else layout.parts(variable)
            if factored in names:  # its parts one by one, or there would be a gradient of its size after all
                others = [part for name, part in zip(names, parts, strict=True) if name != factored]
                slots = [torch.zeros_like(part) for part in others]
                self.matrix = parts[names.index(factored)]
                self.moving += others
                self.gradients += slots
                slots = [*slots]
                slots.insert(names.index(factored), self.matrix[:0])
            else:
                self.moving.append(variable)
                self.gradients.append(torch.zeros_like(variable))
                slots = [self.gradients[-1]] if layout is None else layout.parts(self.gradients[-1])
            for name, value, slot in zip(names, parts, slots, strict=True):
                leaf = value.detach()  # a part of its variable, which moves with it
                if name != factored:
                    leaf.requires_grad_()
                    leaf.grad = slot  # a part of the variable's gradient, which autograd adds to
                self.leaves.append(leaf)

    def step(self, objective: Objective[Kept], lr: float | Tensor) -> Kept:
        """One step; what the objective gave to keep."""
        with torch.enable_grad():
            loss, kept = objective(self.leaves)
            pairs, outer = (loss.pairs, loss.outer) if isinstance(loss, Slopes) else (loss, None)
            values, slopes = ([pairs], None) if isinstance(pairs, Tensor) else zip(*pairs, strict=True)
            torch.autograd.backward(values, slopes)
        with torch.no_grad():
            self.optimiser.step(self.moving, self.moments, self.gradients, lr, self.matrix, outer)
            for gradient in self.gradients:
                gradient.zero_()
        return kept


def descend(
    objective: Objective[Kept],
    variables: Sequence[Tensor],
    moments: Sequence[Tensor],
    optimiser: Optimiser,
    lr: float | Tensor,
    steps: int,
    layouts: Sequence[Layout | None] | None = None,
    factored: str | None = None,
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
        factored: with sgd, the part (a matrix) whose gradient the objective gives as an `Outer`.

    Returns:
        New variables, new moments, and what the objective gave to keep at the last step.
    """
    descent = Descent(variables, moments, optimiser, layouts, factored)
    kept = None
    for _ in range(steps):
        kept = descent.step(objective, lr)
    return descent.variables, descent.moments, kept
