"""Clusters of clients: by k-means over the first update each of them sent, or as they are known."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from panacea.core.records import record
from panacea.errors import RequestError

__all__ = ["FirstUpdates", "group_members", "k_means"]


def k_means(rows: Tensor, centres: int | Tensor, iterations: int = 50) -> tuple[Tensor, Tensor]:
    """Lloyd's algorithm: ``rows [n, d] -> cluster of each row [n], centres [k, d]``. Deterministic.

    Args:
        rows: at least k of them.
        centres: k, which starts from the first row and then always the row farthest from those chosen; or the centres
            ``[k, d]`` to go on from, so that clusters keep their numbers while rows are added.
        iterations: most steps; it stops when nothing changes.

    >>> k_means(torch.tensor([[0.0], [5.0], [0.2], [5.2]]), 2)[0].tolist()
    [0, 1, 0, 1]
    """
    means = _farthest_first(rows, centres) if isinstance(centres, int) else centres
    nearest = torch.cdist(rows, means).argmin(dim=1)
    for _ in range(iterations):
        member = (nearest.unsqueeze(0) == torch.arange(len(means), device=rows.device).unsqueeze(1)).to(rows.dtype)
        sizes = member.sum(dim=1, keepdim=True)
        means = torch.where(sizes > 0, member @ rows / sizes.clamp_min(1), means)  # an empty cluster stays in place
        found = torch.cdist(rows, means).argmin(dim=1)
        if bool((found == nearest).all()):
            break
        nearest = found
    return nearest, means


def _farthest_first(rows: Tensor, count: int) -> Tensor:
    chosen = [0]
    distance = torch.cdist(rows, rows[:1]).squeeze(1)
    while len(chosen) < count:
        chosen.append(int(distance.argmax()))
        distance = torch.minimum(distance, torch.cdist(rows, rows[chosen[-1:]]).squeeze(1))
    return rows[chosen]


def group_members(groups: npt.NDArray[np.int64] | None, clusters: int, like: Tensor) -> Tensor:
    """``[clients, clusters]``: one-hot rows of known groups."""
    if groups is None:
        raise RequestError("method.source=oracle: this data set has no known groups of clients; use source=teacher")
    if groups.min() < 0 or groups.max() >= clusters:
        raise RequestError(
            f"method.domains={clusters}: the clients' groups are {groups.min()}..{groups.max()}; method.source=oracle "
            f"needs at least {groups.max() + 1} domains"
        )
    return torch.eye(clusters).to(like)[torch.from_numpy(groups).to(like.device)]


@record
class FirstUpdates:
    """Clients clustered by the direction of their first update.

    Attributes:
        updates: ``[clients, P]`` of length one; zeros for clients that never took part.
        centres: ``[k, P]`` of the clusters; zeros before there are k clients.
        members: ``[clients, k]`` one-hot clusters; zeros where there is none.
    """

    updates: Tensor
    centres: Tensor
    members: Tensor

    @classmethod
    def none(cls, clients: int, clusters: int, size: int, like: Tensor) -> FirstUpdates:
        """Before anyone took part."""
        shapes = ((clients, size), (clusters, size), (clients, clusters))
        return cls(*(like.new_zeros(shape) for shape in shapes))

    def add(self, ids: Tensor, moved: Tensor) -> FirstUpdates:
        """With the updates ``moved [rows, P]`` of the clients `ids`; only those seen for the first time count.

        k-means goes on from the last centres, so clusters keep their numbers.
        """
        before = self.updates[ids]
        first = (before == 0).all(dim=1, keepdim=True)
        updates = self.updates.index_copy(0, ids, torch.where(first, F.normalize(moved, dim=1), before))
        seen = (updates != 0).any(dim=1).nonzero().squeeze(1)
        clusters = len(self.centres)
        if len(seen) < clusters:
            return FirstUpdates(updates, self.centres, self.members)
        begun = bool((self.centres != 0).any())
        found, centres = k_means(updates[seen], self.centres if begun else clusters)
        rows = torch.eye(clusters, dtype=updates.dtype, device=updates.device)[found]
        return FirstUpdates(updates, centres, torch.zeros_like(self.members).index_copy(0, seen, rows))
