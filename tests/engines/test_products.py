"""Products by either of torch's libraries are the same, with their gradients, eager, recorded and compiled."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, fx, nn

from panacea.engines import products
from panacea.engines.compiling import _compile
from panacea.engines.layers import linear, linear_columns
from panacea.engines.products import PRODUCT, faster_by_onednn, is_large, product
from panacea.engines.tracing import record, replay
from panacea.methods import FedAvg
from tests.gpu.standing_in import stand_in

from .build import engine_of, federation, labels, run, seeded

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")


@pytest.fixture(autouse=True)
def onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the processor, and for products that are small enough for a test."""
    monkeypatch.setattr(products, "_ONEDNN", True)
    monkeypatch.setattr(products, "_LEAST", 1)
    monkeypatch.setattr(products, "_LEAST_PER_MOVE", 0)


def sides(rows: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    torch.manual_seed(rows)
    return torch.randn(rows, 6, 21, dtype=dtype), torch.randn(rows, 5, 21, dtype=dtype)


def in_columns(x: Tensor) -> Tensor:
    """The same, as its transposition would lie in memory."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("swapped", [False, True])
def test_it_is_the_product(rows: int, dtype: torch.dtype, swapped: bool) -> None:
    """Of sides that lie in any order in memory, and are part of something larger; the result is one piece."""
    left, right = sides(rows, dtype)[:: -1 if swapped else 1]
    expected = torch.einsum("rmk,rnk->rmn", left.double(), right.double()).to(dtype)
    wide = torch.cat([left, left], dim=2)[..., : left.shape[2]]
    for a in (left, in_columns(left), wide):
        for b in (right, in_columns(right)):
            found = product(a, b)
            assert found.is_contiguous()
            torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("rows", [1, 3])
def test_its_gradients_and_theirs(rows: int) -> None:
    left, right = (side.requires_grad_(True) for side in sides(rows))
    along = torch.randn(rows, 6, 5)
    seen = []
    for way in (product, lambda a, b: torch.bmm(a.double(), b.double().transpose(1, 2)).float()):
        first = torch.autograd.grad(way(left, right), (left, right), along, create_graph=True)
        again = torch.autograd.grad((first[0].square().sum() + first[1].square().sum()), (left, right))
        seen.append([*first, *again])
    for found, expected in zip(*seen, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_only_what_is_asked_for_is_differentiated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The inputs of a first layer want no gradient."""
    left, right = sides(2)
    right.requires_grad_(True)
    out = product(left, right)
    made: list[tuple[Tensor, Tensor]] = []
    monkeypatch.setattr(products, "product", lambda a, b: made.append((a, b)) or torch.bmm(a, b.transpose(1, 2)))
    out.sum().backward()
    assert len(made) == 1
    torch.testing.assert_close(right.grad, left.sum(1, keepdim=True).expand(2, 5, 21))


class Windows(nn.Module):
    """A layer over all windows of a series, which overlap in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.unfold(1, 4, 1)).mean(1)


@pytest.mark.parametrize(
    ("build", "shape"),
    [
        (Windows, (9,)),
        (lambda: nn.Sequential(nn.Conv2d(1, 3, (4, 1)), nn.Flatten(), nn.Linear(3 * 6 * 5, 3)), (1, 9, 5)),
    ],
)
def test_windows_that_overlap(build: type[nn.Module], shape: tuple[int, ...]) -> None:
    """Of one sample they stay where they are, which oneDNN refuses."""
    fed, found = federation(labels(shape), train=(1, 1, 3)), []
    for name in ("sequential", "vectorised"):
        state, _ = run(FedAvg(), engine_of(name, seeded(build), fed, dtype=torch.float32, batch_size=1), fed, 2)
        found.append(state.server.params)
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 3])
def test_sides_that_overlap_or_repeat(rows: int) -> None:
    left, right = sides(rows)
    series = torch.randn(rows, 25)
    for other in (series.unfold(1, 21, 1), right[:, :1].expand(rows, 5, 21), right[..., :1].expand(rows, 5, 21)):
        expected = torch.einsum("rmk,rnk->rmn", left, other)
        torch.testing.assert_close(product(left, other), expected)
        torch.testing.assert_close(product(other, left), expected.transpose(1, 2))
    torch.testing.assert_close(product(left[..., :1], right[..., :1]), left[..., :1] * right[..., :1].transpose(1, 2))


def test_autocast_chooses_by_itself() -> None:
    left, right = sides(2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert product(left, right).dtype == torch.bfloat16


def test_only_on_a_cpu() -> None:
    with stand_in():
        left, right = (side.to("cuda") for side in sides(1))
        assert not is_large(left, right)
        assert product(left, right).is_cuda
    assert not is_large(*(side.to("meta") for side in sides(1)))


def test_on_which_processors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    about = tmp_path / "cpuinfo"
    assert not products._prefers_onednn(about, "AVX512")  # no Linux
    about.write_text("vendor_id : GenuineIntel\n")
    assert not products._prefers_onednn(about, "AVX512")
    about.write_text("vendor_id : AuthenticAMD\n")
    assert products._prefers_onednn(about, "AVX512")
    assert not products._prefers_onednn(about, "AVX2")
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert not products._prefers_onednn(about, "AVX512")


def test_which_products_are_for_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large ones in float32, unless too much would be moved for them; shapes and orders alone decide."""
    left, right = sides(1)  # 6 x 21 and 5 x 21
    monkeypatch.setattr(products, "_LEAST", 6 * 21 * 5)
    assert faster_by_onednn(left, right)
    assert not faster_by_onednn(left[:, 1:], right)
    assert not faster_by_onednn(left.double(), right.double())
    # a left side in columns is copied, 6 x 21, or the product is made turned, 6 x 5 numbers (and 5 x 21, in columns)
    for limit, turned, expected in ((21, right, True), (22, right, False), (5, in_columns(right), True)):
        monkeypatch.setattr(products, "_LEAST_PER_MOVE", limit)
        assert faster_by_onednn(left, turned)
        assert faster_by_onednn(in_columns(left), turned) is expected
        assert is_large(in_columns(left), turned)
    monkeypatch.setattr(products, "_LEAST_PER_MOVE", 5)
    assert not faster_by_onednn(in_columns(sides(1)[0][:, :5]), in_columns(right))
    monkeypatch.setattr(products, "_ONEDNN", False)
    assert not is_large(left, right)


@pytest.mark.parametrize("limit", [0, 10**9])
def test_each_product_has_its_own_library(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where only the gradients are for oneDNN: with a left side in columns, as patches of images lie."""
    monkeypatch.setattr(products, "_LEAST_PER_MOVE", limit)
    left, right = (side.requires_grad_(True) for side in sides(2))
    bias = torch.randn(2, 5, requires_grad=True)

    def gradient(a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        leaves = [t.detach().requires_grad_(True) for t in (a, b, c)]
        return torch.autograd.grad(product(in_columns(leaves[0]), leaves[1], leaves[2]).square().sum(), leaves)

    module = record(gradient, (left, right, bias))
    assert module is not None
    targets = [node.target for node in module.graph.nodes]
    assert targets.count(PRODUCT) == (3 if limit == 0 else 1)  # the gradient at the left side moves nothing

    def plain(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return (torch.einsum("rmk,rnk->rmn", a, b) + c.unsqueeze(1)).square().sum()

    expected = torch.autograd.grad(plain(left, right, bias), (left, right, bias))
    for found, other in zip(gradient(left, right, bias), expected, strict=True):
        torch.testing.assert_close(found, other, rtol=1e-4, atol=1e-4)


def test_layers_of_it() -> None:
    left, weight = sides(3)
    bias = torch.randn(3, 5)
    expected = torch.einsum("rmk,rnk->rmn", left, weight) + bias.unsqueeze(1)
    torch.testing.assert_close(linear(left, weight, bias), expected)
    torch.testing.assert_close(linear(left[:1], weight[:1], bias[:1]), expected[:1])
    torch.testing.assert_close(linear_columns(left.transpose(1, 2), weight, bias), expected.transpose(1, 2))
    torch.testing.assert_close(linear_columns(left.transpose(1, 2), weight, None), product(weight, left))
    deep = left.unflatten(1, (2, 3))
    torch.testing.assert_close(linear(deep, weight, bias), expected.unflatten(1, (2, 3)))


def test_it_is_recorded_as_one_operation() -> None:
    """With its gradients, whose bits a trace repeats."""

    def gradient(left: Tensor, right: Tensor) -> tuple[Tensor, ...]:
        leaves = left.detach().requires_grad_(True), right.detach().requires_grad_(True)
        return torch.autograd.grad(product(*leaves).square().sum(), leaves)

    module = record(gradient, sides(2))
    assert module is not None
    assert [node.target for node in module.graph.nodes].count(PRODUCT) == 3
    for found, expected in zip(replay(module.forward, sides(2)), gradient(*sides(2)), strict=True):
        assert torch.equal(found, expected)


def test_the_compiler_takes_it_for_one_operation() -> None:
    graph = fx.Graph()
    out = graph.call_function(product, (graph.placeholder("left"), graph.placeholder("turned")))
    graph.output((graph.call_function(torch.mul, (out, 2)),))
    with torch.no_grad():
        run = _compile(fx.GraphModule(nn.Module(), graph), list(sides(2)))
        (found,) = run(*sides(2))
    torch.testing.assert_close(found, 2 * product(*sides(2)))
