"""BatchNorm's running statistics between rounds: a state of its own beside the method's, with a named policy.

`shared`: averaged over the cohort like FedAvg and sent with every download (counted in the bytes).
`local`: every client keeps its own, nothing travels. `frozen`: the initial ones for ever; BatchNorm then normalises
with them in training too. Networks without BatchNorm have an empty vector and pay nothing.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from panacea.core.aggregate import weighted_mean
from panacea.core.store import ClientStore
from panacea.core.types import Cohort

__all__ = ["BufferPolicy", "Statistics"]

BufferPolicy = Literal["shared", "local", "frozen"]


class Statistics:
    """The running statistics of all clients.

    Attributes:
        policy: who owns them.
        common: ``[S]`` the shared (or initial) statistics.
        own: rows of the clients' own, used by the policy `local`.
    """

    def __init__(self, policy: BufferPolicy, initial: Tensor, clients: int) -> None:
        self.policy = policy
        self.common = initial
        self.own = ClientStore(clients)

    def send(self, cohort: Cohort) -> Tensor:
        """``[rows, S]`` the statistics each client of the cohort works with."""
        common = self.common.expand(len(cohort), -1)
        if self.policy != "local":
            return common
        rows: Tensor = self.own.take(cohort.ids, common)
        return rows

    def returned(self, cohort: Cohort, statistics: Tensor) -> Tensor:
        """``[rows, S]`` those that travel back, to be judged and received; ``[rows, 0]`` where clients keep theirs."""
        if self.policy == "shared":
            return statistics
        self.receive(cohort, statistics)
        return statistics[:, :0]

    def receive(self, cohort: Cohort, statistics: Tensor) -> None:
        """Keep what came back from the cohort."""
        if statistics.numel() == 0 or self.policy == "frozen":
            return
        if self.policy == "shared":
            self.common = weighted_mean(statistics, cohort.weights())
        else:
            self.own.put(cohort.ids, statistics)

    def nbytes(self, cohort: Cohort) -> int:
        """Bytes the statistics add to a round, one way."""
        return len(cohort) * self.common.numel() * self.common.element_size() if self.policy == "shared" else 0

    def average(self) -> Tensor:
        """``[S]`` for a newcomer: the shared ones, or the mean of all clients' own."""
        rows = self.own.packed()[1]
        return self.common if rows is None else torch.mean(rows, dim=0)
