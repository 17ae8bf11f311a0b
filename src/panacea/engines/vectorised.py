"""The fast engine: all clients of a block in one call, as rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from panacea.core.local import Local, Sgd, fold_steps, run_local
from panacea.core.method import Method
from panacea.core.records import Tree
from panacea.core.round import Trained
from panacea.core.types import Batch, ClientIds, Cohort, Steps
from panacea.engines.allocation import keep_freed_memory
from panacea.engines.base import LocalSettings, Samples, Scores
from panacea.engines.capture import StepGraphs
from panacea.engines.drawing import DrawGraphs
from panacea.engines.forward import build_forward
from panacea.engines.gradients import Arguments, RowGradient
from panacea.engines.precision import Precision
from panacea.engines.requests import Begun, Request, cut, joined, moved, placed, shared_out, stacked
from panacea.engines.rows import Party, Rows
from panacea.engines.scoring import Scorer
from panacea.engines.tracing import Kernel, TracedKernel
from panacea.models.target import TargetModel, weighed

__all__ = ["VectorisedEngine"]


class VectorisedEngine:
    """Rows over clients.

    Attributes:
        block: most rows in one call. Results depend on it in the last float bits only; it is fixed within a run unless
            a GPU's memory turns out to be too small for it.
        forward: how the network is run for many clients (`batched`, `vmap` or `loop`).
        most: rows in one call of local training where they are better taken one after the other; None for a block.
        kernel: gradient, losses' parts and new statistics of a block: `_block_gradient`, as straight-line code when
            `traced`.
        graphs: captured local steps, on a GPU.
        draws: captured drawings of their batches.
        precision: of matrix products.
        together: trains a request along with those of other runs; None for a run alone.
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
        captured: bool = False,
        precision: Precision | None = None,
        server: torch.device | None = None,
    ) -> None:
        self.target, self.samples, self.local, self.block = target, samples, local, block
        self.home = target.initial.to(samples.device if server is None else server)
        self.precision = precision or Precision("float32", samples.device)
        with Precision("float32", samples.device).of_products():  # not TF32, which is off by as much as a mistake
            self.forward = build_forward(target, forward)
        if samples.device.type == "cpu":
            keep_freed_memory()
        fast = self.forward.kind != "loop"
        self.recurrent = any(isinstance(m, nn.RNNBase | nn.RNNCellBase) for m in target.original.modules())
        # a captured graph has no use for straight-line code, but for a recurrence's merged sums
        recorded = traced and fast and (samples.device.type == "cpu" or self.recurrent)
        self.kernel: Kernel = TracedKernel(self._block_gradient, self.recurrent) if recorded else self._block_gradient
        self.graphs = StepGraphs() if captured and fast and samples.device.type == "cuda" else None
        self.draws = DrawGraphs()
        self.gradient_evaluations = 0
        self.most: int | None = None
        self.together: Callable[[Request], Trained] | None = None

    def _block_gradient(self, *arguments: *Arguments) -> tuple[Tensor, Tensor, Tensor]:
        """``[R, P]`` gradients of every row's own loss, the values whose weighted sum it is, and the new statistics."""
        _, pieces, values, new = self.differentiate(*arguments)
        return self.target.layout.join(pieces), values.detach(), new

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
        """The layout's parts ``[R, *shape]``, the gradients at them, what the loss is made of and the new statistics.

        Rows do not touch each other, so one backward pass serves all. The gradient of sum(weight * loss) is the
        vector-Jacobian product with weight, and it is taken at the layout's parts, not through cutting up the vector.
        A batch's slope is given in place of the weights where there is one; see `weighed` for what comes back then.
        With `again` the gradients can be differentiated once more.
        """
        parts = [part.detach().requires_grad_(True) for part in self.target.layout.parts(params)]
        frozen = self.local.frozen_statistics
        with self.precision.of_network():
            outputs, new = self.forward(parts, statistics, x, training=True, key=key, mask=mask, frozen=frozen)
        roots, along, values = weighed(self.target.task, self.precision.of_loss(outputs), y, weight)
        pieces = torch.autograd.grad(roots, parts, grad_outputs=along, materialize_grads=True, create_graph=again)
        return parts, pieces, values, new

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
        party = Party(self.samples, cohort.ids, cohort.round, purpose)
        counts = self.local.steps_of(cohort.ids, steps)
        request = Request(method, downloads, kept, statistics, party, counts, self.local)
        return self.train_together([request])[0] if self.together is None else self.together(request)

    def train_together(self, requests: Sequence[Request]) -> list[Trained]:
        """Train what several runs of one method ask for, as many rows in a call as a block has."""
        return self.launch(requests)()

    def launch(self, requests: Sequence[Request]) -> Begun:
        """Begin with it; what is returned gives the results, and waits for them where they go to the host."""
        parts: list[list[Trained]] = [[] for _ in requests]
        begun: Callable[[], None] | None = None
        for call in self._calls(requests):
            if begun is not None:
                begun()  # one at a time: a block may be as large as memory allows
            begun = partial(shared_out, call, self._launched([requests[n].part(rows) for n, rows in call]), parts)

        def finished() -> list[Trained]:
            if begun is not None:
                begun()
            return [joined(own) for own in parts]

        return finished

    def _calls(self, requests: Sequence[Request]) -> Iterator[list[tuple[int, slice]]]:
        """Which rows of which requests go into each call; a request is cut only where it is larger than a block."""
        call: list[tuple[int, slice]] = []
        used, block = 0, min(self.block, self.most or self.block)  # the block may shrink on the way, in a call
        for number, request in enumerate(requests):
            for first in range(0, len(request), block):
                rows = slice(first, min(first + block, len(request)))
                if used + rows.stop - rows.start > block:
                    yield call
                    call, used = [], 0
                call.append((number, rows))
                used += rows.stop - rows.start
        yield call

    def _launched(self, pieces: Sequence[Request]) -> Begun:
        """One call; where a GPU has too little memory, with half as many rows in each, from now on."""
        try:
            with self.precision.of_products():
                return self._launch_rows(pieces)
        except torch.cuda.OutOfMemoryError:
            rows = sum(map(len, pieces))
            if rows == 1:
                raise
            self.block = max(1, rows // 2)
        if self.graphs is not None:
            self.graphs.clear()
            self.draws = DrawGraphs()
        torch.cuda.empty_cache()
        warnings.warn(
            f"the GPU has too little memory for {rows} clients in one call; going on with {self.block} (block=)",
            stacklevel=2,
        )
        return self.launch(pieces)

    def _launch_rows(self, pieces: Sequence[Request]) -> Begun:
        """Local training of all these rows."""
        method, rows = pieces[0].method, Rows(tuple(piece.party for piece in pieces), sloped=True)
        counts = np.concatenate([piece.counts for piece in pieces])
        names, device = ("downloads", "kept", "statistics"), self.samples.device
        downloads, kept, statistics = (placed(stacked([getattr(p, name) for p in pieces]), device) for name in names)
        grad, most = RowGradient(self, statistics, rows, counts), int(counts.max())
        local = Local(grad, _sgd(pieces, statistics), rows.steps_of(counts))
        size = self.local.batch_size

        def fold(
            method: Method,
            carry: Tree,
            download: Tree,
            client: Tree,
            batches: Iterable[tuple[Batch, ...]],
            local: Local,
        ) -> Tree:
            before = grad.calls, grad.unscored
            if self.graphs is None:
                carry = fold_steps(method, carry, download, client, batches, local)
            else:
                stretches = self.draws.stretches(rows, most, method.draws, size)
                carry = self.graphs.fold(method, carry, download, client, stretches, local, grad)
            grad.stepped = grad.calls - before[0], grad.unscored - before[1]
            return carry

        batches = grad.follow(rows.batches(most, method.draws, size))
        uploads, kept = run_local(method, downloads, kept, batches, local, fold)
        self.gradient_evaluations += int(grad.own_calls().sum()) + grad.extra_calls
        parts = (uploads, kept, grad.statistics, grad.mean_loss())

        def finished() -> list[Trained]:
            whole = Trained(*(placed(part, self.home.device) for part in parts))
            return [whole] if len(pieces) == 1 else cut(whole, list(map(len, pieces)))

        return finished

    def evaluate(
        self, params: Tensor, statistics: Tensor, ids: ClientIds, split: str, samples: Samples | None = None
    ) -> Scores:
        """Score all clients in as few calls as memory allows."""
        samples = self.samples if samples is None else samples
        with self.precision.of_products(), self.precision.of_network():
            device = samples.device
            own = moved(params, device), moved(statistics, device)
            return Scorer(self.forward, self.target, samples, self.block)(*own, ids, split)


def _sgd(pieces: Sequence[Request], like: Tensor) -> Sgd:
    """The optimiser of all rows; a rate per row where they differ."""
    each = [piece.local.sgd(piece.party.ids, like) for piece in pieces]
    if all(not isinstance(sgd.lr, Tensor) and sgd.lr == each[0].lr for sgd in each):
        return each[0]
    rates = [torch.as_tensor(s.lr, dtype=like.dtype, device=like.device) for s in each]
    return replace(
        each[0], lr=torch.cat([rate.expand(len(piece), 1) for rate, piece in zip(rates, pieces, strict=True)])
    )
