"""Products by either of torch's libraries are the same, eager and compiled."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, fx, nn

from panacea.engines import products
from panacea.engines.compiling import _compile
from panacea.engines.products import product_over_samples


@pytest.fixture(params=[True, False], ids=["onednn", "mkl"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if request.param and not torch.backends.mkldnn.is_available():
        pytest.skip("this torch has no oneDNN")
    monkeypatch.setattr(products, "_ONEDNN", request.param)
    use: bool = request.param
    return use


def sides(rows: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    torch.manual_seed(rows)
    return torch.randn(rows, 21, 6, dtype=dtype), torch.randn(rows, 21, 5, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.usefixtures("library")
def test_it_is_the_product(rows: int, dtype: torch.dtype) -> None:
    """Of sides that lie in any order in memory."""
    left, right = sides(rows, dtype)
    expected = torch.einsum("rbo,rbi->roi", left.double(), right.double()).to(dtype)
    turned = left.transpose(1, 2).contiguous().transpose(1, 2)
    for a in (left, turned, left.flip(0).flip(0)):
        found = product_over_samples(a, right)
        assert found.shape == (rows, 6, 5)
        torch.testing.assert_close(found, expected)


def test_the_compiler_takes_it_for_one_operation(library: bool) -> None:
    graph = fx.Graph()
    out = graph.call_function(product_over_samples, (graph.placeholder("left"), graph.placeholder("right")))
    graph.output((graph.call_function(torch.mul, (out, 2)),))
    run = _compile(fx.GraphModule(nn.Module(), graph))
    with torch.no_grad():
        (found,) = run(*sides(2))
    torch.testing.assert_close(found, 2 * product_over_samples(*sides(2)))
