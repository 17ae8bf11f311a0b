"""Stored samples and who owns them, laid out as a federation without copying one."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from panacea.core.random import Streams
from panacea.data._layout import shuffled, split_bounds
from panacea.data.cache import Arrays, packed, unpacked
from panacea.data.federation import Federation
from panacea.data.task import Task

__all__ = ["Owned", "in_memory", "lay_out"]

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Owned:
    """Samples, each with an owner.

    Attributes:
        names: one per owner.
        owner: ``[samples]`` int64: position of the owner in `names`.
        labels: ``[samples]`` int64.
        rows: ``[samples]`` int64: where a sample's input is stored.
        test: ``[samples]`` bool: what the data set itself says is test; None where it says nothing.
    """

    names: tuple[str, ...]
    owner: Ids
    labels: Ids
    rows: Ids
    test: npt.NDArray[np.bool_] | None = None

    def counts(self) -> Ids:
        """Samples of every owner."""
        return np.bincount(self.owner, minlength=len(self.names)).astype(np.int64)

    def train_counts(self) -> Ids:
        """Samples of every owner that are not test by the data set's own word."""
        return self.counts() if self.test is None else self.where(~self.test).counts()

    def where(self, mask: npt.NDArray[np.bool_]) -> Owned:
        """Some of the samples, the same owners."""
        test = None if self.test is None else self.test[mask]
        return Owned(self.names, self.owner[mask], self.labels[mask], self.rows[mask], test)

    def take(self, owners: Ids) -> Owned:
        """The samples of some owners, who are numbered anew in the given order."""
        number = np.full(len(self.names), -1, np.int64)
        number[owners] = np.arange(len(owners))
        mine = self.where(number[self.owner] >= 0)
        return replace(mine, names=tuple(self.names[i] for i in owners), owner=number[mine.owner])

    def arrays(self) -> Arrays:
        """Everything but `rows`, for a prepared copy (`panacea.data.cache.cached`)."""
        test = np.zeros(0, np.uint8) if self.test is None else self.test.astype(np.uint8)
        return {
            "names": packed(self.names),
            "owner": self.owner.astype(np.int32),
            "labels": self.labels.astype(np.uint8),
            "test": test,
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Owned:
        """What `arrays` gave; sample i is stored at row i."""
        owner, test = arrays["owner"].astype(np.int64), arrays["test"].astype(np.bool_)
        rows = np.arange(len(owner), dtype=np.int64)
        labels = arrays["labels"].astype(np.int64)
        return cls(tuple(unpacked(arrays["names"])), owner, labels, rows, test if len(test) else None)


def lay_out(name: str, samples: Owned, images: Tensor, *, task: Task, seed: int, val: float, test: float) -> Federation:
    """Split every owner's samples; row i of `rows` says where sample i is stored.

    Args:
        name: the data set's.
        samples: who has which.
        images: ``[stored, ...]``.
        task: what is learnt.
        seed: decides the random order within a client.
        val: share of each client's train part.
        test: share of each client's samples, where the data set does not say itself what is test.
    """
    held = np.zeros(len(samples.owner), np.bool_) if samples.test is None else samples.test
    order = np.lexsort((held, samples.owner))  # by owner, train part before test part, else as given
    counts = samples.train_counts()
    bounds = split_bounds(counts, None if samples.test is None else samples.counts() - counts, val, test)
    order = order[shuffled(Streams(seed), bounds[:, 0], counts, len(order))]
    return Federation(
        name=name,
        task=task,
        x=images,
        y=torch.from_numpy(samples.labels[order]),
        bounds=bounds,
        names=samples.names,
        rows=torch.from_numpy(samples.rows[order]),
    )


def in_memory(federation: Federation) -> Federation:
    """The same with its inputs in the order of its samples; what nobody refers to is left behind."""
    if federation.rows is None:
        return federation
    return replace(federation, x=federation.x[federation.rows], rows=None)
