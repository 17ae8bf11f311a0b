"""A cohort's updates as one matrix, and back."""

from __future__ import annotations

import torch
from torch import Tensor

from panacea.core.records import Tree, leaves, tree_map

__all__ = ["applied", "updates_of"]


def updates_of(unchanged: Tree, uploads: Tree) -> Tensor:
    """``[rows, D]``: how far each client's upload is from what it would have sent without training."""
    pairs = zip(leaves(uploads), leaves(unchanged), strict=True)
    return torch.cat([(new - old).reshape(len(new), -1) for new, old in pairs], dim=1)


def applied(unchanged: Tree, updates: Tensor) -> Tree:
    """The uploads ``[rows, ...]`` with these updates ``[rows, D]``."""
    place = 0

    def moved(old: Tensor) -> Tensor:
        nonlocal place
        width = old[0].numel()
        part = updates[:, place : place + width].reshape(old.shape)
        place += width
        return old + part

    return tree_map(moved, unchanged)
