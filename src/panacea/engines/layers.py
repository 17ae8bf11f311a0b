"""Layers with a set of weights per row: what `nn.Linear`, `nn.Conv2d`, `nn.GRU` ... do, for many clients in one call.

Shapes: R rows (clients), B samples per row. A tensor is either *rows* ``[R, B, ...]`` or *folded* ``[R*B, ...]``;
weights always have the leading R. Each function equals a loop over rows of torch's own layer (tested).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

__all__ = [
    "PlainGru",
    "PlainGruCell",
    "conv",
    "embedding",
    "fold",
    "group_norm",
    "gru",
    "gru_cell",
    "layer_norm",
    "linear",
    "split_rows",
]


def fold(x: Tensor, at: int = 0) -> Tensor:
    """``[R, B, ...] -> [R*B, ...]`` (or the two dims from `at` on)."""
    return x.flatten(at, at + 1)


def split_rows(x: Tensor, rows: int, at: int = 0) -> Tensor:
    """The inverse of `fold`."""
    out: Tensor = x.unflatten(at, (rows, -1))
    return out


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``x [R, ..., I], weight [R, O, I], bias [R, O] -> [R, ..., O]``."""
    if weight.shape[0] == 1:  # a block of one client: an ordinary layer is a little faster than a batch of one
        return F.linear(x.squeeze(0), weight.squeeze(0), None if bias is None else bias.squeeze(0)).unsqueeze(0)
    flat = x if x.dim() == 3 else x.reshape(x.shape[0], -1, x.shape[-1])
    out = _product(flat, weight.transpose(1, 2), bias)
    return out if x.dim() == 3 else out.reshape((*x.shape[:-1], -1))


def _product(x: Tensor, turned: Tensor, bias: Tensor | None) -> Tensor:
    """``x [R, B, I], turned [R, I, O], bias [R, O] -> [R, B, O]``."""
    return torch.bmm(x, turned) if bias is None else torch.baddbmm(bias.unsqueeze(1), x, turned)


def linear_columns(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`linear` with features first: ``x [R, I, B], weight [R, O, I], bias [R, O] -> [R, O, B]``."""
    return torch.bmm(weight, x) if bias is None else torch.baddbmm(bias.unsqueeze(2), weight, x)


_SMALL_PATCH = 80  # up to this many numbers under a kernel, gathering patches and multiplying beats a convolution


def conv(x: Tensor, weight: Tensor, bias: Tensor | None, layer: nn.modules.conv._ConvNd) -> Tensor:
    """``x [R*B, C, ...], weight [R, O, C/g, ...] -> [R*B, O, ...]``.

    On a GPU rows become groups of one call. On a CPU a grouped convolution is slower than one per client, so there
    is a loop over rows, in channels-last order (which pooling above all gains from), and kernels that see few numbers,
    such as a first layer on grey images, become one batched matrix product.
    """
    function: Callable[..., Tensor] = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}[weight.dim() - 1]
    rows = weight.shape[0]
    padding: Any = layer.padding
    if layer.padding_mode != "zeros":
        x, padding = F.pad(x, layer._reversed_padding_repeated_twice, mode=layer.padding_mode), 0
    if x.device.type == "cpu":
        images = weight.dim() == 5
        if images and weight[0, 0].numel() <= _SMALL_PATCH and layer.groups == 1 and layer.dilation == (1, 1):
            return _conv_by_patches(x, weight, bias, layer, padding)
        x = x.contiguous(memory_format=torch.channels_last) if images else x
        biases: Sequence[Tensor | None] = [None] * rows if bias is None else _apart(bias)
        pieces = (x,) if rows == 1 else x.chunk(rows)
        outs = [
            function(
                piece,
                own.contiguous(memory_format=torch.channels_last) if images else own,
                shift, layer.stride, padding, layer.dilation, layer.groups,
            )
            for piece, own, shift in zip(pieces, _apart(weight), biases, strict=True)
        ]  # fmt: skip
        return outs[0] if rows == 1 else torch.cat(outs)
    return _conv_by_groups(function, x, weight, bias, layer, padding)


def _apart(rows: Tensor) -> Sequence[Tensor]:
    """The rows of a tensor; that of a single one by a view whose backward pass copies nothing."""
    return (rows.squeeze(0),) if len(rows) == 1 else rows.unbind(0)


def _conv_by_groups(
    function: Callable[..., Tensor],
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    layer: nn.modules.conv._ConvNd,
    padding: Any,
) -> Tensor:
    """Rows as groups of one convolution."""
    rows = weight.shape[0]
    wide = fold(split_rows(x, rows).transpose(0, 1), 1)  # [B, R*C, ...]
    flat_bias = None if bias is None else bias.flatten()
    groups = rows * layer.groups
    out = function(wide, fold(weight), flat_bias, layer.stride, padding, layer.dilation, groups)
    return fold(out.unflatten(1, (rows, -1)).transpose(0, 1))


def _conv_by_patches(
    x: Tensor, weight: Tensor, bias: Tensor | None, layer: nn.modules.conv._ConvNd, padding: Any
) -> Tensor:
    """A 2-d convolution as one batched product of patches ``[R, C*k*k, B*H*W]`` and kernels; channels last.

    Patches lie pixel by pixel: each of the C*k*k rows is the image shifted, so that gathering them copies long lines.
    """
    rows, out_channels, _, height, width = weight.shape
    if padding == "same":
        padding = layer._reversed_padding_repeated_twice
    elif padding in ("valid", 0):
        padding = [0, 0, 0, 0]
    else:
        padding = [padding[1], padding[1], padding[0], padding[0]]
    x = F.pad(x, padding) if any(padding) else x
    patches = x.unfold(2, height, layer.stride[0]).unfold(3, width, layer.stride[1])  # [R*B, C, H, W, k, k]
    batch, _, tall, wide = patches.shape[:4]
    patches = split_rows(patches, rows).permute(0, 2, 5, 6, 1, 3, 4).reshape(rows, -1, batch // rows * tall * wide)
    turned = weight.flatten(2).transpose(1, 2).contiguous()
    out = _product(patches.transpose(1, 2), turned, bias)
    return out.view(batch, tall, wide, out_channels).permute(0, 3, 1, 2)


def layer_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, rows: int, layer: nn.LayerNorm) -> Tensor:
    """``x [R*B, ...]`` over the layer's last dims; affine ``[R, *normalized_shape]``."""
    out = F.layer_norm(x, layer.normalized_shape, None, None, layer.eps)
    return _affine(out, weight, bias, rows)


def group_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, rows: int, layer: nn.GroupNorm) -> Tensor:
    """``x [R*B, C, ...]``; affine ``[R, C]``."""
    out = F.group_norm(x, layer.num_groups, None, None, layer.eps)
    tail = (1,) * (x.dim() - 2)
    shaped = [None if t is None else t.reshape(t.shape + tail) for t in (weight, bias)]
    return _affine(out, shaped[0], shaped[1], rows)


def _affine(x: Tensor, weight: Tensor | None, bias: Tensor | None, rows: int) -> Tensor:
    if weight is None:
        return x
    x = split_rows(x, rows)
    missing = (1,) * (x.dim() - weight.dim())
    x = x * weight.reshape((rows, *missing, *weight.shape[1:]))
    if bias is not None:
        x = x + bias.reshape((rows, *missing, *bias.shape[1:]))
    return fold(x)


def embedding(x: Tensor, weight: Tensor, rows: int, layer: nn.Embedding) -> Tensor:
    """``x [R*B, ...]`` integers, ``weight [R, V, D] -> [R*B, ..., D]``; the padding entry, if any, has no gradient."""
    if layer.padding_idx is not None:
        padding = torch.arange(weight.shape[1], device=x.device).unsqueeze(1) == layer.padding_idx
        weight = torch.where(padding, weight.detach(), weight)
    index = x.reshape(rows, -1) + torch.arange(rows, device=x.device).unsqueeze(1) * weight.shape[1]
    return F.embedding(index, fold(weight)).reshape((*x.shape, -1))


def gru_cell(x: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None, b_hh: Tensor | None) -> Tensor:
    """One GRU step: ``x [..., B, I], h [..., B, H]``, weights ``[..., 3H, I | H]``, biases ``[..., 3H]``."""
    return _gates(_gate(x, w_ih, b_ih), h, w_hh, b_hh)


def _gate(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    turned = weight.transpose(-1, -2)
    if bias is None:
        return x @ turned
    return torch.baddbmm(bias.unsqueeze(-2), x, turned) if x.dim() == 3 else x @ turned + bias.unsqueeze(-2)


def _gates(from_input: Tensor, h: Tensor, w_hh: Tensor, b_hh: Tensor | None) -> Tensor:
    """torch's GRU: r = s(a_r + b_r), z = s(a_z + b_z), n = tanh(a_n + r b_n), h <- n + z (h - n)."""  # noqa: D403
    size = h.shape[-1]
    from_state = _gate(h, w_hh, b_hh)
    if h.is_cuda and h.dim() == 3:
        return _gates_on_gpu(from_input, from_state, h)
    # the backward pass of a split is one join; that of a slice writes zeros first and is added to the others
    input_both, input_new = from_input.split((2 * size, size), dim=-1)
    state_both, state_new = from_state.split((2 * size, size), dim=-1)
    reset, update = torch.sigmoid(input_both + state_both).split(size, dim=-1)
    new = torch.tanh(input_new + reset * state_new)
    return torch.lerp(new, h.to(new.dtype), update)  # the first state is exact even where the rest is not


def _gates_on_gpu(from_input: Tensor, from_state: Tensor, h: Tensor) -> Tensor:
    """The same, ``[R, B, 3H], [R, B, 3H], [R, B, H]``, by the kernel of torch's own cell.

    It takes one launch, and one in the backward pass; the formulas take one for every operation in them.
    """
    gates = fold(from_input), fold(from_state), fold(h.to(from_state.dtype))
    return split_rows(torch.ops.aten._thnn_fused_gru_cell(*gates)[0], h.shape[0])


def _input_gates(x: Tensor, weight: Tensor, bias: Tensor | None) -> Iterable[Tensor]:
    """The inputs' share of the gates, ``[..., B, T, I] -> T x [..., B, 3H]``.

    On a GPU one product serves all time steps; on a CPU that of one step is still in the cache when it is used.
    """
    if x.is_cuda:
        together: Tensor = _gate(x.flatten(-3, -2), weight, bias).unflatten(-2, x.shape[-3:-1])
        return together.unbind(-2)
    return (_gate(step, weight, bias) for step in x.unbind(-2))


def gru(x: Tensor, h: Tensor | None, weights: list[list[Tensor | None]]) -> tuple[Tensor, Tensor]:
    """Stacked GRU layers with leading dims ``...``.

    Args:
        x: ``[..., B, T, I]``.
        h: ``[layers, ..., B, H]`` or None for zeros.
        weights: per layer w_ih, w_hh, b_ih, b_hh.

    Returns:
        outputs ``[..., B, T, H]`` and last states ``[layers, ..., B, H]``.
    """
    last = []
    for depth, (w_ih, w_hh, b_ih, b_hh) in enumerate(weights):
        assert w_ih is not None
        assert w_hh is not None
        lead = x.shape[:-2]
        state = x.new_zeros((*lead, w_hh.shape[-1])) if h is None else h[depth]
        outputs = []
        for gate in _input_gates(x, w_ih, b_ih):
            state = _gates(gate, state, w_hh, b_hh)
            outputs.append(state)
        x = torch.stack(outputs, dim=-2)
        last.append(state)
    return x, torch.stack(last)


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
        return gru_cell(x, x.new_zeros((*x.shape[:-1], self.size)) if h is None else h, *own)  # type: ignore[arg-type]


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
        weights = [[getattr(self, f"{name}_l{d}", None) for name in names] for d in range(self.layers)]
        out, last = gru(x, h, weights)
        return out if self.batch_first else out.transpose(0, 1), last


def is_plain_gru(module: nn.Module) -> bool:
    """Whether `PlainGru` covers this module: one direction, no projection, no dropout between layers."""
    return isinstance(module, nn.GRU) and not module.bidirectional and not (module.dropout and module.num_layers > 1)
