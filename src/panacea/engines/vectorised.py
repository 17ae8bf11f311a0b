"""The fast engine: all clients of a block in one call, as rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from panacea.core.local import Local, run_local
from panacea.core.method import Method
from panacea.core.records import Tree, leaves, tree_index, tree_map
from panacea.core.round import Trained
from panacea.core.types import Batch, ClientIds, Cohort, Steps
from panacea.engines.base import FULL_PASS, LocalSettings, Samples, Scores
from panacea.engines.forward import build_forward
from panacea.engines.scoring import Scorer
from panacea.engines.tracing import Kernel, TracedKernel
from panacea.models.target import TargetModel, objective

__all__ = ["VectorisedEngine", "default_block"]

Arguments: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None, Tensor | None]
_BLOCK_BYTES = {"cpu": 16 * 2**20, "cuda": 4 * 2**30}  # a CPU is fastest while a block stays in its cache


def default_block(target: TargetModel, batch_size: int, device: str) -> int:
    """Rows trained in one call when the user does not say: as many as fit the cache (CPU) or memory (GPU).

    A row costs its parameters (value, gradient, two temporaries) and what its layers put out, twice (for the backward
    pass). Many small networks run together; a large convolutional one is best taken client by client on a CPU.
    """
    outputs = 0

    def count(_: nn.Module, __: object, out: object) -> None:
        nonlocal outputs
        outputs += sum(leaf.numel() for leaf in leaves(out))

    hooks = [m.register_forward_hook(count) for m in target.module.modules() if not list(m.children())]
    try:
        x = target.initial.new_zeros((2, *target.task.inputs))
        with torch.no_grad():
            target.forward(target.initial, target.statistics, x, training=False)
    finally:
        for hook in hooks:
            hook.remove()
    row = target.initial.element_size() * (4 * target.layout.size + batch_size * outputs)
    return int(max(1, min(1024, _BLOCK_BYTES[device] // row)))


class _Gradient:
    """The gradients of a block of clients in one call; keeps their statistics, losses and places in the streams."""

    def __init__(
        self,
        engine: VectorisedEngine,
        statistics: Tensor,
        keys: Tensor,
        ids: ClientIds,
        counts: npt.NDArray[np.int64],
    ) -> None:
        self.engine, self.statistics, self.keys, self.ids, self.counts = engine, statistics, keys, ids, counts
        self.calls = 0
        self.extra_calls = 0  # outside of the steps, summed over rows
        self.idle = np.zeros(len(counts), np.int64)  # calls after a row's own number of steps
        self.unscored = np.zeros(len(counts), np.int64)  # of a row's own calls, those without a loss
        self.still: npt.NDArray[np.bool_] | None = None  # rows that have taken their steps, while others go on
        self.still_rows: Tensor | None = None  # likewise on the device
        self.loss = torch.zeros(len(counts), dtype=statistics.dtype, device=statistics.device)

    def follow(self, batches: Iterator[tuple[Batch, ...]]) -> Iterator[tuple[Batch, ...]]:
        """The same batches; notes on the way which rows have no more steps to take."""
        first = int(self.counts.min())
        for step, drawn in enumerate(batches):
            if step >= first:
                self.still = self.counts <= step
                self.still_rows = torch.from_numpy(self.still).to(self.loss.device)
            yield drawn

    def own_calls(self) -> npt.NDArray[np.int64]:
        """``[rows]``: gradients within each row's own number of steps."""
        return self.calls - self.idle

    def mean_loss(self) -> Tensor:
        """``[rows]``: each row's mean over its own steps."""
        return self.loss / torch.from_numpy(np.maximum(self.own_calls() - self.unscored, 1)).to(self.loss)

    def __call__(
        self,
        params: Tensor,
        batch: Batch,
        extra: Callable[[Tensor], Tensor] | None = None,
        track: bool = True,
    ) -> Tensor:
        arguments = self._arguments(params, batch, self.calls)
        gradient, loss, statistics = self.engine.kernel(*arguments)
        if extra is not None:
            leaf = params.detach().requires_grad_(True)
            gradient = gradient + torch.autograd.grad(extra(leaf).sum(), leaf)[0]
        self._count(1)
        if self.still_rows is not None:  # a row that has taken its steps keeps what it has
            loss = torch.where(self.still_rows, 0.0, loss)
            statistics = torch.where(self.still_rows.unsqueeze(-1), self.statistics, statistics)
        self.loss = self.loss + loss
        if track:
            self.statistics = statistics
        return gradient

    def _arguments(self, params: Tensor, batch: Batch, call: int) -> Arguments:
        """What `_block_gradient` is given for a call."""
        target = self.engine.target
        key = (self.keys + call) & (2**63 - 1) if target.draws_noise else None
        needed = target.statistics_layout.names or self.engine.forward.kind == "loop"
        mask = batch.present.to(params.dtype) if batch.present is not None and needed else None
        return params.detach().contiguous(), self.statistics, batch.x, batch.y, batch.weight, key, mask

    def _count(self, calls: int) -> None:
        self.calls += calls
        if self.still is not None:
            self.idle += calls * self.still

    def curvature(self, params: Tensor, batch: Batch, along: Tensor) -> Tensor:
        layout = self.engine.target.layout
        arguments = self._arguments(params, batch, self.calls)
        parts, gradients, _, _ = self.engine.differentiate(*arguments, again=True)
        pieces = torch.autograd.grad(gradients, parts, grad_outputs=layout.parts(along), materialize_grads=True)
        self._count(2)
        self.unscored += 2 if self.still is None else 2 * ~self.still
        return layout.join(pieces)

    def full(self, params: Tensor) -> Tensor:
        total = torch.zeros_like(params)
        for number, (batch, active) in enumerate(self.engine.samples.passes(self.ids, self.engine.local.batch_size)):
            gradient, _, _ = self.engine.kernel(*self._arguments(params, batch, FULL_PASS + number))
            rows = torch.from_numpy(active).to(params.device).unsqueeze(-1)
            total = total + torch.where(rows, gradient, 0.0)
            self.extra_calls += int(active.sum())
        return total


class VectorisedEngine:
    """Rows over clients.

    Attributes:
        block: most rows in one call. Results depend on it in the last float bits only; it is fixed within a run.
        forward: how the network is run for many clients (`batched`, `vmap` or `loop`).
        kernel: gradient, loss and new statistics of a block: `_block_gradient`, as straight-line code when `traced`.
    """

    name = "vectorised"

    def __init__(
        self,
        target: TargetModel,
        samples: Samples,
        local: LocalSettings,
        block: int,
        forward: str = "auto",
        traced: bool = False,
    ) -> None:
        self.target, self.samples, self.local, self.block = target, samples, local, block
        self.forward = build_forward(target, forward)
        traceable = traced and self.forward.kind != "loop"
        self.kernel: Kernel = TracedKernel(self._block_gradient) if traceable else self._block_gradient
        self.gradient_evaluations = 0

    def _block_gradient(self, *arguments: *Arguments) -> tuple[Tensor, Tensor, Tensor]:
        """``[R, P]`` gradients of every row's own loss, these losses ``[R]``, and the new statistics."""
        _, pieces, losses, new = self.differentiate(*arguments)
        loss = (losses.detach() * arguments[4]).sum(dim=1)  # by the samples' weights
        return self.target.layout.join(pieces), loss, new

    def differentiate(
        self,
        params: Tensor,
        statistics: Tensor,
        x: Tensor,
        y: Tensor,
        weight: Tensor,
        key: Tensor | None,
        mask: Tensor | None,
        again: bool = False,
    ) -> tuple[list[Tensor], tuple[Tensor, ...], Tensor, Tensor]:
        """The layout's parts ``[R, *shape]``, the gradients at them, the losses ``[R, B]`` and the new statistics.

        Rows do not touch each other, so one backward pass serves all. The gradient of sum(weight * loss) is the
        vector-Jacobian product with weight, and it is taken at the layout's parts, not through cutting up the vector.
        With `again` the gradients can be differentiated once more.
        """
        parts = [part.detach().requires_grad_(True) for part in self.target.layout.parts(params)]
        frozen = self.local.frozen_statistics
        outputs, new = self.forward(parts, statistics, x, training=True, key=key, mask=mask, frozen=frozen)
        minimised, losses = objective(self.target.task, outputs, y)
        pieces = torch.autograd.grad(minimised, parts, grad_outputs=weight, materialize_grads=True, create_graph=again)
        return parts, pieces, losses, new

    def train(
        self,
        method: Method,
        downloads: Tree,
        kept: Tree,
        statistics: Tensor,
        cohort: Cohort,
        *,
        steps: Steps = None,
        purpose: str = "train",
    ) -> Trained:
        """Train the cohort block by block."""
        counts = self.local.steps_of(cohort.ids, steps)
        parts = []
        for first in range(0, len(cohort), self.block):
            rows = slice(first, first + self.block)
            ids = cohort.ids[rows]
            parts.append(
                self._train_block(
                    method, tree_index(downloads, rows), tree_index(kept, rows), statistics[rows], ids,
                    counts[rows], cohort.round, purpose,
                )
            )  # fmt: skip
        if len(parts) == 1:
            return parts[0]
        return tree_map_join(parts)

    def _train_block(
        self,
        method: Method,
        downloads: Tree,
        kept: Tree,
        statistics: Tensor,
        ids: ClientIds,
        counts: npt.NDArray[np.int64],
        round: int,
        purpose: str,
    ) -> Trained:
        noise = (self.samples.streams.keys(f"{purpose} noise", round, ids) >> np.uint64(1)).view(np.int64)
        keys = torch.from_numpy(noise).to(statistics.device)
        grad = _Gradient(self, statistics, keys, ids, counts)
        most = int(counts.max())
        batches = grad.follow(self.samples.batches(ids, round, purpose, most, method.draws, self.local.batch_size))
        steps = most if (counts == most).all() else torch.from_numpy(counts).to(statistics.device).unsqueeze(-1)
        local = Local(grad, self.local.sgd(ids, statistics), steps)
        uploads, kept = run_local(method, downloads, kept, batches, local, steps)
        self.gradient_evaluations += int(grad.own_calls().sum()) + grad.extra_calls
        return Trained(uploads, kept, grad.statistics, grad.mean_loss())

    def evaluate(
        self, params: Tensor, statistics: Tensor, ids: ClientIds, split: str, samples: Samples | None = None
    ) -> Scores:
        """Score all clients in as few calls as memory allows."""
        samples = self.samples if samples is None else samples
        return Scorer(self.forward, self.target, samples, self.block)(params, statistics, ids, split)


def tree_map_join(parts: list[Trained]) -> Trained:
    """Blocks of rows, one after the other."""

    def join(*pieces: Tensor) -> Tensor:
        return torch.cat(pieces)

    return Trained(
        tree_map(join, parts[0].uploads, *(p.uploads for p in parts[1:])),
        tree_map(join, parts[0].kept, *(p.kept for p in parts[1:])),
        torch.cat([p.statistics for p in parts]),
        torch.cat([p.loss for p in parts]),
    )
