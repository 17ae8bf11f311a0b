"""GRU encoder-decoder: the target network of the traffic data."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from panacea.errors import RequestError

__all__ = ["GruSeq2Seq"]

# A time of day this close below midnight (in days, about 9 s) counts as midnight, so that rounding in
# `last + k * step` cannot turn 0.0 into 0.9999999, the other end of the feature's range.
MIDNIGHT = 1e-4


class GruSeq2Seq(nn.Module):
    """Encoder-decoder of GRUs that forecasts feature 0 of a window, one step at a time, fed with its own forecasts.

    Source: Meng et al., "Cross-Node Federated Graph Neural Network for Spatio-Temporal Data Modeling", KDD 2021,
    https://arxiv.org/abs/2106.05223; free-running in training too (no scheduled sampling).
    With input 2, hidden 100, one layer: 2 * 31,200 + 101 = 62,501 parameters.

    The decoder's first input is the last observed sample. Its input at step k is (forecast of step k, known features
    of step k). The known features need not be fed, they follow from the window:

    - feature 1 is the time of day as a share of the day in [0, 1) (``time_of_day``): it advances by the difference of
      its last two observed values, modulo 1: ``tod_k = (tod_last + k * ((tod_last - tod_before) mod 1)) mod 1``;
    - any further feature keeps its last observed value; with ``input_size`` 1 there is none.

    Args:
        input_size: features a step; feature 0 is what is forecast.
        hidden: width of the GRU state.
        layers: GRU layers of the encoder and of the decoder.
        horizon: steps to forecast.
        time_of_day: whether feature 1 is the time of day; default: only when there are exactly two features.

    Shapes:
        ``[batch, window, input_size]`` to ``[batch, horizon]``.
    """

    def __init__(
        self,
        input_size: int = 2,
        hidden: int = 100,
        layers: int = 1,
        horizon: int = 12,
        time_of_day: bool | None = None,
    ) -> None:
        super().__init__()
        if time_of_day and input_size < 2:
            raise RequestError("model.time_of_day=true: the time of day is feature 1, but the inputs have one feature")
        self.input_size = input_size
        self.layers = layers
        self.horizon = horizon
        self.time_of_day = input_size == 2 if time_of_day is None else time_of_day
        self.encoder = nn.GRU(input_size, hidden, num_layers=layers, batch_first=True)
        self.decoder: nn.Module = (
            nn.GRUCell(input_size, hidden)
            if layers == 1
            else nn.GRU(input_size, hidden, num_layers=layers, batch_first=True)
        )
        self.fc = nn.Linear(hidden, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Forecasts ``[batch, horizon]`` of windows ``[batch, window, input_size]``."""
        encoded = self.encoder(x)
        # with one layer the last output is the state, and the batch stays the first axis
        state = encoded[0][:, -1] if self.layers == 1 else encoded[1]
        inputs = x[:, -1]
        forecasts: list[Tensor] = []
        for step in range(1, self.horizon + 1):
            if self.layers == 1:
                state = self.decoder(inputs, state)
                top = state
            else:
                decoded = self.decoder(inputs.unsqueeze(1), state)
                top, state = decoded[0][:, -1], decoded[1]
            value = self.fc(top)
            forecasts.append(value)
            if step < self.horizon:
                inputs = torch.cat((value, *self._known(x, step)), dim=1)
        return torch.cat(forecasts, dim=1)

    def _known(self, x: Tensor, step: int) -> list[Tensor]:
        """Features 1 .. of a future step (1 = the first after the window), each block ``[batch, features]``."""
        known: list[Tensor] = []
        held = 1
        if self.time_of_day:
            last = x[:, -1, 1:2]
            advance = torch.remainder(last - x[:, -2, 1:2], 1.0)
            known.append(torch.remainder(last + step * advance + MIDNIGHT, 1.0) - MIDNIGHT)
            held = 2
        if self.input_size > held:
            known.append(x[:, -1, held:])
        return known
