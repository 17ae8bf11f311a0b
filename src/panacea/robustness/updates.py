"""A cohort's updates as one matrix, and back."""

from __future__ import annotations

import torch
from torch import Tensor

from panacea.core.records import Tree, named_leaves, rebuild

__all__ = ["applied", "updates_of"]


def updates_of(unchanged: Tree, uploads: Tree) -> Tensor:
    """``[rows, D]``: how far each client's upload is from what it would have sent; of what travels."""
    pairs = zip(_sent(uploads).values(), _sent(unchanged).values(), strict=True)
    return torch.cat([(new - old).reshape(len(new), -1) for new, old in pairs], dim=1)


def applied(unchanged: Tree, updates: Tensor) -> Tree:
    """The uploads ``[rows, ...]`` with these updates ``[rows, D]``."""
    place, moved = 0, dict(named_leaves(unchanged))
    for name, old in _sent(unchanged).items():
        width = old[0].numel()
        moved[name] = old + updates[:, place : place + width].reshape(old.shape)
        place += width
    return rebuild(unchanged, moved)


def _sent(tree: Tree) -> dict[str, Tensor]:
    return dict(named_leaves(tree, travelling=True))
