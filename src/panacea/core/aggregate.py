"""Averages over the rows of a cohort, and rows put back into a table of all clients."""

from __future__ import annotations

from torch import Tensor

__all__ = ["weighted_mean", "with_rows"]

_COPIED = 1 << 24  # numbers of a table up to which it is copied


def weighted_mean(rows: Tensor, weights: Tensor) -> Tensor:
    """``sum_i weight_i row_i``: ``[rows, P]`` and ``[rows, 1]`` (summing to one) give ``[P]``."""
    return weights.squeeze(-1) @ rows


def with_rows(table: Tensor, rows: Tensor, new: Tensor) -> Tensor:
    """The table ``[n, ...]`` with some rows replaced; a copy, or where that would take longer than a round, itself.

    Args:
        table: above 16 million numbers it is written in place, as `ClientStore` does, and used up by it.
        rows: ``[k]`` which.
        new: ``[k, ...]`` what is written there.
    """
    return table.index_copy_(0, rows, new) if table.numel() > _COPIED else table.index_copy(0, rows, new)
