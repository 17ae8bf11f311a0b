"""Random passes of some rows, and the comparison of two ways to run them."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from panacea.data.task import Task
from panacea.engines.forward import Forward, LoopForward
from panacea.models.target import TargetModel

from .build import seeded
from .networks import NETWORKS

ROWS, SIZE = 4, 5
COUNTS = (5, 2, 1, 4)
TOLERANCE = 1e-10
Result = tuple[Tensor, Tensor, Tensor]


def target_of(module: nn.Module, inputs: tuple[int, ...], dtype: torch.dtype = torch.float64) -> TargetModel:
    with torch.no_grad():
        outputs = copy.deepcopy(module).eval()(torch.zeros(2, *inputs)).shape[1:]
    return TargetModel(module, Task("regression", inputs, tuple(outputs)), dtype)


def named(name: str) -> TargetModel:
    build, inputs = NETWORKS[name]
    return target_of(seeded(build), inputs)


class Passes:
    """Random parameters, statistics and inputs of some rows, and what a way of running them makes of it."""

    def __init__(self, target: TargetModel, seed: int = 0) -> None:
        self.target = target
        self.generator = torch.Generator().manual_seed(seed)
        self.params = target.initial + 0.2 * self.draw(ROWS, target.layout.size)
        self.statistics = target.statistics + 0.5 * self.draw(ROWS, len(target.statistics)).abs()
        self.x = torch.rand(ROWS, SIZE, *target.task.inputs, generator=self.generator, dtype=target.initial.dtype)
        self.slope = self.draw(ROWS, SIZE, *target.task.outputs)
        self.keys = torch.randint(2**62, (ROWS,), generator=self.generator)

    def draw(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator, dtype=self.target.initial.dtype)

    def __call__(self, forward: Forward, *, mask: Tensor | None = None, training: bool = True, **how: Any) -> Result:
        parts = [part.clone().requires_grad_(True) for part in self.target.layout.parts(self.params)]
        key = self.keys if training else None
        out, new = forward(parts, self.statistics, self.x.clone(), training=training, key=key, mask=mask, **how)
        assert out.shape == (ROWS, SIZE, *self.target.task.outputs)
        assert new.shape == self.statistics.shape
        valid = torch.ones(ROWS, SIZE, dtype=torch.bool) if mask is None else mask.bool()
        out = torch.where(valid.reshape(ROWS, SIZE, *[1] * len(self.target.task.outputs)), out, 0.0)
        pieces = torch.autograd.grad((out * self.slope).sum() + out.square().sum(), parts, materialize_grads=True)
        assert not new.requires_grad
        return out.detach(), new, self.target.layout.join(pieces)


def mask_of(counts: tuple[int, ...], dtype: torch.dtype = torch.float64) -> Tensor:
    return (torch.arange(SIZE) < torch.tensor(counts)[:, None]).to(dtype)


def assert_same(found: Result, expected: Result, tolerance: float = TOLERANCE) -> None:
    for what, a, b in zip(("outputs", "statistics", "gradients"), found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance, msg=lambda m, what=what: f"{what}: {m}")


def check_all_modes(target: TargetModel, forward: Forward) -> None:
    passes, loop = Passes(target), LoopForward(target)
    assert_same(passes(forward), passes(loop))
    assert_same(passes(forward, training=False), passes(loop, training=False))
    mask = mask_of(COUNTS)
    padded = passes(loop, mask=mask)
    assert_same(passes(forward, mask=mask), padded)
    if target.statistics_layout.names:
        assert_same(passes(forward, frozen=True), passes(loop, frozen=True))
        assert_same(passes(forward, frozen=True, mask=mask), passes(loop, frozen=True, mask=mask))
    assert_same(passes(forward), passes(loop))  # nothing is left over from the other modes
