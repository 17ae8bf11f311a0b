"""Multi-layer perceptron: the target network of FL-60 and TPT-48, and of any vector input."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from panacea.models.heads import Outputs, output_width, shape_output

__all__ = ["Mlp"]


class Mlp(nn.Module):
    """Linear layers with ReLU between them.

    Source: the Panacea experiments: 2-16-16-2 (354 parameters) on FL-60, 6-16-16-6 (486) on TPT-48.

    Args:
        inputs: shape of one sample; more than one axis is flattened.
        outputs: number of outputs, or the shape of one sample's output.
        hidden: widths of the hidden layers; none gives a linear model.
        norm: ``batch`` for batch normalisation before each ReLU.

    Shapes:
        ``[batch, *inputs]`` to ``[batch, *outputs]``.
    """

    def __init__(
        self, inputs: tuple[int, ...], outputs: Outputs, hidden: Sequence[int] = (16, 16), norm: str = "none"
    ) -> None:
        super().__init__()
        self.flatten = len(inputs) > 1
        self.outputs = outputs
        widths = [math.prod(inputs), *hidden]
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise(widths):
            normed = [nn.BatchNorm1d(after)] if norm == "batch" else []
            layers += [nn.Linear(before, after), *normed, nn.ReLU()]
        self.hidden = nn.Sequential(*layers)
        self.fc = nn.Linear(widths[-1], output_width(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Outputs ``[batch, *outputs]`` of inputs ``[batch, *inputs]``."""
        if self.flatten:
            x = torch.flatten(x, 1)
        return shape_output(self.fc(self.hidden(x)), self.outputs)
