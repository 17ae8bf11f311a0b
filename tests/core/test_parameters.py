"""Flat vectors and their layout."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from panacea.core.parameters import Layout, cosine, squared_norm

SHAPES = {"first": (2, 3), "scalar": (), "vector": (4,), "one": (1,), "deep": (2, 1, 3), "again": ()}
SIZE = 6 + 1 + 4 + 1 + 6 + 1


def layout() -> Layout:
    return Layout.of({name: torch.zeros(shape) for name, shape in SHAPES.items()})


def test_sizes_and_slices_cover_the_vector_in_order():
    found = layout()
    assert found.names == tuple(SHAPES)
    assert found.shapes == tuple(SHAPES.values())
    assert found.sizes == [6, 1, 4, 1, 6, 1]
    assert found.size == SIZE
    ends = [(s.start, s.stop) for s in found.slices.values()]
    assert ends == [(0, 6), (6, 7), (7, 11), (11, 12), (12, 18), (18, 19)]


@pytest.mark.parametrize("lead", [(), (1,), (5,), (2, 3)])
def test_parts_and_join_are_inverse_with_any_leading_dims(lead: tuple[int, ...]):
    vector = torch.arange(float(SIZE * torch.Size(lead).numel())).reshape(*lead, SIZE)
    parts = layout().parts(vector)
    assert [tuple(part.shape) for part in parts] == [lead + shape for shape in SHAPES.values()]
    assert torch.equal(layout().join(parts), vector)
    named = layout().unflatten(vector)
    assert list(named) == list(SHAPES)
    for name, part in named.items():
        assert torch.equal(part.reshape(*lead, -1), vector[..., layout().slices[name]])
    assert torch.equal(layout().flatten(named), vector)
    shuffled = dict(reversed(named.items()))
    assert torch.equal(layout().flatten(shuffled), vector)  # by name, not by place


def test_a_scalar_may_come_first():
    first = Layout(("s", "w"), ((), (2, 2)))
    vector = torch.arange(15.0).reshape(3, 5)
    assert torch.equal(first.join(first.parts(vector)), vector)


def test_parts_of_one_vector_for_many_rows():
    """A download is one vector expanded over the cohort: it has parts without being copied."""
    vector = torch.arange(float(SIZE)).expand(4, -1)
    parts = layout().parts(vector)
    assert torch.equal(parts[0][3], torch.arange(6.0).reshape(2, 3))
    assert parts[0].untyped_storage().data_ptr() == vector.untyped_storage().data_ptr()


def test_the_gradient_of_parts_is_a_join():
    vector = torch.arange(float(SIZE), dtype=torch.float64, requires_grad=True)
    total = sum((i + 1) * part.sum() for i, part in enumerate(layout().parts(vector)))
    (gradient,) = torch.autograd.grad(total, vector)
    assert gradient.tolist() == [1.0] * 6 + [2.0] + [3.0] * 4 + [4.0] + [5.0] * 6 + [6.0]


def test_wrong_lengths_are_refused():
    with pytest.raises(RuntimeError):
        layout().parts(torch.zeros(SIZE + 1))
    with pytest.raises(ValueError, match="zip"):
        layout().join(layout().parts(torch.zeros(SIZE))[:-1])
    with pytest.raises(KeyError):
        layout().flatten({"first": torch.zeros(2, 3)})


def test_an_empty_layout_has_an_empty_vector():
    empty = Layout.of({})
    assert empty.size == 0
    assert empty.flatten({}).shape == (0,)


@pytest.mark.parametrize("lead", [(), (4,), (2, 3)])
def test_norm_and_cosine_over_the_last_axis(lead: tuple[int, ...]):
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(*lead, 7, generator=generator, dtype=torch.float64) for _ in range(2))
    assert squared_norm(a).shape == (*lead, 1)
    torch.testing.assert_close(squared_norm(a).squeeze(-1), a.norm(dim=-1) ** 2)
    assert cosine(a, b).shape == (*lead, 1)
    expected = torch.nn.functional.cosine_similarity(a, b, dim=-1)
    torch.testing.assert_close(cosine(a, b).squeeze(-1), expected)


@pytest.mark.parametrize("scale", [1e-38, 1e-30, 1e-15, 1.0, 1e15, 1e30])
def test_cosine_does_not_depend_on_length(scale: float):
    a, b = torch.tensor([3.0, 4.0]), torch.tensor([4.0, 3.0])
    torch.testing.assert_close(cosine(scale * a, b), torch.tensor([0.96]))
    torch.testing.assert_close(cosine(scale * a, scale * b), torch.tensor([0.96]))
    torch.testing.assert_close(cosine(scale * a, -scale * a), torch.tensor([-1.0]))


def test_cosine_with_nothing_is_zero():
    a = torch.tensor([[1.0, 2.0], [0.0, 0.0]])
    assert cosine(a, a.flip(0)).tolist() == [[0.0], [0.0]]
    assert cosine(torch.zeros(3), torch.zeros(3)).tolist() == [0.0]


def test_cosine_can_be_differentiated():
    a = torch.tensor([0.3, -1.2, 2.0], dtype=torch.float64, requires_grad=True)
    b = torch.tensor([1.0, 0.5, -0.7], dtype=torch.float64)

    def through(vector: Tensor) -> Tensor:
        return cosine(vector, b)

    assert torch.autograd.gradcheck(through, (a,))
