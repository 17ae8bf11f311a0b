"""A method whose newcomers get their model from their links: the mean of their neighbours' own models."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from panacea.core.method import Model, NewcomerData
from panacea.core.store import ClientStore
from panacea.core.types import Cohort, Newcomers
from panacea.methods.separate import Separate


class NeighbourMean(Separate):
    """Separate, but a newcomer starts as the weighted mean of its neighbours."""

    def admit(self, server: Model, clients: ClientStore, newcomers: Newcomers) -> Tensor:
        assert newcomers.graph is not None
        rows = []
        for newcomer in newcomers.ids:
            weights = newcomers.graph.dense()[:, newcomer]
            ids = np.flatnonzero(weights)
            if not len(ids):
                rows.append(server.params)
                continue
            counts = np.ones(newcomers.graph.n, np.int64)
            own = self.personal(server, clients, Cohort.of(ids, counts, 0, server.params))
            share = torch.as_tensor(weights[ids] / weights[ids].sum(), dtype=own.dtype).unsqueeze(-1)
            rows.append((share * own).sum(dim=0))
        return torch.stack(rows)

    def adapt_newcomer(self, server: Model, newcomers: Newcomers) -> None:  # type: ignore[override]
        return None

    @property
    def newcomer_uses(self) -> NewcomerData:
        return "links"


class NeedsFeatures(NeighbourMean):
    """Refuses a newcomer without features, as a method that uses them would."""

    def admit(self, server: Model, clients: ClientStore, newcomers: Newcomers) -> Tensor:
        assert newcomers.features is not None
        known = torch.as_tensor(newcomers.features[newcomers.ids]).mean(dim=1, keepdim=True)
        return super().admit(server, clients, newcomers) * 0 + known
