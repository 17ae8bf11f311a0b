"""The reference engine: one client after the other, in the plainest possible way.

It is slow on purpose: every other engine is tested against it, and an exception in a method or a model names the
method, the client, the round and the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from panacea.core.local import Local, run_local
from panacea.core.method import Method
from panacea.core.records import Tree, tree_index, tree_stack
from panacea.core.round import Trained
from panacea.core.types import Batch, ClientIds, Cohort, Steps
from panacea.engines.base import FULL_PASS, LocalSettings, Samples, Scores
from panacea.errors import PanaceaError, RunFailure
from panacea.models.target import TargetModel, objective, sample_losses, sample_metric, sample_weights

__all__ = ["SequentialEngine"]


class _Gradient:
    """The gradient of one client's loss; also keeps its running statistics, its loss and its place in the streams."""

    def __init__(self, engine: SequentialEngine, statistics: Tensor, key: int, client: ClientIds) -> None:
        self.engine, self.statistics, self.client = engine, statistics, client
        self.key, self.calls, self.loss, self.scored, self.extra_calls = key, 0, 0.0, 0, 0

    def _loss(self, leaf: Tensor, batch: Batch, call: int) -> tuple[Tensor, float, Tensor]:
        """What is minimised on a batch, its part that is the task's loss, and the new statistics."""
        target = self.engine.target
        key = torch.tensor((self.key + call) % 2**63, dtype=torch.int64, device=leaf.device)
        x = batch.x.clone()  # a module may write into its input
        outputs, statistics = target.forward(
            leaf, self.statistics, x, training=True, key=key, frozen=self.engine.local.frozen_statistics
        )
        minimised, losses = objective(target.task, outputs, batch.y)
        total = (minimised * batch.weight).sum()
        loss = total if losses is minimised else (losses * batch.weight).sum()
        return total, float(loss.detach()), statistics

    def __call__(
        self,
        params: Tensor,
        batch: Batch,
        extra: Callable[[Tensor], Tensor] | None = None,
        track: bool = True,
    ) -> Tensor:
        leaf = params.detach().requires_grad_(True)
        minimised, loss, statistics = self._loss(leaf, batch, self.calls)
        (gradient,) = torch.autograd.grad(minimised if extra is None else minimised + extra(leaf).sum(), leaf)
        self.calls += 1
        self.loss, self.scored = self.loss + loss, self.scored + 1
        if track:
            self.statistics = statistics
        return gradient

    def curvature(self, params: Tensor, batch: Batch, along: Tensor) -> Tensor:
        leaf = params.detach().requires_grad_(True)
        loss, _, _ = self._loss(leaf, batch, self.calls)
        (gradient,) = torch.autograd.grad(loss, leaf, create_graph=True)
        (product,) = torch.autograd.grad((gradient * along).sum(), leaf, materialize_grads=True)
        self.calls += 2
        return product

    def full(self, params: Tensor) -> Tensor:
        total = torch.zeros_like(params)
        batches = self.engine.samples.passes(self.client, self.engine.local.batch_size)
        for number, (batch, _) in enumerate(batches):
            leaf = params.detach().requires_grad_(True)
            size = batch.weight.shape[-1] if batch.present is None else int(batch.present[0].sum())
            own = Batch(batch.x[0, :size], batch.y[0, :size], batch.weight[0, :size])
            loss, _, _ = self._loss(leaf, own, FULL_PASS + number)
            total = total + torch.autograd.grad(loss, leaf)[0]
            self.extra_calls += 1
        return total


class SequentialEngine:
    """Plain loop over clients; see the module's docstring."""

    name = "sequential"

    def __init__(self, target: TargetModel, samples: Samples, local: LocalSettings) -> None:
        self.target, self.samples, self.local, self.home = target, samples, local, target.initial
        self.gradient_evaluations = 0

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
        """Train the cohort's clients one by one."""
        results = []
        counts = self.local.steps_of(cohort.ids, steps)
        for row, client in enumerate(cohort.ids):
            key = self.samples.streams.key(f"{purpose} noise", cohort.round, int(client)) >> 1
            own = np.array([client], np.int64)
            grad = _Gradient(self, statistics[row], key, own)
            local = Local(grad, self.local.sgd(own[0], statistics), int(counts[row]))
            place = _Place()
            batches = place.follow(
                self.samples.batches(own, cohort.round, purpose, int(counts[row]), method.draws, self.local.batch_size)
            )
            try:
                upload, state = run_local(method, tree_index(downloads, row), tree_index(kept, row), batches, local)
            except PanaceaError:
                raise
            except Exception as error:
                raise RunFailure(
                    f"{method.name or type(method).__name__} failed for client {client} "
                    f"('{self.samples.names[client]}') in round {cohort.round}, step {place.step}: "
                    f"{type(error).__name__}: {error}"
                ) from error
            self.gradient_evaluations += grad.calls + grad.extra_calls
            results.append((upload, state, grad.statistics, grad.loss / max(grad.scored, 1)))
        uploads, states, new_statistics, losses = zip(*results, strict=True)
        return Trained(
            tree_stack(list(uploads)),
            tree_stack(list(states)),
            torch.stack(new_statistics),
            torch.tensor(losses, dtype=torch.float64),
        )

    def evaluate(
        self, params: Tensor, statistics: Tensor, ids: ClientIds, split: str, samples: Samples | None = None
    ) -> Scores:
        """Score clients one by one."""
        metric = np.full(len(ids), np.nan)
        loss = np.full(len(ids), np.nan)
        column = ("train", "val", "test").index(split)
        task, samples = self.target.task, self.samples if samples is None else samples
        for row, client in enumerate(ids):
            start, end = samples.bounds[client, column], samples.bounds[client, column + 1]
            if end == start:
                continue
            x, y = samples.gather(torch.arange(start, end, device=params.device))
            with torch.no_grad():
                outputs, _ = self.target.forward(params[row], statistics[row], x, training=False)
                weight = sample_weights(task, y).double()
                metric[row] = float((sample_metric(task, outputs, y).double() * weight).sum() / weight.sum())
                loss[row] = float((sample_losses(task, outputs, y).double() * weight).sum() / weight.sum())
        return Scores(metric, loss)


class _Place:
    """Remembers which local step is being worked on, for the error message."""

    step = 0

    def follow(self, batches: Iterator[tuple[Batch, ...]]) -> Iterator[tuple[Batch, ...]]:
        for drawn in batches:
            self.step += 1
            yield tuple(Batch(b.x[0], b.y[0], b.weight[0]) for b in drawn)
