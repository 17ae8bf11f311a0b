"""A gradient as straight-line code: the same bits, nothing baked in, and a way back when it cannot be.

Where sums over time steps are merged (recurrent networks) the numbers are the same to rounding, and a call's bits do
not depend on the calls before it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from panacea.data.task import Task
from panacea.engines.tracing import TracedKernel, agree, as_straight_line, record
from panacea.engines.vectorised import VectorisedEngine
from panacea.methods import FedAvg, FedProx
from panacea.models import GruSeq2Seq, Mlp

from .build import engine_of, everything, federation, labels, run, seeded
from .networks import mlp


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.3), nn.Flatten(),
        nn.Linear(12, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Dropout(0.5), nn.Linear(7, 3),
    )  # fmt: skip


class OwnParameter(nn.Module):
    """For vmap: a parameter used directly."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.net = nn.Parameter(torch.ones(())), cnn()

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x) * self.scale


NETWORKS: dict[str, tuple[Callable[[], nn.Module], Task]] = {
    "mlp": (lambda: Mlp((2,), 3, (9, 9)), labels((2,))),
    "gru": (lambda: GruSeq2Seq(2, 5, horizon=3), Task("forecasting", (4, 2), (3,))),
    "gru of two layers": (lambda: GruSeq2Seq(2, 5, 2, horizon=2), Task("forecasting", (4, 2), (2,))),
    "cnn": (cnn, labels((1, 6, 6))),
    "vmap": (OwnParameter, labels((1, 6, 6))),
}

MERGED = ("gru", "gru of two layers")


def engine(name: str, traced: bool, dtype: torch.dtype = torch.float32, **local: object) -> VectorisedEngine:
    build, task = NETWORKS[name]
    made = engine_of("vectorised", seeded(build), federation(task), dtype=dtype, traced=traced, **local)
    assert isinstance(made, VectorisedEngine)
    assert isinstance(made.kernel, TracedKernel) is traced
    return made


def arguments(made: VectorisedEngine, rows: int = 3, size: int = 5, seed: int = 0) -> list[Tensor]:
    """What a kernel is called with."""
    target, generator = made.target, torch.Generator().manual_seed(seed)
    dtype = target.initial.dtype
    params = target.initial + 0.1 * torch.randn(rows, target.layout.size, generator=generator, dtype=dtype)
    statistics = target.statistics.expand(rows, -1) + 0.1 * torch.rand(rows, 1, generator=generator, dtype=dtype)
    x = torch.rand(rows, size, *target.task.inputs, generator=generator, dtype=dtype)
    if target.task.kind == "classification":
        y = torch.randint(target.task.classes, (rows, size), generator=generator)
    else:
        y = torch.rand(rows, size, *target.task.outputs, generator=generator, dtype=dtype)
    count = torch.randint(1, size + 1, (rows, 1), generator=generator)
    mask = (torch.arange(size) < count).to(dtype)
    key = torch.randint(2**62, (rows,), generator=generator)
    return [params, statistics, x, y, mask / count, key, mask]


def equal(a: tuple[Tensor, ...], b: tuple[Tensor, ...]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("name", NETWORKS)
def test_a_traced_kernel_gives_the_same_bits(name: str):
    eager, traced = engine(name, False), engine(name, True)
    for seed in range(4):
        given = arguments(eager, seed=seed)
        assert not any(result.requires_grad for result in eager.kernel(*given))  # or what is kept would keep its graph
        same = agree if name in MERGED else equal
        assert same(traced.kernel(*given), eager.kernel(*given))
    assert traced.kernel.merging is (name in MERGED)
    assert [run is not None for run in traced.kernel.traces.values()] == [True]  # one trace, and it was used


@pytest.mark.parametrize("name", NETWORKS)
def test_a_traced_run_gives_the_same_bits(name: str):
    """Whole rounds with ragged clients, momentum and an extra loss term."""
    results = []
    for traced in (False, True):
        made, fed = engine(name, traced, momentum=0.9), federation(NETWORKS[name][1])
        method = FedProx()
        state, reports = run(method, made, fed, 4, size=5)
        results.append((everything(method, state, made, fed), [report.loss for report in reports]))
    (eager, losses), (replayed, losses_replayed) = results
    tolerance = 1e-5 if name in MERGED else 0.0
    for what in eager:
        torch.testing.assert_close(replayed[what], eager[what], rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(losses_replayed, losses, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["cnn", "vmap"])
def test_no_argument_is_baked_in(name: str):
    """After the trace, a change of any argument changes the result as it does without a trace."""
    eager, traced = engine(name, False), engine(name, True)
    given = arguments(eager)
    first = traced.kernel(*given)
    other = arguments(eager, seed=9)
    assert len(given) == 7
    for place in range(len(given)):
        changed = [*given[:place], other[place], *given[place + 1 :]]
        found = traced.kernel(*changed)
        assert equal(found, eager.kernel(*changed)), place
        assert not equal(found, first), place
    assert len(traced.kernel.traces) == 1


def test_dropout_follows_its_key():
    traced = engine("cnn", True)
    given = arguments(traced)
    results = []
    for step in range(4):
        given[5] = given[5] + (step > 0)
        results.append(traced.kernel(*given)[0])
    assert len({tuple(gradient.flatten().tolist()) for gradient in results}) == 4


def test_the_mask_is_used():
    traced = engine("cnn", True)
    given = arguments(traced)
    traced.kernel(*given)
    everybody = [*given[:6], torch.ones_like(given[6])]
    with_mask, without = traced.kernel(*given), traced.kernel(*everybody)
    assert not torch.equal(with_mask[2], without[2])
    padding = given[6] == 0
    given[2] = given[2].clone()
    given[2][padding] = 55.0
    found = traced.kernel(*given)
    assert equal(found[::2], with_mask[::2])
    assert torch.equal(found[1][~padding], with_mask[1][~padding])  # nobody reads the others: they weigh nothing


def test_other_shapes_are_traced_anew():
    eager, traced = engine("mlp", False), engine("mlp", True)
    shapes = [(3, 5), (3, 4), (2, 5), (3, 5)]
    for rows, size in shapes:
        for seed in range(2):
            given = arguments(eager, rows, size, seed=seed)
            assert equal(traced.kernel(*given), eager.kernel(*given))
    assert len(traced.kernel.traces) == 3
    none = [*arguments(eager)[:5], None, None]
    assert equal(traced.kernel(*none), eager.kernel(*none))
    assert equal(traced.kernel(*none), eager.kernel(*none))
    assert len(traced.kernel.traces) == 4


def test_a_replay_builds_no_graph():
    traced = engine("mlp", True)
    for seed in range(2):
        given = arguments(traced, seed=seed)
        given[0].requires_grad_(True)
        assert not any(result.requires_grad for result in traced.kernel(*given))


def test_what_cannot_be_traced_stays_as_it_is():
    calls = []

    def by_value(x: Tensor) -> tuple[Tensor, ...]:
        calls.append(float(x.sum()))
        return (x * 2,) if float(x.sum()) > 0 else (x * 3,)

    kernel = TracedKernel(by_value)
    for value in (1.0, -1.0, 2.0):
        found = kernel(torch.full((2,), value))
        assert found[0].tolist() == [2 * value if value > 0 else 3 * value] * 2
    assert list(kernel.traces.values()) == [None]
    assert len(calls) >= 3


def test_a_trace_that_does_not_repeat_its_own_numbers_is_not_used():
    count = [0]

    def different_every_time(x: Tensor) -> tuple[Tensor, ...]:
        count[0] += 1
        return (x + count[0],)

    kernel = TracedKernel(different_every_time)
    kernel(torch.zeros(1))
    assert list(kernel.traces.values()) == [None]
    before = count[0]
    assert kernel(torch.zeros(1))[0].item() == before + 1


def test_too_long_a_trace_is_not_kept(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("panacea.engines.tracing._MOST_OPERATIONS", 5)

    def long(x: Tensor) -> tuple[Tensor, ...]:
        for _ in range(10):
            x = x * 2
        return (x,)

    assert record(long, (torch.ones(1),)) is None
    kernel = TracedKernel(long)
    assert [kernel(torch.ones(1))[0].item() for _ in range(2)] == [1024.0, 1024.0]


def test_networks_that_run_in_a_loop_are_not_traced():
    made = engine_of(
        "vectorised", seeded(lambda: mlp(nn.ReLU())), federation(labels((5,))), forward="loop", traced=True
    )
    assert isinstance(made, VectorisedEngine)
    assert not isinstance(made.kernel, TracedKernel)
    run(FedAvg(), made, federation(labels((5,))), 1)


def test_merged_sums_do_not_depend_on_what_was_traced_before(monkeypatch: pytest.MonkeyPatch):
    """Any number of shapes is traced, for without a trace the bits would be others; room is made for the new ones."""
    monkeypatch.setattr("panacea.engines.tracing._MOST_TRACES", 2)
    monkeypatch.setattr("panacea.engines.tracing._MOST_MERGED_TRACES", 3)
    early, late = engine("gru", True), engine("gru", True)
    for size in (2, 3, 4, 6):
        late.kernel(*arguments(late, size=size))
    assert len(late.kernel.traces) == 3
    given = arguments(early)
    assert equal(early.kernel(*given), late.kernel(*given))  # the first call of each
    assert equal(early.kernel(*given), late.kernel(*given))
    assert equal(early.kernel(*given), early.kernel(*given))


def test_a_merged_trace_that_is_wrong_is_not_used(monkeypatch: pytest.MonkeyPatch):
    from panacea.engines import merging

    monkeypatch.setattr(merging, "_pays", lambda p, q: True)
    monkeypatch.setattr(merging, "_is_add", lambda node: getattr(node, "target", None) is torch.ops.aten.sub.Tensor)

    def difference(x: Tensor) -> tuple[Tensor, ...]:
        turned = x.transpose(1, 2)
        products = [torch.bmm(turned * (k + 1), x) for k in range(4)]
        return (products[0] - products[1] - products[2] - products[3],)

    for wanted in (True, False):
        kernel = TracedKernel(difference, merging=wanted)
        found = kernel(torch.ones(1, 2, 2))
        module = record(difference, (torch.ones(1, 2, 2),))
        assert module is not None
        assert module.meta["merged"]  # taken for a sum
        assert list(kernel.traces.values()) == [None]
        assert found[0].tolist() == difference(torch.ones(1, 2, 2))[0].tolist()


def test_sums_that_are_not_wanted_merged_leave_the_function_as_it_is(monkeypatch: pytest.MonkeyPatch):
    """Or a run that meets its shapes in another order would have other bits."""
    from panacea.engines import merging

    monkeypatch.setattr(merging, "_pays", lambda p, q: True)

    def several(x: Tensor) -> tuple[Tensor, ...]:
        turned = x.transpose(1, 2)
        products = [torch.bmm(turned * (k + 1), x) for k in range(4)]
        return (products[0] + products[1] + products[2] + products[3],)

    given = torch.rand(2, 3, 5)
    plain, merged = TracedKernel(several), TracedKernel(several, merging=True)
    assert torch.equal(plain(given)[0], several(given)[0])
    assert list(plain.traces.values()) == [None]
    merged(given)
    assert list(merged.traces.values()) != [None]


def test_agreement_is_relative_to_the_largest_value():
    small = torch.tensor([1e-9, 2e-9])
    assert agree((small,), (small * (1 + 1e-6),))
    assert not agree((small,), (small + 1e-10,))
    assert not agree((small,), (small[:1],))
    assert agree((torch.zeros(0),), (torch.zeros(0),))
    impossible = torch.tensor([1.0, -torch.inf])  # the log-probability of something
    assert agree((impossible,), (impossible,))
    assert not agree((impossible * 2,), (impossible,))


def test_negations_are_taken_into_what_uses_them():
    """With the same bits, signs of zeros included."""

    def function(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        return a + b.neg(), (a * b).neg() + b, a.neg() * -2, a.neg() * b, torch.add(a, b.neg(), alpha=3), a.neg() + 1

    a, b = torch.tensor([0.0, -0.0, 1.5, -7.0]), torch.tensor([0.0, 0.0, 1.5, torch.inf])
    module = record(function, (a, b))
    assert module is not None
    run = as_straight_line(module)
    found, expected = run(a, b), function(a, b)
    assert all(x.numpy().tobytes() == y.numpy().tobytes() for x, y in zip(found, expected, strict=True))
    left = sum(node.target is torch.ops.aten.neg.default for node in module.graph.nodes)
    assert left == 3  # of the last three
