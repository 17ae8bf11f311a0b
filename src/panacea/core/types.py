"""The words every part of the package shares: cohort, batch, newcomers, setting."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from panacea.core.transfer import on_device

if TYPE_CHECKING:
    from panacea.core.parameters import Layout
    from panacea.core.random import Streams
    from panacea.graphs import ClientGraph

__all__ = ["Batch", "Cohort", "Newcomers", "Origin", "Setting", "Steps"]

ClientIds = npt.NDArray[np.int64]
Steps: TypeAlias = int | npt.NDArray[np.int64] | None
"""Local steps: one number, one a row, or None for those of the experiment."""


@dataclass(frozen=True)
class Cohort:
    """The clients of one round, always in client order, so that sampling order changes nothing.

    Attributes:
        ids: ``[rows]`` client numbers, ascending.
        counts: ``[rows, 1]`` train samples of each.
        round: the round's number, from 1.
        trust: ``[rows, 1]`` 1 unless a defence lowers it; rows are weighed, never dropped.
    """

    ids: ClientIds
    counts: Tensor
    round: int
    trust: Tensor

    @classmethod
    def of(cls, ids: ClientIds, counts: npt.NDArray[np.int64], round: int, like: Tensor) -> Cohort:
        """The cohort of these clients; `counts` is indexed by client, `like` gives dtype and device."""
        ids = np.sort(np.asarray(ids, dtype=np.int64))
        n = on_device(counts[ids], like.device, like.dtype).unsqueeze(-1)
        return cls(ids, n, round, torch.ones_like(n))

    def __len__(self) -> int:
        return len(self.ids)

    def weights(self, by: str = "samples") -> Tensor:
        """``[rows, 1]``, summing to one: by number of train samples, or uniform; times trust."""
        raw = self.counts * self.trust if by == "samples" else self.trust
        return raw / raw.sum()


@dataclass(frozen=True)
class Batch:
    """Samples of one local step.

    Attributes:
        x: ``[..., B, *inputs]``.
        y: ``[..., B, *outputs]``.
        weight: ``[..., B]``: sums to one over a client's batch: 1 / samples each, or by observed values where some are
            missing; 0 for padding.
        present: ``[..., B]`` bool, False for padding; None where no row has any.
        slope: ``[..., classes, B]`` or None: the gradient of the weighted cross-entropy with respect to
            log-probabilities, ``-weight`` at the label and 0 elsewhere, for which no model is needed. It belongs to
            these labels and weights: a batch that `dataclasses.replace` makes of this one has none.
    """

    x: Tensor
    y: Tensor
    weight: Tensor
    present: Tensor | None = None
    slope: Tensor | None = field(default=None, init=False)

    def with_slope(self, slope: Tensor) -> Batch:
        """The same samples."""
        made = replace(self)
        object.__setattr__(made, "slope", slope)
        return made


@dataclass(frozen=True)
class Newcomers:
    """Clients that take no part in training, with what is known of them.

    Attributes:
        ids: ``[rows]`` their numbers in the graph.
        graph: the relation graph over all clients, newcomers included, or None.
        features: ``[clients, d]`` side information on all clients, newcomers included (NaN where unknown), or None.
    """

    ids: ClientIds
    graph: ClientGraph | None
    features: npt.NDArray[np.float32] | None = None


@dataclass(frozen=True)
class Origin:
    """Where all parties begin: what server and clients alike make from the seed and the keys.

    Attributes:
        initial: ``[P]`` one ordinary random initialisation of the target network (or pre-trained weights).
        layout: its layout.
        statistics_layout: the layout of BatchNorm's running statistics; empty without BatchNorm.
    """

    initial: Tensor
    layout: Layout
    statistics_layout: Layout


@dataclass(frozen=True)
class Setting:
    """What a method may know when it sets up its server: sizes, the initial model and the experiment's rates.

    Attributes:
        initial: ``[P]`` one ordinary random initialisation of the target network (or pre-trained weights).
        layout: its layout.
        statistics_layout: the layout of BatchNorm's running statistics; empty without BatchNorm.
        counts: ``[clients]`` train samples of every client.
        train_ids: clients that may take part.
        graph: the relation graph over all clients, or None.
        streams: the experiment's random streams.
        rounds: how many there will be.
        lr: client learning rate.
        local_steps: K_c.
        server_lr: alpha, for methods whose server learns.
        server_steps: K_s, likewise.
        features: ``[clients, d]`` side information on all clients, or None.
        groups: ``[clients]`` known group of every client, or None; for methods that are told (an oracle) only.
    """

    initial: Tensor
    layout: Layout
    statistics_layout: Layout
    counts: npt.NDArray[np.int64]
    train_ids: ClientIds
    graph: ClientGraph | None
    streams: Streams
    rounds: int
    lr: float
    local_steps: int
    server_lr: float
    server_steps: int
    features: npt.NDArray[np.float32] | None = None
    groups: npt.NDArray[np.int64] | None = None

    @property
    def origin(self) -> Origin:
        """The part of it that clients know as well."""
        return Origin(self.initial, self.layout, self.statistics_layout)
