"""Sums of products over time steps become one product, and nothing else changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from panacea.engines import products as of_rows
from panacea.engines.products import PRODUCT, product
from panacea.engines.tracing import record

Function = Callable[..., tuple[Tensor, ...]]
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}


def tensors(count: int, *shape: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.rand(shape, generator=generator, dtype=torch.float64) for _ in range(count)]


def products(function: Function, *given: Tensor) -> int:
    """How many products the recorded graph has left; its values are those of the function."""
    module = record(function, given)
    assert module is not None
    for found, expected in zip(module.forward(*given), function(*given), strict=True):
        torch.testing.assert_close(found, expected, rtol=TOLERANCE[expected.dtype], atol=TOLERANCE[expected.dtype])
    found = Counter(node.target for node in module.graph.nodes)
    left = found[torch.ops.aten.bmm.default] + found[PRODUCT] + found[product]
    assert module.meta["merged"] is (left < 5)
    return left


P, Q = tensors(5, 2, 3, 6), tensors(5, 2, 3, 4)  # five steps of 2 rows, 3 samples: weights 6 x 4


def sum_of(terms: list[Tensor]) -> Tensor:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def gradients(*given: Tensor) -> list[Tensor]:
    return [torch.bmm(p.transpose(1, 2), q) for p, q in zip(given[:5], given[5:], strict=True)]


def test_a_sum_of_products_is_one_product():
    assert products(lambda *g: (sum_of(gradients(*g)),), *P, *Q) == 1


def test_however_they_are_transposed():
    def turned(*g: Tensor) -> tuple[Tensor, ...]:
        terms = gradients(*g)
        terms[1] = torch.bmm(g[6].transpose(1, 2), g[1]).transpose(1, 2)
        terms[2] = torch.bmm((g[2] * 2).transpose(-1, -2), g[7]).transpose(2, 1).transpose(1, 2)
        return (sum_of(terms),)

    assert products(turned, *P, *Q) <= 2  # a double transposition may stay as it is


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
@pytest.mark.parametrize("turned", [False, True])
def test_products_by_either_library(turned: bool, monkeypatch: pytest.MonkeyPatch):
    """`panacea.engines.products` is given its second factor turned; so may be the whole term."""
    monkeypatch.setattr(of_rows, "_ONEDNN", True)
    monkeypatch.setattr(of_rows, "_LEAST", 1)
    monkeypatch.setattr(of_rows, "_LEAST_PER_MOVE", 0)

    def terms(*g: Tensor) -> tuple[Tensor, ...]:
        pairs = [(p.transpose(1, 2), q.transpose(1, 2)) for p, q in zip(g[:5], g[5:], strict=True)]
        return (sum_of([product(q, p).transpose(1, 2) if turned else product(p, q) for p, q in pairs]),)

    def with_bias(*g: Tensor) -> tuple[Tensor, ...]:
        pairs = [(p.transpose(1, 2), q.transpose(1, 2)) for p, q in zip(g[:5], g[5:], strict=True)]
        return (sum_of([product(p, q, torch.ones(2, 4)) for p, q in pairs]),)

    given = [tensor.float() for tensor in (*P, *Q)]
    assert products(terms, *given) == 1
    assert products(with_bias, *given) == 5


def test_left_factors_that_are_not_transposed():
    lefts = [p.transpose(1, 2).contiguous() for p in P]
    assert products(lambda *g: (sum_of([torch.bmm(a, b) for a, b in zip(g[:5], g[5:], strict=True)]),), *lefts, *Q) == 1


def test_other_terms_stay_in_the_sum():
    other = torch.rand(2, 6, 4, dtype=torch.float64)
    assert products(lambda *g: (other * 2 + sum_of(gradients(*g)) + other,), *P, *Q) == 1


def test_a_tree_of_sums():
    def tree(*g: Tensor) -> tuple[Tensor, ...]:
        a, b, c, d, e = gradients(*g)
        return ((a + b) + (c + (d + e)),)

    assert products(tree, *P, *Q) == 1


def test_a_bias_is_summed_from_the_joined_steps():
    def both(*g: Tensor) -> tuple[Tensor, ...]:
        return sum_of(gradients(*g)), sum_of([p.sum(dim=1, keepdim=True).squeeze(-2) for p in g[:5]])

    assert products(both, *P, *Q) == 1
    module = record(both, (*P, *Q))
    assert module is not None
    counts = Counter(node.target for node in module.graph.nodes)
    assert counts[torch.ops.aten.sum.dim_IntList] == 1
    assert counts[torch.ops.aten.add.Tensor] == 0


def keeps_a_product(*g: Tensor) -> tuple[Tensor, ...]:
    terms = gradients(*g)
    return sum_of(terms), terms[0], terms[1]


def keeps_a_partial_sum(*g: Tensor) -> tuple[Tensor, ...]:
    terms = gradients(*g)
    part = terms[0] + terms[1] + terms[2]
    return part + terms[3] + terms[4], part


def broadcasts(*g: Tensor) -> tuple[Tensor, ...]:
    return (sum_of(gradients(*g)) + g[0][:, :1, :1],)


def weighs(*g: Tensor) -> tuple[Tensor, ...]:
    a, b, c, d, e = gradients(*g)
    return (torch.add(a, b, alpha=2) + torch.add(c, d, alpha=3) + e,)


@pytest.mark.parametrize("function", [keeps_a_product, keeps_a_partial_sum, broadcasts, weighs])
def test_what_is_used_elsewhere_or_is_no_plain_sum_stays(function: Function):
    assert products(function, *P, *Q) == 5


def test_small_weights_stay():
    """Putting large inputs side by side costs more than adding up a few small products."""
    p, q = tensors(5, 2, 30, 2), tensors(5, 2, 30, 2)
    assert products(lambda *g: (sum_of(gradients(*g)),), *p, *q) == 5
