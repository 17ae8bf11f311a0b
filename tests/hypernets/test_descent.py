"""The server's optimiser against torch.optim over five steps on a random quadratic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from panacea.core.parameters import Layout
from panacea.hypernets.descent import Loss, Optimiser, Outer, Slopes, descend
from tests.hypernets.build import tensor

STEPS = 5
LR = torch.tensor(0.01, dtype=torch.float64)
START = [tensor(3, 2, seed=1), tensor(4, seed=2)]
MIXED = [tensor(10, 10, seed=3), tensor(10, seed=4)]


def quadratic(variables: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    flat = torch.cat([v.reshape(-1) for v in variables])
    residual = MIXED[0] @ flat - MIXED[1]
    loss = residual.square().sum() / 2
    return loss, loss.reshape(1)


def theirs(kind: str, lr: float, decay: float, clip: float, steps: int = STEPS) -> list[Tensor]:
    variables = [v.clone().requires_grad_() for v in START]
    made: Any = {
        "sgd": lambda: torch.optim.SGD(variables, lr, weight_decay=decay),
        "momentum": lambda: torch.optim.SGD(variables, lr, momentum=0.8, weight_decay=decay),
        "adam": lambda: torch.optim.Adam(variables, lr, weight_decay=decay),
    }[kind]()
    for _ in range(steps):
        made.zero_grad()
        quadratic(variables)[0].backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(variables, clip)
        made.step()
    return [v.detach() for v in variables]


@pytest.mark.parametrize("decay", [0.0, 0.3])
@pytest.mark.parametrize("clip", [0.0, 0.5, 1e9])
@pytest.mark.parametrize("kind", ["sgd", "momentum", "adam"])
def test_steps_are_those_of_torch(kind: Any, clip: float, decay: float) -> None:
    """Clipping to 1e-6: torch adds that much to the norm it divides by."""
    optimiser = Optimiser(kind, 0.8, decay, clip)
    moved, _, last = descend(quadratic, START, optimiser.start(START), optimiser, LR, STEPS)
    for ours, expected in zip(moved, theirs(kind, 0.01, decay, clip), strict=True):
        assert torch.allclose(ours, expected, rtol=0, atol=1e-6 if clip == 0.5 else 1e-12)
    almost, *_ = descend(quadratic, START, optimiser.start(START), optimiser, LR, STEPS - 1)
    assert torch.equal(last, quadratic(almost)[1])  # terms are those of the last step


def test_slopes_and_parts_are_another_way_to_say_it() -> None:
    """The residual with its own value as slope, at the parts of a vector: the steps of the square."""
    optimiser, layout = Optimiser("momentum", 0.8, 0.1, 0.5), Layout(("a", "b"), ((3,), (1,)))

    def slopes(leaves: Sequence[Tensor]) -> tuple[Any, None]:
        residual = MIXED[0] @ torch.cat([leaf.reshape(-1) for leaf in leaves]) - MIXED[1]
        return [(residual, residual.detach())], None

    expected, memory, _ = descend(quadratic, START, optimiser.start(START), optimiser, 0.01, STEPS)
    found = descend(slopes, START, optimiser.start(START), optimiser, 0.01, STEPS, [None, layout])
    for ours, theirs in zip((*found[0], *found[1]), (*expected, *memory), strict=True):
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-15)


@pytest.mark.parametrize("kind", ["sgd", "momentum", "adam"])
def test_memory_is_passed_on(kind: Any) -> None:
    """Two and three steps are five."""
    optimiser, lr = Optimiser(kind, 0.8, 0.1, 0), LR
    memory: Any = optimiser.start(START)
    variables: Any = START
    for steps in (2, 3):
        variables, memory, _ = descend(quadratic, variables, memory, optimiser, lr, steps)
    for ours, expected in zip(variables, theirs(kind, 0.01, 0.1, 0), strict=True):
        assert torch.allclose(ours, expected, rtol=0, atol=1e-12)


def test_clipping_is_exact_and_covers_everything_together() -> None:
    """Gradients (3) and (4) have the norm 5; clipped to 1 they are 0.6 and 0.8. A smaller one is left alone."""
    variables = [torch.zeros(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)]

    def slope(given: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        loss = 3 * given[0].sum() + 4 * given[1].sum()
        return loss, loss.reshape(1)

    for clip, expected in ((1.0, [-0.6, -0.8]), (5.5, [-3.0, -4.0]), (0.0, [-3.0, -4.0])):
        optimiser = Optimiser("sgd", clip=clip)
        moved, *_ = descend(slope, variables, (), optimiser, 1.0, 1)
        assert [v.item() for v in moved] == pytest.approx(expected, rel=1e-15)


def test_decay_comes_after_clipping() -> None:
    """At 2 the gradient 30 is clipped to 1, then 0.5 * 2 is added: 2 - 0.1 * 2 = 1.8."""
    optimiser = Optimiser("sgd", weight_decay=0.5, clip=1)
    moved, *_ = descend(lambda v: (30 * v[0].sum(), v[0]), [torch.tensor([2.0])], (), optimiser, 0.1, 1)
    assert moved[0].item() == pytest.approx(1.8)


def test_what_is_given_stays_and_what_is_unused_too() -> None:
    """Variables and memory are copied; one the loss does not see has a zero gradient."""
    optimiser = Optimiser("momentum", 0.9, 0, 0)
    start = [v.clone() for v in START]
    memory = optimiser.start(start)
    moved, *_ = descend(lambda v: (v[0].sum(), v[0][:1]), start, memory, optimiser, 0.1, 2)
    assert all(torch.equal(a, b) for a, b in zip(start, START, strict=True))
    assert all(not m.any() for m in memory)
    assert torch.equal(moved[1], START[1])
    assert not moved[0].requires_grad


WIDE = Layout(("head.bias", "head.weight", "trunk"), ((7,), (7, 4), (4, 3)))
INPUTS, TARGETS = tensor(5, 3, seed=5), tensor(5, 7, seed=6)


def linear_head(leaves: Sequence[Tensor]) -> tuple[Loss, Tensor]:
    bias, weight, trunk = leaves
    models = torch.tanh(INPUTS @ trunk.T) @ weight.T + bias
    return (models - TARGETS).square().sum() / 2, models.detach()


def factored_head(leaves: Sequence[Tensor]) -> tuple[Loss, Tensor]:
    """The same loss by slopes; there is nowhere to put a gradient of the matrix."""
    bias, weight, trunk = leaves
    assert weight.grad is None
    assert not weight.requires_grad
    features = torch.tanh(INPUTS @ trunk.T)
    slope = features.detach() @ weight.T + bias.detach() - TARGETS
    return Slopes([(features, slope @ weight), (bias, slope.sum(dim=0))], Outer(slope, features.detach())), slope


@pytest.mark.parametrize("decay", [0.0, 0.3])
@pytest.mark.parametrize("clip", [0.0, 0.5, 1e9])
def test_a_head_moves_by_the_factors_of_its_gradient(clip: float, decay: float) -> None:
    """The rank-|S| update is the ordinary one: with clipping at work and far away, with and without decay."""
    optimiser, start = Optimiser("sgd", 0.0, decay, clip), [tensor(WIDE.size, seed=7)]
    plain, _, models = descend(linear_head, start, (), optimiser, 0.05, STEPS, [WIDE])
    thin, _, slope = descend(factored_head, start, (), optimiser, 0.05, STEPS, [WIDE], "head.weight")
    assert (plain[0] - start[0]).abs().max() > 1e-3
    assert torch.allclose(plain[0], thin[0], rtol=0, atol=1e-12)
    assert torch.allclose(models - TARGETS, slope, rtol=0, atol=1e-12)  # type: ignore[operator]


def test_the_norm_of_a_product_by_its_factors() -> None:
    left, right = tensor(5, 11, seed=8), tensor(5, 6, seed=9)
    assert Outer(left, right).squared_norm().item() == pytest.approx((left.T @ right).square().sum().item(), rel=1e-12)
