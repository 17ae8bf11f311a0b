"""A target network in functional form: any `torch.nn.Module` plus a flat vector of its parameters."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.func import functional_call

from panacea.core.parameters import Layout
from panacea.data.federation import Task
from panacea.errors import RequestError
from panacea.models.stateful import MaskedBatchNorm, Pass, StreamDropout, replace_stateful

__all__ = ["Given", "TargetModel", "objective", "sample_losses", "sample_metric", "sample_weights", "weighed"]

Given = Tensor | tuple[Tensor, Tensor]
"""What a network gives in training: its outputs, or a pair of outputs and a penalty per sample (`Method.enlarge`)."""


def objective(task: Task, given: Given, targets: Tensor) -> tuple[Tensor, Tensor]:
    """What every sample adds to what is minimised, and its loss alone; the same tensor where there is no penalty.

    Shapes as in `sample_losses`; the one place where penalties enter.
    """
    if isinstance(given, Tensor):
        losses = sample_losses(task, given, targets)
        return losses, losses
    outputs, penalty = given
    losses = sample_losses(task, outputs, targets)
    return losses + penalty, losses


def weighed(task: Task, given: Given, targets: Tensor, weight: Tensor) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """What to differentiate, along what, and the values whose sum, times `weight`, is the loss; for rows ``[R, B]``.

    With `weight` of the losses ``[R, B]`` they are `objective`'s. Where it is a batch's slope ``[R, classes, B]``, they
    are log-probabilities, whose slope is known without the model: nothing is picked by label, there or back.
    """
    if weight.dim() == targets.dim() or task.kind != "classification":
        minimised, losses = objective(task, given, targets)
        return [minimised], [weight], losses
    outputs, *penalty = (given,) if isinstance(given, Tensor) else given
    values = outputs.transpose(1, 2).log_softmax(dim=1)
    return [values, *penalty], [weight, *(-weight.sum(dim=1) for _ in penalty)], values


def sample_losses(task: Task, outputs: Tensor, targets: Tensor) -> Tensor:
    """The training loss of every sample: cross-entropy, or squared error averaged over a sample's outputs.

    Outputs ``[B, *o]`` and targets ``[B, *t]`` give ``[B]``; with a leading row axis, ``[R, B, *o]`` give ``[R, B]``.
    Where targets may be missing, the average is over those observed (0 where none is).
    """
    if task.kind == "classification":
        scores = outputs if outputs.dim() == 2 else outputs.transpose(1, 2)  # torch wants the class axis second
        return F.cross_entropy(scores, targets, reduction="none")
    if task.missing:
        error = torch.where(targets.isnan(), 0.0, outputs - targets.nan_to_num()).square()
        return _summed(task, error) / sample_weights(task, targets).clamp_min(1)
    error = (outputs - targets).square()
    return error.flatten(-len(task.outputs)).mean(dim=-1) if task.outputs else error


def sample_weights(task: Task, targets: Tensor) -> Tensor:
    """What a sample counts in a mean over samples, shaped like `sample_losses`: 1, or its number of observed values."""
    if task.missing:
        return _summed(task, (~targets.isnan()).to(targets.dtype))
    shape = targets.shape[: targets.dim() - len(task.outputs)]
    return torch.ones(shape, dtype=torch.float32, device=targets.device)


def _summed(task: Task, values: Tensor) -> Tensor:
    """Over the values of one sample."""
    return values.flatten(-len(task.outputs)).sum(dim=-1) if task.outputs else values


def sample_metric(task: Task, outputs: Tensor, targets: Tensor) -> Tensor:
    """The reported metric of every sample, shaped like `sample_losses`: 100 or 0 for right or wrong; squared error."""
    if task.kind == "classification":
        return (outputs.argmax(dim=-1) == targets).to(outputs.dtype) * 100.0
    return sample_losses(task, outputs, targets)


class TargetModel:
    """The network every client trains a version of.

    Attributes:
        task: what it learns.
        module: a private copy of the user's module, with `Dropout` and `BatchNorm` in their stream and mask forms.
        state: the pass those layers look at.
        layout: the trainable parameters in the flat vector; parameters with ``requires_grad=False`` are constants.
        initial: ``[P]`` the module's own initial values.
        statistics_layout, statistics: likewise for BatchNorm's running statistics, ``[S]``.
        original: the user's module as given, for handing trained models out.
        draws_noise: whether training passes need a stream key.
        reseed: the module draws random numbers by itself, so the global generator is set (and restored) around
            every training pass to make it reproducible.
    """

    def __init__(self, module: nn.Module, task: Task, dtype: torch.dtype = torch.float32) -> None:
        self.task = task
        self.original = module
        self.reseed = False
        self.state = Pass()
        self.module = replace_stateful(copy.deepcopy(module).to(dtype), self.state).train()
        params = {name: p.detach().clone() for name, p in self.module.named_parameters() if p.requires_grad}
        if not params:
            raise RequestError("model: the network has no trainable parameter")
        self.layout = Layout.of(params)
        self.initial = self.layout.flatten(params)
        self.draws_noise = any(isinstance(m, StreamDropout) and m.share > 0 for m in self.module.modules())
        norms = {name: m for name, m in self.module.named_modules() if isinstance(m, MaskedBatchNorm)}
        for name, norm in norms.items():
            norm.name = name
        buffers: dict[str, Tensor] = {}
        for name, norm in norms.items():
            buffers[f"{name}.running_mean".lstrip(".")] = norm.running_mean
            buffers[f"{name}.running_var".lstrip(".")] = norm.running_var
        self.statistics_layout = Layout.of(buffers)
        self.statistics = self.statistics_layout.flatten(buffers).to(dtype)
        self._refuse_unknown_state(set(buffers))

    def to(self, device: torch.device) -> TargetModel:
        """Move the network and its initial vectors (in place)."""
        self.module.to(device)
        self.initial, self.statistics = self.initial.to(device), self.statistics.to(device)
        return self

    def forward(
        self,
        params: Tensor | Sequence[Tensor],
        statistics: Tensor,
        x: Tensor,
        *,
        training: bool,
        key: Tensor | None = None,
        mask: Tensor | None = None,
        frozen: bool = False,
    ) -> tuple[Any, Tensor]:
        """One client's pass: ``params [P]`` (or its parts), ``statistics [S], x [B, ...] -> outputs, statistics``.

        The outputs are a tensor; in training, where the network adds penalties, a pair (see `Given`).
        """
        self.module.train(training)
        self.state.begin(key, mask, frozen)
        parts = self.layout.parts(params) if isinstance(params, Tensor) else params
        values = dict(zip(self.layout.names, parts, strict=True))
        if self.statistics_layout.names:
            values |= self.statistics_layout.unflatten(statistics)
        if self.reseed and training and key is not None:
            with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []):
                torch.manual_seed(int(key))
                outputs = functional_call(self.module, values, (x,))
        else:
            outputs = functional_call(self.module, values, (x,))
        return outputs, self.new_statistics(statistics)

    def new_statistics(self, old: Tensor) -> Tensor:
        """The statistics after the last pass, ``[..., S]``, where the layers left new ones."""
        if not self.state.statistics:
            return old
        values = self.statistics_layout.unflatten(old)
        for name, (mean, var) in self.state.statistics.items():
            values[f"{name}.running_mean".lstrip(".")] = mean
            values[f"{name}.running_var".lstrip(".")] = var
        return self.statistics_layout.flatten(values).detach()

    def to_module(self, params: Tensor, statistics: Tensor) -> nn.Module:
        """An ordinary copy of the user's module with these weights."""
        module = copy.deepcopy(self.original)
        values = self.layout.unflatten(params) | self.statistics_layout.unflatten(statistics)
        module.load_state_dict({name: value.detach().cpu() for name, value in values.items()}, strict=False)
        return module

    def _refuse_unknown_state(self, known: set[str]) -> None:
        """A buffer that changes in training and is not BatchNorm's would leak from client to client: refuse it."""
        before = {name: b.clone() for name, b in self.module.named_buffers() if name not in known}
        if not before:
            return
        probe = torch.zeros((2, *self.task.inputs), dtype=self.initial.dtype)
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            self.forward(self.initial, self.statistics, probe, training=True, key=torch.zeros((), dtype=torch.int64))
        for name, buffer in self.module.named_buffers():
            if name in before and not torch.equal(buffer, before[name]):
                raise RequestError(
                    f"model: buffer '{name}' changes during training; only BatchNorm's statistics may be state"
                )
