"""Heads: what they make, what they weigh, where they start; scopes: which tensors of a network they make."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from panacea.core.parameters import Layout
from panacea.core.scope import Scope, all_but_last
from panacea.errors import RequestError
from panacea.hypernets import Head
from panacea.hypernets.heads import CODE
from tests.hypernets.build import LAYOUT, tensor

KINDS: tuple[Any, ...] = ("full", "low_rank", "chunked")


def made(kind: Any, size: int = 11, **keys: Any) -> tuple[Head, dict[str, torch.Tensor], torch.Tensor]:
    head = Head(kind, 6, size, **{"rank": 2, "chunk": 4, **keys})
    start = tensor(size, seed=1)
    parts = head.init(start, torch.Generator().manual_seed(0))
    return head, {name: part.double() for name, part in parts.items()}, start


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 3, 4, 11, 12])
def test_shapes(kind: str, size: int) -> None:
    head, parts, _ = made(kind, size)
    assert head.chunks == {1: 1, 3: 1, 4: 1, 11: 3, 12: 3}[size]
    assert head(parts, tensor(3, 6)).shape == (3, size)
    assert head(parts, tensor(3, 6)[:0]).shape == (0, size)


@pytest.mark.parametrize("kind", KINDS)
def test_without_scale_every_model_is_the_initial_one(kind: str) -> None:
    head, parts, start = made(kind, scale=0.0)
    assert torch.equal(head(parts, tensor(3, 6)), start.expand(3, -1))


@pytest.mark.parametrize("kind", KINDS)
def test_the_scale_of_the_start(kind: str) -> None:
    """For unit features the models differ from the bias by about the scale, whatever the width."""
    head, parts, start = made(kind, 4000, rank=50, chunk=400, scale=0.1)
    size = (head(parts, tensor(200, 6)) - start).square().mean().sqrt()
    assert 0.03 < float(size) < 0.15 if kind == "chunked" else float(size) == pytest.approx(0.1, rel=0.25)


@pytest.mark.parametrize(
    ("kind", "weights"),
    [("full", 11 * 6 + 11), ("low_rank", 11 * 2 + 2 * 6 + 11), ("chunked", 6 * (6 + CODE) + 6 + 3 * CODE + 4 * 6 + 11)],
)
def test_weights_are_as_many_as_the_formula_says(kind: str, weights: int) -> None:
    assert sum(part.numel() for part in made(kind)[1].values()) == weights


def test_full_and_low_rank_by_their_formulas() -> None:
    f = tensor(3, 6)
    head, parts, start = made("full")
    assert torch.allclose(head(parts, f), f @ parts["head.weight"].T + start, atol=1e-14)
    head, parts, start = made("low_rank")
    assert torch.allclose(head(parts, f), f @ (parts["head.outer"] @ parts["head.inner"]).T + start, atol=1e-14)


def test_chunks_by_their_formula() -> None:
    """theta_j = B relu(A F + C c_j + d) + b_j; 11 parameters are chunks of 4, 4 and 3."""
    head, parts, start = made("chunked")
    f = tensor(2, 6)
    assert head.chunks == 3
    for row in range(2):
        chunks = [
            parts["head.outer"]
            @ torch.relu(parts["head.inner"][:, :6] @ f[row] + parts["head.inner"][:, 6:] @ code + parts["head.offset"])
            for code in parts["head.codes"]
        ]
        assert torch.allclose(head(parts, f)[row], torch.cat(chunks)[:11] + start, atol=1e-14)
    values = head(parts, f) - start
    assert not torch.allclose(values[:, :4], values[:, 4:8])  # the code tells chunks apart


# --- scope ------------------------------------------------------------------------------------------------------------


def positions(scope: str, layout: Layout = LAYOUT) -> list[int] | None:
    generated = Scope.of(layout, scope).chosen
    return None if generated is None else generated.tolist()


def test_scopes() -> None:
    """hidden.weight 0..5, hidden.bias 6..7, fc.weight 8..9, fc.bias 10."""
    assert positions("all") is None
    assert positions("last") == positions("fc") == [8, 9, 10]
    assert positions("hidden") == list(range(8))
    assert positions("fc.bias+hidden.bias") == [6, 7, 10]
    assert positions("fc+hidden") is None  # that is everything
    assert Scope.of(LAYOUT, "all").chosen_size == 11
    assert Scope.of(LAYOUT, "last").chosen_size == 3


def test_a_prefix_ends_at_a_dot() -> None:
    layout = Layout(("fc.weight", "fc2.weight"), ((2,), (3,)))
    assert positions("fc", layout) == [0, 1]
    assert all_but_last(layout) == "fc.weight"


def test_the_last_layer_of_a_bare_layer_is_all_of_it() -> None:
    bare = Layout(("weight", "bias"), ((2, 3), (2,)))
    assert positions("last", bare) is None
    with pytest.raises(RequestError, match="single layer"):
        all_but_last(bare)


@pytest.mark.parametrize("scope", ["fcc", "fc+hidde", "hidden.w"])
def test_an_unknown_prefix(scope: str) -> None:
    with pytest.raises(RequestError, match=r"no tensor of the network begins with .*allowed: all, last, .*fc\.weight"):
        Scope.of(LAYOUT, scope)


def test_the_hint_is_the_nearest_name() -> None:
    with pytest.raises(RequestError, match="did you mean 'hidden'"):
        Scope.of(LAYOUT, "hiden")


@pytest.mark.parametrize("scope", ["all", "last", "hidden", "fc.bias+hidden.bias"])
def test_split_and_join(scope: str) -> None:
    made_scope, params = Scope.of(LAYOUT, scope), tensor(4, 11)
    generated, rest = made_scope.split(params)
    assert torch.equal(made_scope.join(generated, rest), params)
    assert generated.shape[1] + (0 if rest is None else rest.shape[1]) == 11
    one, rest_of_one = made_scope.split(params[0])
    assert torch.equal(made_scope.join(generated, rest_of_one)[0], params[0])  # one rest for all rows
    assert torch.equal(made_scope.join(one, rest_of_one), params[0])


def test_all_but_last() -> None:
    assert all_but_last(LAYOUT) == "hidden.weight+hidden.bias"


@pytest.mark.parametrize("scope", ["", "fc+", "+fc"])
def test_an_empty_name(scope: str) -> None:
    with pytest.raises(RequestError, match="has an empty name; allowed: all, last, or names"):
        Scope.of(LAYOUT, scope)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [3, 11])
def test_number_of_weights(kind: str, size: int) -> None:
    head, parts, _ = made(kind, size)
    assert head.weights == sum(part.numel() for part in parts.values())


def test_a_head_that_cannot_fit_is_refused_before_it_is_made() -> None:
    like = torch.zeros(1)
    Head("full", 100, 100_000).refuse_too_large(like, 6)
    Head("low_rank", 100, 11_000_000).refuse_too_large(like, 6)
    with pytest.raises(RequestError, match=r"heads=full: to generate 100,000,000,000 parameters .*low_rank.*scope"):
        Head("full", 100, 100_000_000_000).refuse_too_large(like, 6)
