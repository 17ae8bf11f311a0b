"""Plain SGD against torch.optim, and the one local loop."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from panacea.core.local import Iterate, Local, Sgd, run_local
from panacea.core.method import Method, Model
from panacea.core.types import Batch

SIZE = 7
CENTRE = torch.linspace(-1, 2, SIZE, dtype=torch.float64)
CURVATURE = torch.linspace(0.2, 1.5, SIZE, dtype=torch.float64)


def slope(w: Tensor, step: int) -> Tensor:
    """The gradient of a quadratic whose centre moves from step to step."""
    return CURVATURE * (w - (1 + 0.3 * step) * CENTRE)


def start(rows: int | None = None) -> Tensor:
    shape = (SIZE,) if rows is None else (rows, SIZE)
    return torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def by_torch(w: Tensor, steps: int, clip: float = 0.0, **options: float) -> Tensor:
    leaf = torch.nn.Parameter(w.clone())
    optimiser = torch.optim.SGD([leaf], **options)
    for step in range(steps):
        leaf.grad = slope(leaf.detach(), step)
        if clip:
            norm = float(leaf.grad.norm())
            leaf.grad *= min(1.0, clip / norm)
        optimiser.step()
    return leaf.detach()


def by_us(sgd: Sgd, w: Tensor, steps: int) -> Iterate:
    iterate = sgd.start(w)
    for step in range(steps):
        iterate = sgd(iterate, slope(iterate.params, step))
    return iterate


@pytest.mark.parametrize("clip", [0.0, 0.7, 1e6])
@pytest.mark.parametrize("weight_decay", [0.0, 0.05])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_is_torchs(momentum: float, weight_decay: float, clip: float):
    expected = by_torch(start(), 12, clip, lr=0.1, momentum=momentum, weight_decay=weight_decay)
    found = by_us(Sgd(0.1, momentum, weight_decay, clip), start(), 12).params
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_rows_are_trained_as_if_alone_each_at_its_own_rate(momentum: float):
    rates = torch.tensor([[0.05], [0.1], [0.4]], dtype=torch.float64)
    found = by_us(Sgd(rates, momentum, 0.01, 0.5), start(3), 9).params
    for row in range(3):
        expected = by_torch(start(3)[row], 9, 0.5, lr=float(rates[row]), momentum=momentum, weight_decay=0.01)
        torch.testing.assert_close(found[row], expected, rtol=1e-13, atol=1e-13)
        alone = by_us(Sgd(rates[row], momentum, 0.01, 0.5), start(3)[row], 9).params  # rate [1], no row axis
        torch.testing.assert_close(alone, expected, rtol=1e-13, atol=1e-13)


def test_clipping_is_by_row_and_only_above_the_bound():
    gradient = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]], dtype=torch.float64)
    moved = Sgd(1.0, clip=1.0)(Iterate(torch.zeros(3, 2, dtype=torch.float64)), gradient).params
    torch.testing.assert_close(moved, torch.tensor([[-0.6, -0.8], [-0.3, -0.4], [0.0, 0.0]], dtype=torch.float64))


def test_weight_decay_is_not_clipped():
    w = torch.tensor([100.0], dtype=torch.float64)
    moved = Sgd(0.1, weight_decay=0.5, clip=1.0)(Iterate(w), torch.tensor([30.0], dtype=torch.float64)).params
    assert moved.item() == pytest.approx(100.0 - 0.1 * (1.0 + 50.0))


def test_there_is_a_buffer_only_with_momentum():
    assert Sgd(0.1).start(start()).velocity is None
    velocity = Sgd(0.1, momentum=0.5).start(start(2)).velocity
    assert velocity is not None
    assert torch.equal(velocity, torch.zeros(2, SIZE, dtype=torch.float64))


@pytest.mark.parametrize("rate", [0.1, torch.tensor([[0.1], [0.2]], dtype=torch.float64)])
def test_nothing_is_written_in_place(rate: float | Tensor):
    w, gradient = start(2), torch.ones(2, SIZE, dtype=torch.float64)
    sgd = Sgd(rate, 0.9, 0.1, 0.5)
    first = sgd.start(w)
    sgd(sgd(first, gradient), gradient)
    assert torch.equal(first.params, start(2))
    assert torch.equal(gradient, torch.ones(2, SIZE, dtype=torch.float64))
    assert first.velocity is not None
    assert not first.velocity.any()


# --- the loop ---------------------------------------------------------------------------------------------------


class Toy(Method):
    """Goes to the batch's value; uploads the number of steps it was told as well."""

    def finish(self, carry: Iterate, download: Model, client: object, steps: int | Tensor) -> tuple[object, object]:
        return (carry.params, steps if isinstance(steps, Tensor) else torch.tensor(steps)), client


def numbered_batches(steps: int) -> list[tuple[Batch, ...]]:
    return [(Batch(torch.tensor(float(t)), torch.zeros(()), torch.ones(1)),) for t in range(steps)]


def to_the_batch(
    params: Tensor, batch: Batch, extra: Callable[[Tensor], Tensor] | None = None, track: bool = True
) -> Tensor:
    return slope(params, int(batch.x))


def expected_after(w: Tensor, steps: int, momentum: float) -> Tensor:
    return by_us(Sgd(0.1, momentum), w, steps).params


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_row_stands_still_after_its_own_steps(momentum: float):
    steps = torch.tensor([[1], [5], [0], [3]])
    local = Local(to_the_batch, Sgd(0.1, momentum), steps)
    (params, told), client = run_local(Toy(), Model(start(4)), None, numbered_batches(5), local)
    for row, own in enumerate([1, 5, 0, 3]):
        torch.testing.assert_close(params[row], expected_after(start(4)[row], own, momentum), rtol=0, atol=0)
    assert told is steps
    assert client is None


def test_one_number_of_steps_for_all():
    local = Local(to_the_batch, Sgd(0.1, 0.9), 4)
    (params, told), _ = run_local(Toy(), Model(start(2)), None, numbered_batches(4), local)
    torch.testing.assert_close(params, expected_after(start(2), 4, 0.9), rtol=0, atol=0)
    assert int(told) == 4


class Keeper(Method):
    """Carries and keeps a counter beside the iterate; every part of the interface is handed on."""

    draws = 2

    def start(self, download: Model, client: Tensor, local: Local) -> tuple[Iterate, Tensor]:
        return local.sgd.start(download.params), client

    def step(
        self,
        carry: tuple[Iterate, Tensor],
        download: Model,
        client: Tensor,
        batches: tuple[Batch, ...],
        local: Local,
    ) -> tuple[Iterate, Tensor]:
        first, second = batches
        extra = local.grad(carry[0].params, first, extra=lambda w: w.sum(dim=-1, keepdim=True))
        return local.sgd(carry[0], extra), carry[1] + second.x + download.params[..., :1] * 0

    def finish(
        self, carry: tuple[Iterate, Tensor], download: Model, client: Tensor, steps: int | Tensor
    ) -> tuple[Model, Tensor]:
        return Model(carry[0].params), carry[1] - client


def test_client_state_several_draws_and_extra_terms_reach_the_method():
    calls: list[tuple[float, bool]] = []

    def grad(
        params: Tensor, batch: Batch, extra: Callable[[Tensor], Tensor] | None = None, track: bool = True
    ) -> Tensor:
        assert extra is not None
        assert extra(params).shape == (3, 1)
        calls.append((float(batch.x), track))
        return torch.ones_like(params)

    pairs = [
        tuple(Batch(torch.tensor(10.0 * t + d), torch.zeros(()), torch.ones(1)) for d in range(2)) for t in range(3)
    ]
    kept_before = torch.full((3, 1), 7.0, dtype=torch.float64)
    upload, kept = run_local(Keeper(), Model(start(3)), kept_before, pairs, Local(grad, Sgd(0.5), 3))
    assert calls == [(0.0, True), (10.0, True), (20.0, True)]
    torch.testing.assert_close(upload.params, start(3) - 1.5)
    assert kept.tolist() == [[1.0 + 11.0 + 21.0]] * 3
