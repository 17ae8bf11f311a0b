"""What clients keep between visits: one row per client that was ever seen, nothing for the others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from panacea.core.records import Tree, leaves, tree_index, tree_map, tree_where
from panacea.core.rows import MappedRows, Place, Policy, chosen_place
from panacea.core.transfer import on_device
from panacea.core.types import ClientIds

__all__ = ["ClientStore"]


class ClientStore:
    """Client states by client number.

    `put` writes in place and grows by doubling, so a round costs the cohort's rows, not all clients'. Only the cohort's
    rows are ever on the device together, unless all of them are kept there.

    Attributes:
        slots: ``[clients]`` position of a client's row, -1 if it was never seen.
        rows: the states, leading dim = capacity; None before the first `put` (or for stateless methods).
        policy: where they are kept; `auto` by what all clients' states would take (see `chosen_place`).
        place: where that is; known with the first state.
    """

    def __init__(
        self, clients: int, policy: Policy = "auto", device: torch.device | None = None, folder: Path | None = None
    ) -> None:
        """A store in which nobody was seen.

        Args:
            clients: how many there are.
            policy: see the class.
            device: where states are computed with; by default where those are that are put first.
            folder: in which a file of states is made, if there is one.
        """
        self.slots = np.full(clients, -1, np.int64)
        self.rows: Tree = None
        self.policy, self.device, self.folder = policy, device, folder
        self.place: Place = "device"
        self._used = 0
        self._files: list[MappedRows] = []

    @property
    def seen(self) -> ClientIds:
        """Clients with a kept state, in client order."""
        return np.flatnonzero(self.slots >= 0).astype(np.int64)

    def take(self, ids: ClientIds, fresh: Tree) -> Tree:
        """States ``[rows, ...]`` of these clients; `fresh` (same shape) stands in for those never seen."""
        if self.rows is None:
            return fresh
        slots = self.slots[ids]
        stored = tree_index(self.rows, on_device(slots.clip(0), leaves(self.rows)[0].device))
        stored = tree_map(lambda row: row.to(self.device, non_blocking=True), stored)
        known = (slots >= 0)[:, None]
        return stored if known.all() else tree_where(on_device(known, leaves(stored)[0].device), stored, fresh)

    def put(self, ids: ClientIds, states: Tree) -> None:
        """Keep these clients' states."""
        if not leaves(states):
            return
        if self.rows is None:
            self._settle(states)
        new = ids[self.slots[ids] < 0]
        self.slots[new] = self._used + np.arange(len(new))
        self._used += len(new)
        self._grow(states)
        index = on_device(self.slots[ids], leaves(self.rows)[0].device)

        def write(row: Tensor, value: Tensor) -> None:
            row[index] = value.detach().to(row.device)

        tree_map(write, self.rows, states)

    def _settle(self, states: Tree) -> None:
        """Choose where rows are kept, once it is known how large one is."""
        first = leaves(states)[0]
        self.device = first.device if self.device is None else self.device
        row = sum(leaf[:1].numel() * leaf.element_size() for leaf in leaves(states))
        self.place = chosen_place(self.policy, row * len(self.slots), self.device)
        if self.place == "disk":
            self._files = [MappedRows(leaf[0], self.folder) for leaf in leaves(states)]

    def _grow(self, like: Tree) -> None:
        capacity = 0 if self.rows is None else len(leaves(self.rows)[0])
        if self._used <= capacity:
            return
        wanted = min(max(self._used, 2 * capacity), len(self.slots))
        if self.place == "disk":
            files = iter(self._files)
            self.rows = tree_map(lambda _: next(files).grown(wanted), like)
            return
        device = self.device if self.place == "device" else torch.device("cpu")

        def widen(value: Tensor, old: Tensor | None = None) -> Tensor:
            rows = value.new_zeros((wanted, *value.shape[1:]), device=device)
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
    def unpacked(
        cls,
        clients: int,
        seen: ClientIds,
        rows: Tree,
        policy: Policy = "auto",
        device: torch.device | None = None,
        folder: Path | None = None,
    ) -> ClientStore:
        """The inverse of `packed`."""
        store = cls(clients, policy, device, folder)
        if len(seen):
            store.put(seen, rows)
        return store
