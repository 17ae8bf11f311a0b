"""What runs ask an engine for, several requests as rows of one call, and the results cut apart again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from panacea.core.method import Method
from panacea.core.records import Tree, leaves, tree_index, tree_map
from panacea.core.round import Trained
from panacea.engines.base import LocalSettings
from panacea.engines.rows import Party

__all__ = ["Begun", "Request", "cut", "joined", "moved", "placed", "shared_out", "stacked"]

Begun: TypeAlias = Callable[[], list[Trained]]
"""Training that has begun; the call gives its results, and waits for them where they go to the host."""


@dataclass(frozen=True)
class Request:
    """What one run wants to have trained.

    Attributes:
        method: whose local programme.
        downloads, kept, statistics: ``[rows, ...]`` what the clients receive, found and work with.
        party: the clients.
        counts: ``[rows]`` local steps of each.
        local: the run's settings; several runs in one call may differ in the learning rate.
    """

    method: Method
    downloads: Tree
    kept: Tree
    statistics: Tensor
    party: Party
    counts: npt.NDArray[np.int64]
    local: LocalSettings

    def part(self, rows: slice) -> Request:
        """Some of the rows."""
        if rows.stop - rows.start == len(self):
            return self
        return replace(
            self, downloads=tree_index(self.downloads, rows), kept=tree_index(self.kept, rows),
            statistics=self.statistics[rows], party=replace(self.party, ids=self.party.ids[rows]),
            counts=self.counts[rows],
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.counts)


def shared_out(call: Sequence[tuple[int, slice]], finished: Begun, parts: Sequence[list[Trained]]) -> None:
    """Results of a call to the requests whose rows they are."""
    for (number, _), trained in zip(call, finished(), strict=True):
        parts[number].append(trained)


def placed(tree: Tree, device: torch.device) -> Tree:
    """On a device; nothing is copied that is there."""
    return tree_map(lambda t: moved(t, device), tree)


def moved(values: Tensor, device: torch.device) -> Tensor:
    """On a device; one row for all stays one row. What is read on the host next must have arrived."""
    if values.device == device:
        return values
    one = values[:1] if len(values) > 1 and values.stride(0) == 0 else values
    return one.to(device, non_blocking=device.type != "cpu").expand_as(values)


def stacked(trees: Sequence[Tree]) -> Tree:
    """Rows of several requests, one after the other."""
    return trees[0] if len(trees) == 1 else tree_map(lambda *parts: torch.cat(parts), trees[0], *trees[1:])


def cut(trained: Trained, rows: list[int]) -> list[Trained]:
    """The inverse of `stacked`: so many rows to each request."""
    whole = trained.uploads, trained.kept, trained.statistics, trained.loss
    each = map(iter, zip(*(leaf.split(rows) for leaf in leaves(whole)), strict=True))
    return [Trained(*tree_map(lambda _, own=own: next(own), whole)) for own in each]


def joined(parts: Sequence[Trained]) -> Trained:
    """Blocks of rows, one after the other."""
    if len(parts) == 1:
        return parts[0]
    return Trained(
        stacked([p.uploads for p in parts]),
        stacked([p.kept for p in parts]),
        torch.cat([p.statistics for p in parts]),
        torch.cat([p.loss for p in parts]),
    )
