"""The gate before the server: what clients sent, row by row, and which rows may be used.

A row is never dropped, because the cohort's shape is fixed; a row that may not be used is replaced by what its client
would have sent had it trained nothing, with trust 0, and the reason is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from panacea.core.records import Tree, named_leaves, tree_where
from panacea.core.types import Cohort

__all__ = ["LIMIT", "NOT_FINITE", "TOO_LARGE", "Judged", "refuse", "screen"]

NOT_FINITE, TOO_LARGE = "not finite", "too large"

LIMIT = 1e10
"""Largest value of an upload, in units of the largest that its client was sent (at least 1); see `messages`."""


@dataclass(frozen=True)
class Judged:
    """A cohort's uploads as the server may use them.

    Attributes:
        unchanged: ``[rows, ...]`` what clients that trained nothing would have sent; an update is the difference.
        uploads: ``[rows, ...]``.
        statistics: ``[rows, S]`` BatchNorm's that travel, likewise.
        trust: ``[rows, 1]`` from 0 (not used) to 1.
        reasons: why a client's upload is not used, by client.
    """

    unchanged: Tree
    uploads: Tree
    statistics: Tensor
    trust: Tensor
    reasons: dict[int, str]


def screen(
    unchanged: Tree,
    uploads: Tree,
    sent: Tensor,
    statistics: Tensor,
    cohort: Cohort,
    unread: Mapping[int, str] | None = None,
) -> Judged:
    """Refuse every row that holds a NaN, an infinite number or one beyond the limit.

    Args:
        unchanged: see `Judged`.
        uploads: what came.
        sent: ``[rows, S]`` the statistics that the clients were given.
        statistics: ``[rows, S]`` those that came back; a variance may be as large as the square of the limit.
        cohort: whose they are.
        unread: why a client's message could not be read, by client; such rows are refused whatever they hold.
    """
    judged = Judged(unchanged, uploads, statistics, cohort.trust, {})
    for reason in dict.fromkeys((unread or {}).values()):
        sound = [[(unread or {}).get(client) != reason] for client in cohort.ids.tolist()]
        judged = refuse(judged, torch.tensor(sound, device=cohort.trust.device), sent, reason, cohort)
    came = [*_sent(judged.uploads), judged.statistics]
    limits = [*(LIMIT for _ in came[1:]), LIMIT**2]
    if _within(came, limits):  # nearly always
        return judged
    largest = torch.cat([_largest(leaf) for leaf in came], dim=1)
    usual = torch.cat([_largest(leaf) for leaf in (*_sent(unchanged), sent)], dim=1).clamp_min(1)
    finite = torch.isfinite(largest).all(dim=1, keepdim=True)
    small = (largest <= usual * usual.new_tensor(limits)).all(dim=1, keepdim=True)
    judged = refuse(judged, finite, sent, NOT_FINITE, cohort)
    return refuse(judged, small | ~finite, sent, TOO_LARGE, cohort)


def _sent(tree: Tree) -> list[Tensor]:
    return [leaf for _, leaf in named_leaves(tree, travelling=True)]


def _within(came: Sequence[Tensor], limits: Sequence[float]) -> bool:
    """Whether all values are; one pass for all rows, and NaN is passed on to both ends. A GPU is asked once."""
    bounded = [(torch.aminmax(leaf), limit) for leaf, limit in zip(came, limits, strict=True) if leaf.numel()]
    if not bounded:
        return True
    ends = torch.stack([end for pair, _ in bounded for end in pair]).tolist()
    return all(
        -limit <= low and high <= limit for low, high, (_, limit) in zip(ends[::2], ends[1::2], bounded, strict=True)
    )


def _largest(leaf: Tensor) -> Tensor:
    """``[rows, 1]``: the largest absolute value of each row."""
    if not leaf.numel():
        return leaf.new_zeros(len(leaf), 1)
    return leaf.reshape(len(leaf), -1).abs().amax(dim=1, keepdim=True)


def refuse(judged: Judged, sound: Tensor, sent: Tensor, reason: str, cohort: Cohort) -> Judged:
    """The same uploads without the rows that are not sound ``[rows, 1]``."""
    bad = (~sound[:, 0]).nonzero()[:, 0].tolist()
    if not bad:
        return judged
    return replace(
        judged,
        uploads=tree_where(sound, judged.uploads, judged.unchanged),
        statistics=torch.where(sound, judged.statistics, sent),
        trust=torch.where(sound, judged.trust, 0.0),
        reasons={**judged.reasons, **{int(cohort.ids[row]): reason for row in bad}},
    )
