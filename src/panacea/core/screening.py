"""The gate before the server: what clients sent, row by row, and which rows may be used.

A row is never dropped, because the cohort's shape is fixed; a row that may not be used is replaced by what its client
would have sent had it trained nothing, with trust 0, and the reason is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from panacea.core.records import Tree, leaves, tree_where
from panacea.core.types import Cohort

__all__ = ["Judged", "refuse", "screen"]


@dataclass(frozen=True)
class Judged:
    """A cohort's uploads as the server may use them.

    Attributes:
        unchanged: ``[rows, ...]`` what clients that trained nothing would have sent; an update is the difference.
        uploads: ``[rows, ...]``.
        statistics: ``[rows, S]`` BatchNorm's, likewise.
        trust: ``[rows, 1]`` from 0 (not used) to 1.
        reasons: why a client's upload is not used, by client.
    """

    unchanged: Tree
    uploads: Tree
    statistics: Tensor
    trust: Tensor
    reasons: dict[int, str]


def screen(unchanged: Tree, uploads: Tree, sent: Tensor, statistics: Tensor, cohort: Cohort) -> Judged:
    """Refuse every row that holds a NaN or an infinite number.

    Args:
        unchanged: see `Judged`.
        uploads: what came.
        sent: ``[rows, S]`` the statistics that the clients were given.
        statistics: ``[rows, S]`` those that came back.
        cohort: whose they are.
    """
    judged = Judged(unchanged, uploads, statistics, cohort.trust, {})
    sound = torch.ones_like(cohort.trust, dtype=torch.bool)
    for leaf in (*leaves(uploads), statistics):
        sound = sound & torch.isfinite(leaf.reshape(len(leaf), -1)).all(dim=1, keepdim=True)
    return judged if bool(sound.all()) else refuse(judged, sound, sent, "not finite", cohort)


def refuse(judged: Judged, sound: Tensor, sent: Tensor, reason: str, cohort: Cohort) -> Judged:
    """The same uploads without the rows that are not sound ``[rows, 1]``."""
    bad = (~sound[:, 0]).nonzero()[:, 0].tolist()
    return replace(
        judged,
        uploads=tree_where(sound, judged.uploads, judged.unchanged),
        statistics=torch.where(sound, judged.statistics, sent),
        trust=torch.where(sound, judged.trust, 0.0),
        reasons={**judged.reasons, **{int(cohort.ids[row]): reason for row in bad}},
    )
