r"""Graph encoders: client embeddings ``h [n, d]`` in, embeddings that know their neighbourhood out.

Layer l maps ``h`` to (N(i) the neighbours of i, w their weights):

    mean   W (h_i + sum_j w_ij h_j) / (1 + sum_j w_ij) + b            mean over neighbours and self, the theory's layer
    gcn    W sum_{j in N(i) + i} w_ij h_j / sqrt(d_i d_j) + b         Kipf and Welling 2017
    sage   W_1 (sum_j w_ij h_j / sum_j w_ij) + b + W_2 h_i            Hamilton et al. 2017
    gat    sum_{j in N(i) + i} a_ij W h_j + b                         Velickovic et al. 2018, one head
    gated  GRU(sum_j w_ij W_l h_j, h_i)                               Li et al. 2016, as in the first GHN

with ReLU between layers (none after the last, none for gated, whose GRU is its nonlinearity). Each equals the layer of
torch_geometric of that name (tests/hypernets/test_encoders.py). Two options beside the papers:

    norm       every layer's input and the result are layer-normalised (without gain and offset)
    residual   h_{l+1} = h_l + layer(h_l), where the widths agree: the client's own code is not averaged away

Averaging over neighbours L times makes all clients of a connected graph alike ("over-smoothing"), and then the
hypernetwork generates one model for all; `residual` keeps them apart, `norm` keeps the sum bounded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from panacea.hypernets.propagation import Block, Mixing

__all__ = ["MIXING", "Encoder", "EncoderKind", "linear_init"]

EncoderKind: TypeAlias = Literal["mean", "gcn", "sage", "gat", "gated"]
MIXING: dict[str, Mixing] = {
    "mean": "mean", "gcn": "symmetric", "sage": "neighbours", "gat": "loops", "gated": "sum",
}  # fmt: skip
Parts: TypeAlias = Mapping[str, Tensor]


def linear_init(outputs: int, inputs: int, generator: torch.Generator) -> Tensor:
    """An ordinary Linear weight with its bias as the last column, ``[outputs, inputs + 1]``: U(+-1/sqrt(inputs))."""
    bound = 1 / math.sqrt(inputs)
    return (2 * torch.rand(outputs, inputs + 1, generator=generator, dtype=torch.float64) - 1) * bound


@dataclass(frozen=True)
class Encoder:
    """The shape of an encoder; its weights are passed in.

    Attributes:
        kind: the layer.
        layers: how many; 0 makes the encoder the identity.
        inputs: width of the initial embeddings.
        width: width of all later ones.
        residual: see the module.
        norm: see the module.
    """

    kind: EncoderKind
    layers: int
    inputs: int
    width: int
    residual: bool = False
    norm: bool = False

    @property
    def outputs(self) -> int:
        """Width of the result."""
        return self.width if self.layers else self.inputs

    def init(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Fresh weights by name."""
        parts: dict[str, Tensor] = {}
        inputs = self.width if self.kind == "gated" else self.inputs
        for layer in range(self.layers):
            weight = linear_init(self.width, inputs, generator)
            if self.kind == "gated":
                parts[f"encoder.{layer}.weight"] = weight[:, :-1]
            else:
                parts[f"encoder.{layer}.weight"], parts[f"encoder.{layer}.bias"] = weight[:, :-1], weight[:, -1]
            if self.kind == "sage":
                parts[f"encoder.{layer}.own"] = linear_init(self.width, inputs, generator)[:, :-1]
            if self.kind == "gat":
                attention = linear_init(2, self.width, generator)
                parts[f"encoder.{layer}.attention"] = attention[:, :-1]
            inputs = self.width
        if self.kind == "gated" and self.layers:
            gates = linear_init(3 * self.width, self.width, generator)
            recurrent = linear_init(3 * self.width, self.width, generator)
            parts |= {"encoder.gru.weight_ih": gates[:, :-1], "encoder.gru.bias_ih": gates[:, -1]}
            parts |= {"encoder.gru.weight_hh": recurrent[:, :-1], "encoder.gru.bias_hh": recurrent[:, -1]}
        return parts

    def __call__(self, parts: Parts, h: Tensor, blocks: Sequence[Block]) -> Tensor:
        """``[n_in of the first block, inputs] -> [n_out of the last block, outputs]``."""
        if self.kind == "gated" and self.layers and h.shape[-1] < self.width:
            h = functional.pad(h, (0, self.width - h.shape[-1]))
        for layer, block in enumerate(blocks):
            given = functional.layer_norm(h, h.shape[-1:]) if self.norm else h
            new = self._layer(parts, layer, given, block)
            if layer < self.layers - 1 and self.kind != "gated":
                new = torch.relu(new)
            h = block.listeners(h) + new if self.residual and h.shape[-1] == new.shape[-1] else new
        return functional.layer_norm(h, h.shape[-1:]) if self.norm and self.layers else h

    def _layer(self, parts: Parts, layer: int, h: Tensor, block: Block) -> Tensor:
        weight = parts[f"encoder.{layer}.weight"]
        if self.kind == "gated":
            return torch.gru_cell(
                block.mix(h @ weight.T),
                block.listeners(h),
                parts["encoder.gru.weight_ih"],
                parts["encoder.gru.weight_hh"],
                parts["encoder.gru.bias_ih"],
                parts["encoder.gru.bias_hh"],
            )
        bias = parts[f"encoder.{layer}.bias"]
        if self.kind == "gat":
            return _attend(h @ weight.T, parts[f"encoder.{layer}.attention"], block) + bias
        new = functional.linear(block.mix(h), weight, bias)
        if self.kind == "sage":
            return torch.addmm(new, block.listeners(h), parts[f"encoder.{layer}.own"].T)
        return new


def _attend(h: Tensor, attention: Tensor, block: Block) -> Tensor:
    """GAT's weighted sum: softmax over each listener's arcs of leaky_relu(a_1 . h_j + a_2 . h_i)."""
    spoken, heard = (h @ attention.T).unbind(-1)  # [n_in] each
    sources, targets = block.arcs
    raw = functional.leaky_relu(spoken[sources] + block.listeners(heard)[targets], 0.2)
    top = raw.detach().new_full((block.n_out,), -torch.inf).scatter_reduce(0, targets, raw.detach(), "amax")
    share = torch.exp(raw - top[targets])
    total = share.new_zeros(block.n_out).index_add(0, targets, share)
    share = share / total[targets]
    told = share.unsqueeze(-1) * h[sources]
    return h.new_zeros(block.n_out, h.shape[-1]).index_add(0, targets, told)
