"""What engines share: local settings, the samples on the device, batches, and scores."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from panacea.core.local import Sgd
from panacea.core.method import Method
from panacea.core.random import Streams
from panacea.core.records import Tree
from panacea.core.round import Trained
from panacea.core.transfer import on_device
from panacea.core.types import Batch, ClientIds, Cohort, Steps
from panacea.data.federation import SPLITS, Federation
from panacea.data.storage import contents, decoded, moved
from panacea.models.target import TargetModel, sample_weights

__all__ = ["FULL_PASS", "Engine", "LocalSettings", "Samples", "Scores", "epoch_steps"]

FULL_PASS = 1 << 40  # where the noise of passes over all samples begins in a client's stream: far behind its steps


@dataclass(frozen=True)
class LocalSettings:
    """Local training, the same for every method.

    Attributes:
        lr: one rate, or ``[clients]``.
        steps: K_c, or ``[clients]`` for a number per client (local epochs).
        batch_size: B.
        momentum, weight_decay, clip: see `Sgd`.
        frozen_statistics: BatchNorm normalises with its running statistics in training.
    """

    lr: float | npt.NDArray[np.float64]
    steps: int | npt.NDArray[np.int64]
    batch_size: int
    momentum: float = 0.0
    weight_decay: float = 0.0
    clip: float = 0.0
    frozen_statistics: bool = False

    def sgd(self, ids: ClientIds, like: Tensor) -> Sgd:
        """The optimiser of these rows; a single id gives leading dims ``()``."""
        lr: float | Tensor
        if isinstance(self.lr, np.ndarray):
            lr = on_device(np.asarray(self.lr[ids]), like.device, like.dtype).unsqueeze(-1)
        else:
            lr = self.lr
        return Sgd(lr, self.momentum, self.weight_decay, self.clip)

    def steps_of(self, ids: ClientIds, override: Steps) -> npt.NDArray[np.int64]:
        """Local steps of each of these clients."""
        if isinstance(override, np.ndarray):
            return override
        if override is not None or not isinstance(self.steps, np.ndarray):
            return np.full(len(ids), override if override is not None else self.steps, np.int64)
        return self.steps[ids]


def epoch_steps(epochs: float, counts: npt.NDArray[np.int64], batch_size: int) -> npt.NDArray[np.int64]:
    """``[clients]``: local steps that see about as many samples as so many passes over all of a client's, at least 1.

    >>> epoch_steps(2, np.array([1, 64, 65]), 64)
    array([2, 2, 3])
    """
    return np.maximum(np.ceil(epochs * counts / np.minimum(counts, batch_size)), 1).astype(np.int64)


@dataclass(frozen=True)
class Scores:
    """Per-client results, ``[rows]``: mean metric and loss over a split's samples (NaN where there are none)."""

    metric: npt.NDArray[np.float64]
    loss: npt.NDArray[np.float64]

    def of(self, rows: npt.NDArray[np.bool_]) -> Scores:
        """Those of some rows."""
        return Scores(self.metric[rows], self.loss[rows])


class Samples:
    """All clients' samples on the device, and the batches drawn from them."""

    def __init__(self, federation: Federation, streams: Streams, device: torch.device, dtype: torch.dtype) -> None:
        labels = federation.task.kind == "classification"
        self.task, self.device, self.dtype = federation.task, device, dtype
        self.x = moved(federation.x, device, torch.uint8 if federation.x.dtype == torch.uint8 else dtype)
        self.y = moved(federation.y, device, torch.int64 if labels else dtype)
        self.rows = None if federation.rows is None else federation.rows.to(device)
        self.bounds = federation.bounds
        self.streams = streams
        self.names = federation.names
        self.poisoned = False  # see `panacea.robustness`
        self._own_targets = False
        self._marks: Tensor | None = None  # [samples] bool: inputs that are given out changed
        self._change: Callable[[Tensor], Tensor] | None = None

    def counts(self, split: str, ids: ClientIds) -> npt.NDArray[np.int64]:
        """Samples of these clients in a split."""
        column = SPLITS.index(split)
        counts: npt.NDArray[np.int64] = self.bounds[ids, column + 1] - self.bounds[ids, column]
        return counts

    @property
    def input_bytes(self) -> int:
        """Of one sample's input, as the network is given it."""
        return max(1, self.x[0].numel() * self.dtype.itemsize)

    @property
    def marked(self) -> bool:
        """Whether some inputs are given out changed."""
        return self._marks is not None

    def gather(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Samples at flat positions of any shape."""
        flat = index.reshape(-1)
        x = decoded(self.x.index_select(0, flat if self.rows is None else self.rows[flat]), self.dtype)
        if self._marks is not None and self._change is not None:
            hit = self._marks[flat]
            if bool(hit.any()):
                x[hit] = self._change(x[hit])
        y = self.y.index_select(0, flat).reshape((*index.shape, *self.y.shape[1:]))
        return x.reshape((*index.shape, *self.x.shape[1:])), y

    def replace_targets(self, first: int, targets: Tensor) -> None:
        """Other targets for the samples from a position on; the federation keeps its own.

        Where targets are windows of one series, every step of it that no later window begins after is replaced.
        """
        if not self._own_targets:
            values, shape = contents(self.y).clone(), self.y.shape
            shared = len(values) < self.y.numel()  # windows overlap, and go on doing so
            self.y = values.as_strided(shape, self.y.stride(), 0) if shared else values.reshape(shape)
            self._own_targets = True
        span = self.y[first : first + len(targets)]
        if self.y.is_contiguous():
            span.copy_(targets)
        else:  # the first steps of these windows are all of the series that is theirs alone
            span[:, 0] = targets[:, 0]

    def replace_inputs(self, positions: npt.NDArray[np.int64], change: Callable[[Tensor], Tensor]) -> None:
        """Other inputs for the samples at some positions: what `change` makes of ``[samples, *inputs]``, as numbers.

        They are changed whenever they are gathered. Nothing is stored, so neither the federation's tensors nor images
        on disk are written to, whatever their type and order. All positions have the last change that was given.
        """
        if self._marks is None:
            self._marks = torch.zeros(len(self.y), dtype=torch.bool, device=self.device)
        self._marks[torch.from_numpy(positions).to(self.device)] = True
        self._change = change

    def chosen(self, positions: npt.NDArray[np.int64], bounds: npt.NDArray[np.int64], targets: Tensor) -> Samples:
        """Other samples: the unchanged inputs at some positions, in this order, with own bounds and targets."""
        made, order = copy.copy(self), torch.from_numpy(positions).to(self.device)
        made.rows = order if self.rows is None else self.rows[order]
        made.bounds, made.y, made._own_targets = bounds, targets.to(self.device), True
        made.poisoned, made._marks, made._change = False, None, None
        return made

    def batches(
        self, ids: ClientIds, round: int, purpose: str, steps: int, draws: int, batch_size: int
    ) -> Iterator[tuple[Batch, ...]]:
        """For every local step, `draws` batches ``[rows, B, ...]`` from each client's train split."""
        from panacea.engines.rows import Party, Rows  # noqa: PLC0415  (rows are made of samples)

        return Rows((Party(self, ids, round, purpose),)).batches(steps, draws, batch_size)

    def passes(self, ids: ClientIds, batch_size: int) -> Iterator[tuple[Batch, npt.NDArray[np.bool_]]]:
        """All train samples of these clients once, in stored order, and which rows such a batch is meant for.

        The weights of a client's batches sum to one over all of them. A client that has no more samples is given its
        first ones again, for no row may be without samples (BatchNorm); what comes of them is to be left out.
        """
        counts = self.counts("train", ids)
        total = torch.as_tensor(self._observed(ids) if self.task.missing else counts, dtype=self.dtype)
        total = total.to(self.device)[:, None]
        width = int(min(counts.max(), batch_size))
        for first in range(0, int(counts.max()), width):
            active = counts > first
            begin = np.where(active, first, 0)
            place = begin[:, None] + np.arange(width)[None, :]
            valid = place < counts[:, None]
            index = self.bounds[ids, 0][:, None] + np.minimum(place, counts[:, None] - 1)
            x, y = self.gather(on_device(index, self.device))
            present = on_device(valid, self.device)
            each = sample_weights(self.task, y).to(self.dtype)
            yield Batch(x, y, torch.where(present, each, 0.0) / total, None if valid.all() else present), active

    def _observed(self, ids: ClientIds) -> npt.NDArray[np.float64]:
        """Observed target values in the train split of these clients, at least 1."""
        spans = [self.y[first:end] for first, end in self.bounds[ids, :2]]
        return np.array([max(1.0, float((~span.isnan()).sum())) for span in spans])

    def shares(self, y: Tensor, present: Tensor | None) -> Tensor:
        """``[..., B]``: every sample's share of the observed values of its batch; 0 where nothing was observed."""
        each = sample_weights(self.task, y).to(self.dtype)
        each = each if present is None else torch.where(present, each, 0.0)
        return each / each.sum(dim=-1, keepdim=True).clamp_min(1)


class Engine(Protocol):
    """How clients run. Every engine gives the same numbers; they differ in speed and in what an error tells.

    `home` is the initial model as the server has it: its tensors have that type and are on that device, where what is
    trained comes from and goes back to.
    """

    name: str
    target: TargetModel
    samples: Samples
    local: LocalSettings
    home: Tensor
    gradient_evaluations: int

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
        """Local training of a cohort: ``[rows, ...]`` in, ``[rows, ...]`` out."""
        ...

    def evaluate(
        self, params: Tensor, statistics: Tensor, ids: ClientIds, split: str, samples: Samples | None = None
    ) -> Scores:
        """Score ``params [rows, P]`` on a split of the clients `ids`; of other samples than the engine's if given."""
        ...
