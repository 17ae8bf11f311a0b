r"""Means that a few liars cannot drag along: of updates ``[rows, D]`` one update ``[D]``.

    median            coordinate by coordinate                                          (Yin et al., ICML 2018)
    trimmed_mean      coordinate by coordinate, without the k smallest and k largest    (Yin et al., ICML 2018)
    krum              the update whose n - f - 2 nearest others are nearest             (Blanchard et al., NeurIPS 2017)
    multi_krum        the mean of the m best by that score
    geometric_median  argmin_z sum_i ||z - D_i||, by Weiszfeld's iteration              (Pillutla et al., 2022)

Differences from the papers: all rows count alike, whatever their number of samples. With n < f + 3 rows Krum looks at
one neighbour. For an even number of rows the median is the mean of the two in the middle.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["geometric_median", "krum_order", "median", "trimmed_mean"]

_WEISZFELD_STEPS = 50


def median(updates: Tensor) -> Tensor:
    """``[rows, D] -> [D]``."""
    ranked, middle = updates.sort(dim=0).values, len(updates) // 2
    return ranked[middle] if len(updates) % 2 else (ranked[middle - 1] + ranked[middle]) / 2


def trimmed_mean(updates: Tensor, cut: int) -> Tensor:
    """``[rows, D] -> [D]`` without the `cut` smallest and largest of every coordinate."""
    ranked = updates.sort(dim=0).values
    return ranked[cut : len(updates) - cut].mean(dim=0)


def krum_order(updates: Tensor, liars: int) -> Tensor:
    """``[rows]``: positions of the updates, the most central first."""
    n = len(updates)
    squared = torch.cdist(updates[None], updates[None], compute_mode="donot_use_mm_for_euclid_dist")[0].square()
    near = squared.sort(dim=1).values[:, 1:]  # the nearest of all is the update itself
    scores = near[:, : max(n - liars - 2, 1)].sum(dim=1)
    return scores.argsort(stable=True)


def geometric_median(updates: Tensor) -> Tensor:
    """``[rows, D] -> [D]``."""
    found = updates.mean(dim=0)
    for _ in range(_WEISZFELD_STEPS):
        distance = (updates - found).norm(dim=1).clamp_min(1e-12)
        weight = (1 / distance) / (1 / distance).sum()
        found = weight @ updates
    return found
