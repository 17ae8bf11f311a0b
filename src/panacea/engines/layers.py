"""Layers with a set of weights per row: what `nn.Linear`, `nn.Conv2d` ... do, for many clients in one call.

Shapes: R rows (clients), B samples per row. A tensor is either *rows* ``[R, B, ...]`` or *folded* ``[R*B, ...]``;
weights always have the leading R. Each function equals a loop over rows of torch's own layer (tested).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from panacea.engines.products import is_large, product

__all__ = [
    "conv",
    "embedding",
    "fold",
    "group_norm",
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
    flat = x if x.dim() == 3 else x.reshape(x.shape[0], -1, x.shape[-1])
    if weight.shape[0] == 1 and not is_large(flat, weight):  # an ordinary layer is faster than a batch of one
        return F.linear(x.squeeze(0), weight.squeeze(0), None if bias is None else bias.squeeze(0)).unsqueeze(0)
    out = product(flat, weight, bias)
    return out if x.dim() == 3 else out.reshape((*x.shape[:-1], -1))


def linear_columns(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`linear` with features first: ``x [R, I, B], weight [R, O, I], bias [R, O] -> [R, O, B]``."""
    turned = x.transpose(1, 2)
    if is_large(weight, turned):
        out = product(weight, turned)
        return out if bias is None else out + bias.unsqueeze(2)
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
    out = product(patches.transpose(1, 2), weight.flatten(2), bias)
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
