r"""Floors: what a trivial predictor scores, so that every result can be read against it.

From the train split, with a row (x, 1) per sample and a target per output (classes: 0 or 1 for each):

    G = sum of (x, 1)(x, 1)^T,   C = sum of (x, 1) t^T          per client; pooled = their sum over training clients
    constant        the mean target (classes: the most frequent one)                the last row of C, divided by counts
    linear          W = (G + e I)^-1 C, e = 1e-8 of the mean diagonal of G          least squares (classes: one against
                                                                                    all, the largest output wins)
    nearest mean    the class whose mean input is nearest                           columns of C, divided by counts
    persistence     the last value of the input for all steps to come               forecasts of a series by itself

Each but the last comes twice: one for everybody, made from all training clients together, and one per client from its
own train split alone, novel clients included. The validation split is not used. Everything is scored as runs are: on
the test split, values that were not observed left out, per client.

Inputs are read in batches, so windows that share their memory stay shared. Images of more than 1,024 numbers are
averaged over squares of pixels first; other inputs of more than that have no linear model here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from panacea.data.federation import SPLITS, Federation
from panacea.data.storage import decoded
from panacea.data.task import Task
from panacea.models.target import sample_metric, sample_weights

__all__ = ["Floor", "floors"]

_WIDEST = 1024  # numbers of an input of the linear models
_BATCH = 1 << 22  # numbers read at a time
_RIDGE = 1e-8

Predictor: TypeAlias = Callable[[Tensor], Tensor]

_MEANINGS = {
    "constant": "one value per output for everybody",
    "client_constant": "one value per output for each client (its climatology)",
    "majority": "the most frequent class of all",
    "client_majority": "each client's most frequent class",
    "persistence": "the last value of the input, repeated",
    "nearest_mean": "the class with the nearest mean input, one set of means for everybody",
    "client_nearest_mean": "the same with each client's own means",
    "linear": "least squares on all training clients together",
    "client_linear": "least squares on each client's own train split",
}


@dataclass(frozen=True)
class Floor:
    """One trivial predictor: its name, what it is, and every client's test metric ``[clients]`` (NaN: no samples)."""

    name: str
    meaning: str
    metric: npt.NDArray[np.float64]


@dataclass
class _Moments:
    """G ``[1, p, p]`` (a matrix per output where targets may be missing) and C ``[p, outputs]``."""

    gram: Tensor
    cross: Tensor

    @classmethod
    def of(cls, task: Task, width: int) -> _Moments:
        outputs = task.classes if task.kind == "classification" else int(np.prod(task.outputs))
        matrices = outputs if task.missing else 1
        return cls(
            torch.zeros(matrices, width, width, dtype=torch.float64), torch.zeros(width, outputs, dtype=torch.float64)
        )

    def add(self, rows: Tensor, targets: Tensor) -> None:
        """Take in ``rows [n, p]`` with ``targets [n, outputs]``, NaN where missing."""
        self.cross += rows.T @ targets.nan_to_num()
        if len(self.gram) == 1 and not targets.isnan().any():
            self.gram += rows.T @ rows
            return
        seen = ~targets.isnan()
        whole = seen.all(dim=1)
        self.gram += rows[whole].T @ rows[whole]
        rows, seen = rows[~whole], seen[~whole]
        for output in range(len(self.gram)):
            some = rows[seen[:, output]]
            self.gram[output] += some.T @ some

    def constant(self) -> Tensor:
        """``[outputs]``: mean targets; of an output that was never observed, the mean of the others."""
        counts = self.gram[:, -1, -1]
        overall = self.cross[-1].sum() / (counts.sum() * (self.cross.shape[1] / len(counts))).clamp_min(1)
        return torch.where(counts > 0, self.cross[-1] / counts.clamp_min(1), overall)

    def constant_weights(self) -> Tensor:
        """``[p, outputs]`` of the constant."""
        weights = torch.zeros_like(self.cross)
        weights[-1] = self.constant()
        return weights

    def linear_weights(self) -> Tensor:
        """``[p, outputs]`` of least squares."""
        penalty = _RIDGE * self.gram.diagonal(dim1=1, dim2=2).mean(dim=1)
        penalty = torch.where(penalty > 0, penalty, 1.0)[:, None, None]
        gram = self.gram + penalty * torch.eye(self.gram.shape[1], dtype=torch.float64)
        right = self.cross.unsqueeze(0) if len(gram) == 1 else self.cross.T.unsqueeze(-1)
        solved = torch.linalg.solve(gram, right)
        weights = solved[0] if len(gram) == 1 else solved.squeeze(-1).T
        return torch.where(self.gram[:, -1, -1] > 0, weights, self.constant_weights())

    def mean_weights(self) -> Tensor:
        """``[p, classes]``: x m - m^2 / 2 is largest for the nearest mean m; a class without samples never wins."""
        counts = self.cross[-1]
        means = self.cross[:-1] / counts.clamp_min(1)
        offset = torch.where(counts > 0, -means.square().sum(dim=0) / 2, -torch.inf)
        return torch.cat([means, offset[None]])


@dataclass
class _Work:
    federation: Federation
    scores: dict[str, npt.NDArray[np.float64]] = field(default_factory=dict)

    def score(self, name: str, client: int, predict: Predictor) -> None:
        """Score a predictor on a client's test split, as runs do."""
        task = self.federation.task
        total, weight = 0.0, 0.0
        for x, y in _batches(self.federation, client, "test"):
            outputs = predict(x)
            outputs = outputs if task.kind == "classification" else outputs.reshape(y.shape)
            each = sample_weights(task, y).double()
            total += float((sample_metric(task, outputs, y).double() * each).sum())
            weight += float(each.sum())
        values = self.scores.setdefault(name, np.full(len(self.federation), np.nan))
        values[client] = total / weight if weight else np.nan


def floors(federation: Federation, advance: Callable[[], None] | None = None) -> list[Floor]:
    """The floors of a federation, simplest first.

    Args:
        federation: its novel clients take no part in what is made for everybody.
        advance: called after every client, twice each.
    """
    task = federation.task
    prepare, width = _preparation(task)
    work, pooled = _Work(federation), _Moments.of(task, width)
    steps = advance or (lambda: None)
    for client in range(len(federation)):
        own = _Moments.of(task, width)
        for x, y in _batches(federation, client, "train"):
            own.add(prepare(x), _targets(task, y))
        if not federation.novel[client]:
            pooled.gram += own.gram
            pooled.cross += own.cross
        for name, predict in _predictors(task, own, prepare, "client_").items():
            work.score(name, client, predict)
        if task.kind == "forecasting" and len(task.inputs) == 2:
            work.score("persistence", client, lambda x: x[:, -1, :1].expand(-1, int(np.prod(task.outputs))))
        steps()
    everybody = _predictors(task, pooled, prepare, "")
    for client in range(len(federation)):
        for name, predict in everybody.items():
            work.score(name, client, predict)
        steps()
    return [Floor(name, _MEANINGS[name], work.scores[name]) for name in _MEANINGS if name in work.scores]


def _predictors(task: Task, moments: _Moments, prepare: Predictor, prefix: str) -> dict[str, Predictor]:
    """What can be made of a client's (or all clients') moments."""
    labels = task.kind == "classification"
    weights = {"majority" if labels else "constant": moments.constant_weights()}
    if len(moments.cross) > 1:  # more than the constant
        weights |= {"nearest_mean": moments.mean_weights()} if labels else {}
        weights["linear"] = moments.linear_weights()

    def predictor(matrix: Tensor) -> Predictor:
        return lambda x: prepare(x) @ matrix

    return {prefix + name: predictor(matrix) for name, matrix in weights.items()}


def _preparation(task: Task) -> tuple[Predictor, int]:
    """How a batch of inputs becomes rows (x, 1), and their width; the 1 alone where x is too wide."""
    shape, size = task.inputs, int(np.prod(task.inputs))
    step = 1
    if size > _WIDEST and len(shape) == 3:  # images
        while shape[0] * -(-shape[1] // step) * -(-shape[2] // step) > _WIDEST:
            step += 1
        size = shape[0] * -(-shape[1] // step) * -(-shape[2] // step)

    def rows(x: Tensor) -> Tensor:
        ones = torch.ones(len(x), 1, dtype=torch.float64)
        if size > _WIDEST:
            return ones
        x = functional.avg_pool2d(x, step, ceil_mode=True) if step > 1 else x
        return torch.cat([x.reshape(len(x), size).double(), ones], dim=1)

    return rows, 1 if size > _WIDEST else size + 1


def _targets(task: Task, y: Tensor) -> Tensor:
    """``[n, outputs]`` in double precision; classes as 0 and 1."""
    if task.kind == "classification":
        return functional.one_hot(y, task.classes).double()
    return y.reshape(len(y), -1).double()


def _batches(federation: Federation, client: int, split: str) -> Iterator[tuple[Tensor, Tensor]]:
    """A split of a client, some samples at a time."""
    column = SPLITS.index(split)
    first, end = federation.bounds[client, column : column + 2].tolist()
    size = max(1, _BATCH // max(int(np.prod(federation.task.inputs)), 1))
    for start in range(first, end, size):
        part = slice(start, min(start + size, end))
        x = federation.x[part] if federation.rows is None else federation.x[federation.rows[part]]
        yield decoded(x, torch.float32), federation.y[part]
