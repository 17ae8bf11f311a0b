"""The gradient a vectorised engine hands to methods: of a block of rows, in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from panacea.core.transfer import on_device
from panacea.core.types import Batch
from panacea.engines.base import FULL_PASS
from panacea.engines.rows import Rows

if TYPE_CHECKING:
    from panacea.engines.vectorised import VectorisedEngine

__all__ = ["Arguments", "RowGradient"]

_MOST_NOTED = {"cpu": 1 << 14, "cuda": 1 << 22}  # numbers that wait to be added up; on a CPU they stay in its cache

# parameters, statistics, x, y, weight or slope (see `panacea.models.target.weighed`), key, mask
Arguments: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None, Tensor | None]


class RowGradient:
    """The gradients of a block of rows in one call; keeps their statistics, losses and places in the streams.

    Attributes:
        statistics: ``[rows, S]`` of BatchNorm, after the last tracked pass.
        loss: ``[rows]`` summed over the calls so far, but for what `settle` has not added yet.
        noted: values and their weights, of gradients whose losses were not added yet.
        most_noted: so many numbers are added up at the latest; every step's at once in deterministic mode.
        place: how far the rows are in their streams of noise: a number, or a tensor in a captured step.
        still: ``[rows]`` which rows have taken their steps while others go on; None where none has.
        calls: gradients so far, of every row.
        unscored: how many of them came without a loss.
        extra_calls: gradients outside of the steps, summed over rows.
        stepped: (calls, unscored) of the steps, known after them; the rest are before and after.
    """

    def __init__(self, engine: VectorisedEngine, statistics: Tensor, rows: Rows, counts: npt.NDArray[np.int64]) -> None:
        self.engine, self.statistics, self.rows, self.counts = engine, statistics, rows, counts
        self.keys = rows.noise() if engine.target.draws_noise else None
        self.place: int | Tensor = 0
        self.still: Tensor | None = None
        self.calls = self.unscored = self.extra_calls = 0
        self.stepped = (0, 0)
        self.loss = torch.zeros(len(counts), dtype=statistics.dtype, device=statistics.device)
        self.noted: list[tuple[Tensor, Tensor]] = []
        # else losses' last bits would depend on how many steps a captured graph has, and that on the time they took
        self.most_noted = 1 if engine.precision.deterministic else _MOST_NOTED[self.loss.device.type]

    def follow(self, batches: Iterator[tuple[Batch, ...]], first: int = 0) -> Iterator[tuple[Batch, ...]]:
        """The same batches, from some step on; notes on the way which rows have no more steps to take."""
        least = int(self.counts.min())
        for step, drawn in enumerate(batches, first):
            if step >= least:
                self.still = on_device(self.counts <= step, self.loss.device)
            yield drawn

    def own_calls(self) -> npt.NDArray[np.int64]:
        """``[rows]``: gradients within each row's own number of steps, and around them."""
        return self._own(self.calls, self.stepped[0])

    def mean_loss(self) -> Tensor:
        """``[rows]``: each row's mean over its own steps."""
        self.settle()
        scored = self.own_calls() - self._own(self.unscored, self.stepped[1])
        if (scored == scored[0]).all():
            return self.loss / max(int(scored[0]), 1)
        return self.loss / on_device(np.maximum(scored, 1), self.loss.device, self.loss.dtype)

    def _own(self, total: int, stepped: int) -> npt.NDArray[np.int64]:
        """Every step is the same, so each has its part of what was counted during them."""
        return (total - stepped) + stepped // max(int(self.counts.max()), 1) * self.counts

    def __call__(
        self,
        params: Tensor,
        batch: Batch,
        extra: Callable[[Tensor], Tensor] | None = None,
        track: bool = True,
    ) -> Tensor:
        """See `panacea.core.local.Gradient`."""
        arguments = self._arguments(params, batch, self.place)
        gradient, values, statistics = self.engine.kernel(*arguments)
        if extra is not None:
            leaf = params.detach().requires_grad_(True)
            gradient = gradient + torch.autograd.grad(extra(leaf).sum(), leaf)[0]
        self._count(1)
        if self.still is not None:  # a row that has taken its steps keeps what it has
            values = torch.where(self.still.reshape(-1, *[1] * (values.dim() - 1)), 0.0, values)
            statistics = torch.where(self.still.unsqueeze(-1), self.statistics, statistics)
        self._note(values, arguments[4])
        if track:
            self.statistics = statistics
        return gradient

    def _note(self, values: Tensor, weight: Tensor) -> None:
        """What the loss of one gradient is made of; nobody waits for it, so it is added up for many steps at once."""
        if self.noted and self.noted[0][0].shape != values.shape:
            self.settle()
        self.noted.append((values, weight))
        if len(self.noted) * values.numel() >= self.most_noted:
            self.settle()

    def settle(self) -> None:
        """Add to `loss` what has only been noted."""
        if self.noted:
            values, weights = (torch.stack(each) for each in zip(*self.noted, strict=True))
            each = torch.where(weights == 0, 0.0, values * weights)  # log-probabilities of other classes may be -inf
            self.loss = self.loss + each.sum(dim=[dim for dim in range(each.dim()) if dim != 1])
            self.noted = []

    def _arguments(self, params: Tensor, batch: Batch, place: int | Tensor, rows: slice = slice(None)) -> Arguments:
        """What the engine's kernel is given for a call."""
        target = self.engine.target
        key = None if self.keys is None else (self.keys[rows] + place) & (2**63 - 1)
        needed = target.statistics_layout.names or self.engine.forward.kind == "loop"
        mask = batch.present.to(params.dtype) if batch.present is not None and needed else None
        along = batch.weight if batch.slope is None else batch.slope
        return params.detach().contiguous(), self.statistics[rows], batch.x, batch.y, along, key, mask

    def _count(self, calls: int) -> None:
        self.calls += calls
        self.place = self.place + calls

    def curvature(self, params: Tensor, batch: Batch, along: Tensor) -> Tensor:
        """See `panacea.core.local.Gradient`."""
        layout = self.engine.target.layout
        arguments = self._arguments(params, batch, self.place)
        parts, gradients, _, _ = self.engine.differentiate(*arguments, again=True)
        pieces = torch.autograd.grad(gradients, parts, grad_outputs=layout.parts(along), materialize_grads=True)
        self._count(2)
        self.unscored += 2
        return layout.join(pieces)

    def full(self, params: Tensor) -> Tensor:
        """See `panacea.core.local.Gradient`."""
        return torch.cat([self._full(params[rows], number, rows) for number, rows in enumerate(self.rows.slices)])

    def _full(self, params: Tensor, party: int, rows: slice) -> Tensor:
        total, own = torch.zeros_like(params), self.rows.parties[party]
        for number, (batch, active) in enumerate(own.samples.passes(own.ids, self.engine.local.batch_size)):
            gradient, _, _ = self.engine.kernel(*self._arguments(params, batch, FULL_PASS + number, rows))
            chosen = on_device(active, params.device).unsqueeze(-1)
            total = total + torch.where(chosen, gradient, 0.0)
            self.extra_calls += int(active.sum())
        return total
