"""`nn.GRU` and `nn.GRUCell` with a set of weights per row, and for one client.

torch's gates, with a the inputs' share and b the state's:

    r = s(a_r + b_r)    z = s(a_z + b_z)    n = tanh(a_n + r b_n)    h <- n + z (h - n)

On a GPU they are a product of the inputs, one of the state, and torch's own kernel for the rest. On a CPU the state,
the inputs and a 1 for the biases lie side by side, so that a_r + b_r, a_z + b_z and b_n are one product, whose result
needs no copies and no sums; only a_n, which r must not touch, is a small one of its own. And tanh(v) = 2 s(2v) - 1,
for torch's sigmoid takes a fifth of the time of its tanh: the weights of n are doubled beforehand, which is exact. What
comes out is as near to tanh as a float32 near 1 can be, 1e-7; in bfloat16 that would be 4e-3, so there it is tanh.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from panacea.engines.layers import fold, split_rows
from panacea.engines.products import product

__all__ = ["Gates", "PlainGru", "PlainGruCell", "gates_of", "gru", "gru_cell", "is_plain_gru"]


_EVEN = 8  # numbers in a register: a product over 103 of them takes a fifth longer than one over 104


class Gates(NamedTuple):
    """A layer's weights as its steps use them, with leading dims ``...``.

    Attributes:
        inputs: ``[..., 3H, I]`` on a GPU; else ``[..., H, I + ones]``, of the gate n only and doubled.
        state: ``[..., 3H, H]`` on a GPU; else ``[..., 3H, H + I + ones]``.
        input_bias, state_bias: ``[..., 3H]`` on a GPU.
        ones: how many stand beside the inputs: for the biases, and so that a product has a length it is fast for.
        by_kernel: whether they are for a GPU.
    """

    inputs: Tensor
    state: Tensor
    input_bias: Tensor | None
    state_bias: Tensor | None
    ones: int
    by_kernel: bool


def gates_of(w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None, b_hh: Tensor | None) -> Gates:
    """Of weights ``[..., 3H, I | H]`` and biases ``[..., 3H]``; once for all steps."""
    if w_hh.is_cuda and w_hh.dim() == 3:
        return Gates(w_ih, w_hh, b_ih, b_hh, 0, True)
    size, given = w_hh.shape[-1], w_ih.shape[-1]
    biased = b_ih is not None and b_hh is not None
    ones = int(biased) + -(size + given + int(biased)) % _EVEN
    # the backward pass of a split is one join; that of a slice writes zeros first and is added to the others
    (input_both, input_new), (state_both, state_new) = (w.split((2 * size, size), dim=-2) for w in (w_ih, w_hh))
    both, new, inputs = [state_both, input_both], [2 * state_new, torch.zeros_like(input_new)], [2 * input_new]
    if b_ih is not None and b_hh is not None:
        (in_both, in_new), (own_both, own_new) = (b.unsqueeze(-1).split((2 * size, size), dim=-2) for b in (b_ih, b_hh))
        both, new, inputs = [*both, in_both + own_both], [*new, 2 * own_new], [*inputs, 2 * in_new]
    nothing = w_hh.new_zeros((*w_hh.shape[:-1], ones - int(biased)))  # weights of the other ones
    nothing_both, nothing_new = nothing.split((2 * size, size), dim=-2)
    rows = [torch.cat([*both, nothing_both], dim=-1), torch.cat([*new, nothing_new], dim=-1)]
    return Gates(torch.cat([*inputs, nothing_new], dim=-1), torch.cat(rows, dim=-2), None, None, ones, False)


def gru_cell(x: Tensor, h: Tensor, gates: Gates) -> Tensor:
    """One GRU step: ``x [..., B, I], h [..., B, H]``."""
    if gates.by_kernel:
        return _step_by_kernel(_gate(x, gates.inputs, gates.input_bias), h, gates)
    return _step(_with_ones(x, gates), h, gates)


def _with_ones(x: Tensor, gates: Gates) -> Tensor:
    return torch.cat([x, x.new_ones((*x.shape[:-1], gates.ones))], dim=-1) if gates.ones else x


def _step(x: Tensor, h: Tensor, gates: Gates) -> Tensor:
    """A step with inputs ``[..., B, I + ones]``."""
    size = h.shape[-1]
    both, state_new = _gate(torch.cat([h, x], dim=-1), gates.state, None).split((2 * size, size), dim=-1)
    reset, update = torch.sigmoid(both).split(size, dim=-1)
    doubled = _gate(x, gates.inputs, None) + reset * state_new
    exact = doubled.dtype in (torch.float32, torch.float64)
    new = torch.rsub(torch.sigmoid(doubled), -1, alpha=-2) if exact else torch.tanh(doubled / 2)
    out: Tensor = new + update * (h.to(new.dtype) - new)  # the first state is exact even where the rest is not
    return out


def _gate(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if x.dim() == 3:
        return product(x, weight, bias)
    out = x @ weight.transpose(-1, -2)
    return out if bias is None else out + bias.unsqueeze(-2)


def _step_by_kernel(from_input: Tensor, h: Tensor, gates: Gates) -> Tensor:
    """The same, ``[R, B, 3H], [R, B, H]``, by the kernel of torch's own cell.

    It takes one launch, and one in the backward pass; the formulas take one for every operation in them.
    """
    from_state = _gate(h, gates.state, gates.state_bias)
    shares = fold(from_input), fold(from_state), fold(h.to(from_state.dtype))
    return split_rows(torch.ops.aten._thnn_fused_gru_cell(*shares)[0], h.shape[0])


def gru(x: Tensor, h: Tensor | None, layers: list[Gates]) -> tuple[Tensor, Tensor]:
    """Stacked GRU layers with leading dims ``...``.

    Args:
        x: ``[..., B, T, I]``.
        h: ``[layers, ..., B, H]`` or None for zeros.
        layers: the weights of each.

    Returns:
        outputs ``[..., B, T, H]`` and last states ``[layers, ..., B, H]``.
    """
    last = []
    for depth, gates in enumerate(layers):
        size = gates.state.shape[-2] // 3
        state = x.new_zeros((*x.shape[:-2], size)) if h is None else h[depth]
        outputs = []
        for step in _steps(x, gates):
            state = _step_by_kernel(step, state, gates) if gates.by_kernel else _step(step, state, gates)
            outputs.append(state)
        x = torch.stack(outputs, dim=-2)
        last.append(state)
    return x, torch.stack(last)


def _steps(x: Tensor, gates: Gates) -> Iterable[Tensor]:
    """The inputs of each time step, or on a GPU their share of the gates, for which one product serves all of them."""
    if gates.by_kernel:
        together: Tensor = _gate(x.flatten(-3, -2), gates.inputs, gates.input_bias).unflatten(-2, x.shape[-3:-1])
        return together.unbind(-2)
    return _with_ones(x, gates).unbind(-2)


class PlainGruCell(nn.Module):
    """`nn.GRUCell` from plain operations with torch's parameter names."""

    def __init__(self, original: nn.GRUCell) -> None:
        super().__init__()
        for name, parameter in original.named_parameters(recurse=False):
            self.register_parameter(name, parameter)
        self.size = original.hidden_size

    def forward(self, x: Tensor, h: Tensor | None = None) -> Tensor:
        """``[B, I], [B, H] -> [B, H]``."""
        own = (getattr(self, name, None) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
        state = x.new_zeros((*x.shape[:-1], self.size)) if h is None else h
        return gru_cell(x, state, gates_of(*own))  # type: ignore[arg-type]


class PlainGru(nn.Module):
    """`nn.GRU` from plain operations with torch's parameter names; unlike it, it can be vmapped in every mode."""

    def __init__(self, original: nn.GRU) -> None:
        super().__init__()
        for name, parameter in original.named_parameters(recurse=False):
            self.register_parameter(name, parameter)
        self.layers, self.bias, self.batch_first = original.num_layers, original.bias, original.batch_first
        self.input_size, self.hidden_size, self.num_layers = original.input_size, original.hidden_size, self.layers

    def forward(self, x: Tensor, h: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """``[B, T, I]`` (or ``[T, B, I]`` unless batch_first)."""
        x = x if self.batch_first else x.transpose(0, 1)
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        own = ([getattr(self, f"{name}_l{depth}", None) for name in names] for depth in range(self.layers))
        out, last = gru(x, h, [gates_of(*layer) for layer in own])  # type: ignore[arg-type]
        return out if self.batch_first else out.transpose(0, 1), last


def is_plain_gru(module: nn.Module) -> bool:
    """Whether `PlainGru` covers this module: one direction, no projection, no dropout between layers."""
    return isinstance(module, nn.GRU) and not module.bidirectional and not (module.dropout and module.num_layers > 1)
