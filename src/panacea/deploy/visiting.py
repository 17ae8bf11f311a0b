"""A round as the server asks for it: what was sent, what is expected back, what came."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from panacea.core.messages import receive
from panacea.core.records import Tree, named_leaves, record, tree_index
from panacea.core.types import Cohort
from panacea.deploy.orders import Packed, Reply
from panacea.deploy.wire import Refused, checked_numbers, opened

__all__ = ["AskedRound", "Returned", "Visit"]

_LOSS = {"loss": (-1e12, 1e12)}

_LONGEST = 100.0
"""An update may be so many times as long as the middle one of its round; clients that train are far below that."""


@record
class Returned:
    """What comes back: the method's upload, and BatchNorm's statistics where they are shared."""

    upload: Tree
    statistics: Tensor | None = None


@dataclass(frozen=True)
class Visit:
    """A sound reply to an order to train, ``[1, ...]``, and the numbers with it."""

    returned: Returned
    numbers: Mapping[str, float]


@dataclass
class AskedRound:
    """A round that is being asked for.

    Attributes:
        orders: the arrays of each client's order to train.
        unchanged: ``[rows, ...]`` what is expected back, as an untrained client would send it.
        visits: sound replies so far.
        reasons: why there is none from a client.
    """

    cohort: Cohort
    orders: dict[int, dict[str, Packed]]
    unchanged: Returned
    visits: dict[int, Visit]
    reasons: dict[int, str]

    def read(self, client: int, reply: Reply, ranges: Mapping[str, tuple[float, float]]) -> Visit:
        """A reply that may be used; raises `Refused`."""
        row = int(np.searchsorted(self.cohort.ids, client))
        one = slice(row, row + 1)
        unchanged = tree_index(self.unchanged, one)
        arrays = opened(reply.arrays, {name: leaf[0] for name, leaf in named_leaves(unchanged, travelling=True)})
        numbers = checked_numbers(reply.numbers, {**ranges, **_LOSS}, {"loss"})
        own = Cohort(self.cohort.ids[one], self.cohort.counts[one], self.cohort.round, self.cohort.trust[one])
        returned, _, reasons = receive([arrays], unchanged, own)
        if reasons:
            raise Refused(reasons[client])
        return Visit(returned, numbers)

    def leave_out(self, why: str) -> None:
        """Use nothing of what came."""
        self.reasons |= dict.fromkeys(self.visits, f"the round was left out: {why}")
        self.visits = {}

    def refuse_longest(self, steps: Mapping[int, float]) -> dict[int, str]:
        """Refuse updates that are absurdly longer than the middle one of three or more; returns why, by client.

        Args:
            steps: how much each client trains, in any unit: a longer way may be longer.
        """
        clients = list(self.visits)
        if len(clients) < 3:
            return {}
        ways = np.array([self._length(client) for client in clients])
        trained = np.array([steps[client] for client in clients])
        middle, usual = float(np.median(ways)), float(np.median(trained))
        limits = _LONGEST * middle * np.maximum(trained / usual, 1.0)
        refused = {
            client: f"its update is {way / middle:.3g} times as long as the middle one"
            for client, way, limit in zip(clients, ways, limits, strict=True)
            if middle > 0 and way > limit
        }
        self.visits = {client: visit for client, visit in self.visits.items() if client not in refused}
        self.reasons |= refused
        return refused

    def _length(self, client: int) -> float:
        row = int(np.searchsorted(self.cohort.ids, client))
        before = named_leaves(tree_index(self.unchanged.upload, slice(row, row + 1)), travelling=True)
        after = named_leaves(self.visits[client].returned.upload, travelling=True)
        parts = [
            float(torch.linalg.vector_norm((b - a).double()))
            for (_, a), (_, b) in zip(before, after, strict=True)
            if a.is_floating_point()
        ]
        return math.hypot(*parts)
