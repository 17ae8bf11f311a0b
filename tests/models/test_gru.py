"""GruSeq2Seq: size, the unrolled decoder by hand, and the future time of day."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from panacea.errors import RequestError
from panacea.models import GruSeq2Seq


def gru_step(x: Tensor, h: Tensor, weights: tuple[Tensor, Tensor, Tensor, Tensor]) -> Tensor:
    """One GRU step written out (reset, update, new; torch's order)."""
    w_ih, w_hh, b_ih, b_hh = weights
    from_x, from_h = (x @ w_ih.T + b_ih).chunk(3, dim=1), (h @ w_hh.T + b_hh).chunk(3, dim=1)
    reset, update = torch.sigmoid(from_x[0] + from_h[0]), torch.sigmoid(from_x[1] + from_h[1])
    new = torch.tanh(from_x[2] + reset * from_h[2])
    return (1 - update) * new + update * h


def layer(gru: nn.Module, number: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    suffix = "" if isinstance(gru, nn.GRUCell) else f"_l{number}"
    return tuple(getattr(gru, name + suffix) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))


def unrolled(model: GruSeq2Seq, x: Tensor, known: list[Tensor]) -> Tensor:
    """The whole network by hand; known[k] are features 1 .. of future step k + 1."""
    hidden = model.fc.in_features
    states = [torch.zeros(len(x), hidden, dtype=x.dtype) for _ in range(model.layers)]

    def advance(gru: nn.Module, value: Tensor) -> Tensor:
        for number in range(model.layers):
            states[number] = value = gru_step(value, states[number], layer(gru, number))
        return value

    for t in range(x.shape[1]):
        advance(model.encoder, x[:, t])
    inputs, forecasts = x[:, -1], []
    for k in range(model.horizon):
        forecast = advance(model.decoder, inputs) @ model.fc.weight.T + model.fc.bias
        forecasts.append(forecast)
        inputs = torch.cat([forecast, known[k]], dim=1)
    return torch.cat(forecasts, dim=1)


@pytest.mark.parametrize(
    ("input_size", "hidden", "layers", "parameters"), [(2, 100, 1, 62_501), (1, 100, 1, 61_901), (2, 200, 2, 727_401)]
)
def test_parameter_counts(input_size: int, hidden: int, layers: int, parameters: int):
    model = GruSeq2Seq(input_size, hidden, layers)
    assert sum(p.numel() for p in model.parameters()) == parameters


@pytest.mark.parametrize("layers", [1, 2])
def test_equals_the_network_unrolled_by_hand(layers: int):
    torch.manual_seed(0)
    model = GruSeq2Seq(2, 5, layers, horizon=4).double()
    start = torch.tensor([0.2, 0.97, 0.5], dtype=torch.float64)  # the second window passes midnight
    time = torch.remainder(start[:, None] + torch.arange(10) / 288, 1.0)
    x = torch.stack([torch.rand(3, 6, dtype=torch.float64), time[:, :6]], dim=2)
    known = [time[:, 6 + k : 7 + k] for k in range(4)]
    torch.testing.assert_close(model(x), unrolled(model, x, known), rtol=1e-9, atol=1e-9)


def test_one_feature_has_no_time_of_day():
    model = GruSeq2Seq(1, 5, horizon=3)
    x = torch.rand(4, 6, 1)
    torch.testing.assert_close(model(x), unrolled(model, x, [x[:, -1, 1:]] * 3))


def test_further_features_keep_their_last_value():
    model = GruSeq2Seq(3, 5, horizon=3)
    x = torch.rand(4, 6, 3)
    torch.testing.assert_close(model(x), unrolled(model, x, [x[:, -1, 1:]] * 3))


def test_time_of_day_with_three_features():
    model = GruSeq2Seq(3, 5, horizon=3, time_of_day=True)
    x = torch.rand(4, 6, 3)
    x[:, :, 1] = 0.25 + torch.arange(6) / 24
    known = [torch.cat([torch.full((4, 1), 0.25 + (6 + k) / 24), x[:, -1, 2:]], dim=1) for k in range(3)]
    torch.testing.assert_close(model(x), unrolled(model, x, known))


def test_every_midnight_is_zero_in_float32():
    """Rounding must not put midnight at the other end of [0, 1)."""
    time = (torch.arange(288 + 12, dtype=torch.float64) / 288 % 1).float()
    windows = time.unfold(0, 12, 1)[:288]
    x = torch.stack([torch.zeros_like(windows), windows], dim=2)
    model = GruSeq2Seq(2, 3)
    for step in range(1, 12):
        future = torch.arange(288, dtype=torch.float64) + 11 + step
        (tod,) = model._known(x, step)
        torch.testing.assert_close(tod[:, 0].double(), future / 288 % 1, rtol=0, atol=1e-5)


def test_constant_time_of_day_stays():
    x = torch.full((3, 12, 2), 0.5)
    (tod,) = GruSeq2Seq(2, 3)._known(x, 7)
    torch.testing.assert_close(tod, torch.full((3, 1), 0.5))


@pytest.mark.parametrize("horizon", [1, 3, 12])
def test_output_shape(horizon: int):
    assert GruSeq2Seq(2, 8, horizon=horizon)(torch.rand(5, 12, 2)).shape == (5, horizon)


def test_every_parameter_gets_a_gradient():
    model = GruSeq2Seq(2, 8, horizon=3)
    model(torch.rand(5, 12, 2)).square().mean().backward()
    assert all(p.grad is not None and bool(p.grad.abs().sum() > 0) for p in model.parameters())


def test_time_of_day_needs_a_second_feature():
    with pytest.raises(RequestError, match="time_of_day=true"):
        GruSeq2Seq(1, time_of_day=True)
