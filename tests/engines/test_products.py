"""Products by either of torch's libraries are the same, with their gradients, eager, recorded and compiled."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, fx, nn

from panacea.engines import products
from panacea.engines.compiling import _compile
from panacea.engines.layers import linear
from panacea.engines.products import PRODUCT, faster_by_onednn, product
from panacea.engines.tracing import record, replay

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")


@pytest.fixture(autouse=True)
def onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the processor, and for products that are small enough for a test."""
    monkeypatch.setattr(products, "_ONEDNN", True)
    monkeypatch.setattr(products, "_LEAST", 1)
    monkeypatch.setattr(products, "_LEAST_COLUMNS", 1)


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


def test_which_products_are_for_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large ones in float32, unless a side would be copied for few columns; the shapes alone decide."""
    monkeypatch.setattr(products, "_LEAST", 6 * 21 * 5)
    monkeypatch.setattr(products, "_LEAST_COLUMNS", 6)
    left, right = sides(1)
    assert faster_by_onednn(left, right)
    assert not faster_by_onednn(left[:, 1:], right)
    assert not faster_by_onednn(in_columns(left), right)
    assert faster_by_onednn(in_columns(right), left)
    assert not faster_by_onednn(left.double(), right.double())
    monkeypatch.setattr(products, "_ONEDNN", False)
    assert not faster_by_onednn(left, right)


def test_a_linear_layer_of_it() -> None:
    left, weight = sides(3)
    bias = torch.randn(3, 5)
    expected = torch.einsum("rmk,rnk->rmn", left, weight) + bias.unsqueeze(1)
    torch.testing.assert_close(linear(left, weight, bias), expected)
    torch.testing.assert_close(linear(left[:1], weight[:1], bias[:1]), expected[:1])
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
