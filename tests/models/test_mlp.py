"""Mlp: sizes of the paper's networks, shapes, and the formula itself."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from panacea.models import Mlp


def count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(("inputs", "outputs", "parameters"), [((2,), 2, 354), ((6,), (6,), 486)])
def test_parameter_counts_of_fl60_and_tpt48(inputs: tuple[int, ...], outputs: int | tuple[int, ...], parameters: int):
    assert count(Mlp(inputs, outputs)) == parameters


@pytest.mark.parametrize(
    ("inputs", "outputs", "expected"),
    [((5,), 3, (3,)), ((2, 3, 4), 3, (3,)), ((5,), (2, 3), (2, 3)), ((5,), (), ()), ((12, 2), (4,), (4,))],
)
def test_shapes(inputs: tuple[int, ...], outputs: int | tuple[int, ...], expected: tuple[int, ...]):
    assert Mlp(inputs, outputs, (7,))(torch.rand(9, *inputs)).shape == (9, *expected)


def test_forward_is_the_formula():
    model = Mlp((3,), 2, (5, 4))
    first, second = model.hidden[0], model.hidden[2]
    x = torch.randn(6, 3)
    by_hand = (x @ first.weight.T + first.bias).clamp(min=0)
    by_hand = (by_hand @ second.weight.T + second.bias).clamp(min=0)
    by_hand = by_hand @ model.fc.weight.T + model.fc.bias
    torch.testing.assert_close(model(x), by_hand)


def test_a_matrix_output_is_the_vector_output_reshaped():
    model, flat = Mlp((3,), (2, 4)), Mlp((3,), 8)
    flat.load_state_dict(model.state_dict())
    x = torch.randn(5, 3)
    assert torch.equal(model(x), flat(x).reshape(5, 2, 4))


def test_no_hidden_layer_is_a_linear_model():
    model = Mlp((2, 3), 4, ())
    x = torch.randn(5, 2, 3)
    torch.testing.assert_close(model(x), x.reshape(5, 6) @ model.fc.weight.T + model.fc.bias)
