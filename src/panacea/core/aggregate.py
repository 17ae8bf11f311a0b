"""Averages over the rows of a cohort."""

from __future__ import annotations

from torch import Tensor

__all__ = ["weighted_mean"]


def weighted_mean(rows: Tensor, weights: Tensor) -> Tensor:
    """``sum_i weight_i row_i``: ``[rows, P]`` and ``[rows, 1]`` (summing to one) give ``[P]``."""
    return weights.squeeze(-1) @ rows
