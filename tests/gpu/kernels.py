"""Operations that torch has for GPUs only, by their formulas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = ["KERNELS"]


def gru_cell(
    from_input: Tensor, from_state: Tensor, h: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The new state, and what the backward pass needs: r, z, n, h and the state's share of n, side by side."""
    (input_r, input_z, input_n), (state_r, state_z, state_n) = from_input.chunk(3, -1), from_state.chunk(3, -1)
    reset, update = torch.sigmoid(input_r + state_r), torch.sigmoid(input_z + state_z)
    new = torch.tanh(input_n + reset * state_n)
    return new + update * (h - new), torch.cat([reset, update, new, h, state_n], dim=-1)


def gru_cell_backward(slope: Tensor, workspace: Tensor, has_bias: bool) -> tuple[Tensor | None, ...]:
    """Slopes in the input's and the state's shares and in h; those in the biases, which nobody here has."""
    reset, update, new, h, state_n = workspace.chunk(5, -1)
    into_new = slope * (1 - update) * (1 - new * new)
    into_reset = into_new * state_n * reset * (1 - reset)
    into_update = slope * (h - new) * update * (1 - update)
    gates = torch.cat([into_reset, into_update, into_new], -1)
    states = torch.cat([into_reset, into_update, into_new * reset], -1)
    return gates, states, slope * update, None, None


_aten = torch.ops.aten
KERNELS: dict[Any, Callable[..., Any]] = {
    _aten._thnn_fused_gru_cell.default: gru_cell,
    _aten._thnn_fused_gru_cell_backward.default: gru_cell_backward,
}
