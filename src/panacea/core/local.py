"""The only local-training loop: start, K x step, finish; and plain SGD, the only local optimiser.

Everything here is written for leading dims ``...``: ``()`` for one client, ``(rows,)`` for many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from panacea.core.parameters import Parameters, squared_norm
from panacea.core.records import Tree, record, tree_where
from panacea.core.types import Batch
from panacea.errors import RequestError

if TYPE_CHECKING:
    from panacea.core.method import Method

__all__ = ["Fold", "Gradient", "Iterate", "Local", "Sgd", "fold_steps", "refuse_unstable", "run_local"]


class Gradient(Protocol):
    """The gradient of a client's loss on one batch; supplied by the engine, which counts the evaluations."""

    def __call__(
        self,
        params: Parameters,
        batch: Batch,
        extra: Callable[[Parameters], Tensor] | None = None,
        track: bool = True,
    ) -> Parameters:
        """The gradient ``[..., P]`` of ``sum_b weight_b loss_b(params) + extra(params)``.

        Args:
            params: where, ``[..., P]``.
            batch: the samples.
            extra: an additional loss term ``[..., P] -> [..., 1]``, differentiated with the rest.
            track: whether BatchNorm's running statistics see this pass.
        """
        ...

    def curvature(self, params: Parameters, batch: Batch, along: Parameters) -> Parameters:
        """The Hessian of the loss on one batch times a vector, ``[..., P]``; counts as two gradients."""
        ...

    def full(self, params: Parameters) -> Parameters:
        """The gradient over all train samples of the client, taken in batches in their stored order.

        Statistics are not tracked; its batches are not counted as steps of training.
        """
        ...


@record
class Iterate:
    """A vector being trained, with its momentum buffer if there is momentum."""

    params: Parameters
    velocity: Tensor | None = None


@dataclass(frozen=True)
class Sgd:
    """Plain stochastic gradient descent, optionally with clipping, weight decay and (heavy-ball) momentum.

    ``g <- clip(g) + weight_decay * w;  v <- momentum * v + g;  w <- w - lr * v``  (without momentum v = g).

    Attributes:
        lr: a number, or ``[..., 1]`` for a rate per row.
        momentum: 0 for none.
        weight_decay: 0 for none.
        clip: largest norm of a row's gradient, 0 for no clipping.
    """

    lr: float | Tensor
    momentum: float = 0.0
    weight_decay: float = 0.0
    clip: float = 0.0

    def start(self, params: Parameters) -> Iterate:
        """The iterate before the first step."""
        return Iterate(params, torch.zeros_like(params) if self.momentum else None)

    def __call__(self, iterate: Iterate, gradient: Parameters) -> Iterate:
        """One step along a gradient (or any direction a method makes of it)."""
        w = iterate.params
        if self.clip:
            norm = squared_norm(gradient).sqrt()
            gradient = gradient * (self.clip / norm.clamp_min(1e-30)).clamp_max(1.0)
        if self.weight_decay:
            gradient = gradient + self.weight_decay * w
        velocity = None
        if iterate.velocity is not None:
            gradient = velocity = self.momentum * iterate.velocity + gradient
        if isinstance(self.lr, Tensor):
            return Iterate(w - self.lr * gradient, velocity)
        return Iterate(torch.sub(w, gradient, alpha=self.lr), velocity)


def refuse_unstable(method: str, lr: float, pull: float, key: str, remedy: str = "") -> None:
    """Refuse a quadratic pull ``pull/2 ||w - centre||^2`` that gradient steps of this rate overshoot ever further.

    Args:
        method: whose.
        lr: the rate.
        pull: the weight of the term.
        key: where the pull comes from.
        remedy: what else may help.
    """
    if lr * pull >= 2:
        raise RequestError(
            f"method={method}: lr={lr:g} times {key}={pull:.3g} must be below 2, or the pull diverges; "
            f"use lr below {2 / pull:.3g}{remedy}"
        )


@dataclass(frozen=True)
class Local:
    """What the engine hands to a method's `step`.

    Attributes:
        grad: the gradient function.
        sgd: the experiment's local optimiser, with this row's learning rate.
        steps: local steps of this visit: one number, or ``[rows, 1]``.
    """

    grad: Gradient
    sgd: Sgd
    steps: int | Tensor = 1


class Fold(Protocol):
    """The K steps between start and finish."""

    def __call__(
        self,
        method: Method,
        carry: Tree,
        download: Tree,
        client: Tree,
        batches: Iterable[tuple[Batch, ...]],
        local: Local,
    ) -> Tree:
        """The carry after the last step."""
        ...


def fold_steps(
    method: Method,
    carry: Tree,
    download: Tree,
    client: Tree,
    batches: Iterable[tuple[Batch, ...]],
    local: Local,
    first: int = 0,
) -> Tree:
    """One step after the other, from some step on; a row stands still after its own number of steps."""
    for t, drawn in enumerate(batches, first):
        new = method.step(carry, download, client, drawn, local)
        carry = tree_where(t < local.steps, new, carry) if isinstance(local.steps, Tensor) else new
    return carry


def run_local(
    method: Method,
    download: Tree,
    client: Tree,
    batches: Iterable[tuple[Batch, ...]],
    local: Local,
    fold: Fold = fold_steps,
) -> tuple[Tree, Tree]:
    """Train one client, or many at once; returns (upload, kept client state).

    Args:
        method: whose `start`, `step` and `finish` are folded.
        download: what the client received.
        client: what it kept from its last visit.
        batches: for each step, `method.draws` batches.
        local: gradient, optimiser and number of steps.
        fold: how the steps are taken; an engine may have a faster way to the same numbers.
    """
    carry = method.start(download, client, local)
    carry = fold(method, carry, download, client, batches, local)
    return method.finish(carry, download, client, local.steps)
