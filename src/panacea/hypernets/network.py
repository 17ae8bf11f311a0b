r"""The hypernetwork: client embeddings in, models out.

    h0 [n, d0]  --encoder along the graph-->  z [n, d]  --trunk MLP-->  features  --head-->  theta [rows, P_g]

All its weights are one flat vector with a layout, as every model here; the table of embeddings is apart, because of a
large table only the rows near the round's clients are touched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from panacea.core.parameters import Layout
from panacea.hypernets.encoders import Encoder, linear_init
from panacea.hypernets.heads import Head
from panacea.hypernets.links import link_init
from panacea.hypernets.plan import Plan

__all__ = ["Hypernetwork"]


@dataclass(frozen=True)
class Hypernetwork:
    """The shape of a hypernetwork; its weights are passed in.

    Attributes:
        encoder: along the graph; with no layers the embeddings are the trunk's inputs as they are.
        trunk: widths of the trunk's linear layers, ReLU between them.
        head: from the trunk's features to parameters.
        last_relu: whether ReLU also follows the trunk's last layer.
        transform: width of the graph generator's transform, 0 for none.
    """

    encoder: Encoder
    trunk: tuple[int, ...]
    head: Head
    last_relu: bool = True
    transform: int = 0

    def init(self, start: Tensor, generator: torch.Generator) -> tuple[Layout, Tensor]:
        """The layout of the weights, and fresh ones; `start` is the model the head's bias is set to."""
        parts = self.encoder.init(generator)
        inputs = self.encoder.outputs
        for layer, width in enumerate(self.trunk):
            weight = linear_init(width, inputs, generator)
            parts[f"trunk.{layer}.weight"], parts[f"trunk.{layer}.bias"] = weight[:, :-1], weight[:, -1]
            inputs = width
        parts |= self.head.init(start, generator)
        if self.transform:
            parts |= link_init(self.encoder.outputs, self.transform, generator)
        layout = Layout.of(parts)
        return layout, layout.flatten({name: part.to(start) for name, part in parts.items()})

    def encode(self, parts: Mapping[str, Tensor], h: Tensor, plan: Plan) -> Tensor:
        """``[inputs, d0] -> [outputs, d]``."""
        return self.encoder(parts, h, plan.blocks)

    def features(self, parts: Mapping[str, Tensor], z: Tensor) -> Tensor:
        """``[rows, d] -> [rows, f]``: what the head is given."""
        for layer in range(len(self.trunk)):
            z = functional.linear(z, parts[f"trunk.{layer}.weight"], parts[f"trunk.{layer}.bias"])
            if self.last_relu or layer < len(self.trunk) - 1:
                z = torch.relu(z)
        return z

    def models(self, parts: Mapping[str, Tensor], z: Tensor) -> Tensor:
        """``[rows, d] -> [rows, P_g]``."""
        return self.head(parts, self.features(parts, z))
