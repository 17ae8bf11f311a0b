"""What clients keep between visits: one row per client that was ever seen, nothing for the others."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from panacea.core.records import Tree, leaves, tree_index, tree_map, tree_where
from panacea.core.types import ClientIds

__all__ = ["ClientStore"]


class ClientStore:
    """Client states by client number.

    `put` writes in place and grows by doubling, so a round costs the cohort's rows, not all clients'.

    Attributes:
        slots: ``[clients]`` position of a client's row, -1 if it was never seen.
        rows: the states, leading dim = capacity; None before the first `put` (or for stateless methods).
    """

    def __init__(self, clients: int) -> None:
        self.slots = np.full(clients, -1, np.int64)
        self.rows: Tree = None
        self._used = 0

    @property
    def seen(self) -> ClientIds:
        """Clients with a kept state, in client order."""
        return np.flatnonzero(self.slots >= 0).astype(np.int64)

    def take(self, ids: ClientIds, fresh: Tree) -> Tree:
        """States ``[rows, ...]`` of these clients; `fresh` (same shape) stands in for those never seen."""
        if self.rows is None:
            return fresh
        slots = torch.from_numpy(self.slots[ids])
        stored = tree_index(self.rows, slots.clamp_min(0).to(leaves(self.rows)[0].device))
        if bool((slots >= 0).all()):
            return stored
        known = (slots >= 0).unsqueeze(-1).to(leaves(self.rows)[0].device)
        return tree_where(known, stored, fresh)

    def put(self, ids: ClientIds, states: Tree) -> None:
        """Keep these clients' states."""
        if not leaves(states):
            return
        new = ids[self.slots[ids] < 0]
        self.slots[new] = self._used + np.arange(len(new))
        self._used += len(new)
        self._grow(states)
        index = torch.from_numpy(self.slots[ids]).to(leaves(self.rows)[0].device)

        def write(row: Tensor, value: Tensor) -> None:
            row[index] = value.detach()

        tree_map(write, self.rows, states)

    def _grow(self, like: Tree) -> None:
        capacity = 0 if self.rows is None else len(leaves(self.rows)[0])
        if self._used <= capacity:
            return
        wanted = min(max(self._used, 2 * capacity), len(self.slots))

        def widen(value: Tensor, old: Tensor | None = None) -> Tensor:
            rows = value.new_zeros((wanted, *value.shape[1:]))
            if old is not None:
                rows[:capacity] = old
            return rows

        self.rows = tree_map(widen, like) if self.rows is None else tree_map(widen, like, self.rows)

    def packed(self) -> tuple[ClientIds, Tree]:
        """Seen clients and their rows in client order: what a checkpoint holds."""
        seen = self.seen
        index = torch.from_numpy(self.slots[seen])
        return seen, tree_map(lambda row: row[index.to(row.device)], self.rows)

    @classmethod
    def unpacked(cls, clients: int, seen: ClientIds, rows: Tree) -> ClientStore:
        """The inverse of `packed`."""
        store = cls(clients)
        if len(seen):
            store.put(seen, rows)
        return store
