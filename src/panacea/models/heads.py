"""Output shapes: how a vector of outputs becomes a sample's target shape, the same way in every network."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["Outputs", "output_shape", "output_width", "shape_output"]

Outputs = int | tuple[int, ...]


def output_shape(outputs: Outputs) -> tuple[int, ...]:
    """One sample's output shape: ``(10,)`` for 10 classes, a target's own shape otherwise."""
    return (outputs,) if isinstance(outputs, int) else tuple(outputs)


def output_width(outputs: Outputs) -> int:
    """Width of the last linear layer: the number of values in one sample's output.

    >>> output_width(10), output_width((3, 4)), output_width(())
    (10, 12, 1)
    """
    return math.prod(output_shape(outputs))


def shape_output(x: Tensor, outputs: Outputs) -> Tensor:
    """``[batch, width]`` to ``[batch, *outputs]``; an empty shape (one number a sample) gives ``[batch]``."""
    shape = output_shape(outputs)
    if len(shape) == 1:
        return x
    return torch.unflatten(x, -1, shape) if shape else x.squeeze(-1)
