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
from panacea.core.types import Batch, ClientIds, Cohort
from panacea.engines.base import LocalSettings, Samples, Scores
from panacea.errors import PanaceaError, RunFailure
from panacea.models.target import TargetModel, objective, sample_losses, sample_metric

__all__ = ["SequentialEngine"]


class _Gradient:
    """The gradient of one client's loss; also keeps its running statistics, its loss and its place in the streams."""

    def __init__(self, target: TargetModel, statistics: Tensor, key: int, frozen: bool) -> None:
        self.target, self.statistics, self.frozen = target, statistics, frozen
        self.key, self.calls, self.loss = key, 0, 0.0

    def __call__(
        self,
        params: Tensor,
        batch: Batch,
        extra: Callable[[Tensor], Tensor] | None = None,
        track: bool = True,
    ) -> Tensor:
        leaf = params.detach().requires_grad_(True)
        key = torch.tensor((self.key + self.calls) % 2**63, dtype=torch.int64, device=params.device)
        x = batch.x.clone()  # a module may write into its input
        outputs, statistics = self.target.forward(leaf, self.statistics, x, training=True, key=key, frozen=self.frozen)
        minimised, losses = objective(self.target.task, outputs, batch.y)
        loss = (minimised * batch.weight).sum()
        (gradient,) = torch.autograd.grad(loss if extra is None else loss + extra(leaf).sum(), leaf)
        self.calls += 1
        self.loss += float(loss.detach() if losses is minimised else (losses.detach() * batch.weight).sum())
        if track:
            self.statistics = statistics
        return gradient


class SequentialEngine:
    """Plain loop over clients; see the module's docstring."""

    name = "sequential"

    def __init__(self, target: TargetModel, samples: Samples, local: LocalSettings) -> None:
        self.target, self.samples, self.local = target, samples, local
        self.gradient_evaluations = 0

    def train(
        self,
        method: Method,
        downloads: Tree,
        kept: Tree,
        statistics: Tensor,
        cohort: Cohort,
        *,
        steps: int | None = None,
        purpose: str = "train",
    ) -> Trained:
        """Train the cohort's clients one by one."""
        results = []
        counts = self.local.steps_of(cohort.ids, steps)
        for row, client in enumerate(cohort.ids):
            key = self.samples.streams.key(f"{purpose} noise", cohort.round, int(client)) >> 1
            grad = _Gradient(self.target, statistics[row], key, self.local.frozen_statistics)
            own = np.array([client], np.int64)
            local = Local(grad, self.local.sgd(own[0], statistics))
            place = _Place()
            batches = place.follow(
                self.samples.batches(own, cohort.round, purpose, int(counts[row]), method.draws, self.local.batch_size)
            )
            try:
                upload, state = run_local(
                    method, tree_index(downloads, row), tree_index(kept, row), batches, local, int(counts[row])
                )
            except PanaceaError:
                raise
            except Exception as error:
                raise RunFailure(
                    f"{method.name or type(method).__name__} failed for client {client} "
                    f"('{self.samples.names[client]}') in round {cohort.round}, step {place.step}: "
                    f"{type(error).__name__}: {error}"
                ) from error
            self.gradient_evaluations += grad.calls
            results.append((upload, state, grad.statistics, grad.loss / max(grad.calls, 1)))
        uploads, states, new_statistics, losses = zip(*results, strict=True)
        return Trained(
            tree_stack(list(uploads)),
            tree_stack(list(states)),
            torch.stack(new_statistics),
            torch.tensor(losses, dtype=torch.float64),
        )

    def evaluate(self, params: Tensor, statistics: Tensor, ids: ClientIds, split: str) -> Scores:
        """Score clients one by one."""
        metric = np.full(len(ids), np.nan)
        loss = np.full(len(ids), np.nan)
        column = ("train", "val", "test").index(split)
        task = self.target.task
        for row, client in enumerate(ids):
            start, end = self.samples.bounds[client, column], self.samples.bounds[client, column + 1]
            if end == start:
                continue
            x, y = self.samples.x[start:end].clone(), self.samples.y[start:end]  # a module may write into its input
            with torch.no_grad():
                outputs, _ = self.target.forward(params[row], statistics[row], x, training=False)
                metric[row] = float(sample_metric(task, outputs, y).double().mean())
                loss[row] = float(sample_losses(task, outputs, y).double().mean())
        return Scores(metric, loss)


class _Place:
    """Remembers which local step is being worked on, for the error message."""

    step = 0

    def follow(self, batches: Iterator[tuple[Batch, ...]]) -> Iterator[tuple[Batch, ...]]:
        for drawn in batches:
            self.step += 1
            yield tuple(Batch(b.x[0], b.y[0], b.weight[0]) for b in drawn)
