"""What a server with a hypernetwork keeps and sends, and how rows of a large table of embeddings are written."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from panacea.core.parameters import Parameters
from panacea.core.records import record, unsent
from panacea.core.types import ClientIds

__all__ = ["AT_HAND", "COPIED", "HypernetworkState", "PartialModel", "Written"]

COPIED = 1 << 20
"""Numbers of a table or of weights up to which every round makes a new one; larger ones are not copied for comfort."""

AT_HAND = ("cpu",)
"""Devices whose numbers are looked at without waiting for anything."""


@record
class HypernetworkState:
    """The server's state.

    Attributes:
        table: ``[nodes, d0]`` embeddings of the clients that train.
        weights: ``[Q]`` all weights of the hypernetwork.
        moments: the optimiser's memory.
        rest: ``[P - P_g]`` what is not generated, or None.
        rate: ``[]`` factor of the server's learning rate, below 1 after a diverged round.
        terms: ``[4]`` of the last round: fit before and after the server's steps; L_d, newcomers' view at the last one.
        undone: ``[]`` rounds that diverged and were undone.
    """

    table: Tensor
    weights: Tensor
    moments: tuple[Tensor, ...]
    rest: Tensor | None
    rate: Tensor
    terms: Tensor
    undone: Tensor


@dataclass(frozen=True)
class Written:
    """Rows written in place: of a large table a copy in every round would cost more than the round.

    Attributes:
        rows: ``[k]`` which.
        tables: the tensors ``[nodes, ...]`` written to.
        now: ``[k, ...]`` what is there now, for each of them.
        before: what was.
        watched: see `GeneratingMethod.watched`, before anything was written.
    """

    rows: Tensor
    tables: list[Tensor]
    now: list[Tensor]
    before: list[Tensor]
    watched: tuple[ClientIds, Tensor]

    def write(self) -> None:
        """Write the rows."""
        for table, rows in zip(self.tables, self.now, strict=True):
            table.index_copy_(0, self.rows, rows)

    def undo(self) -> None:
        """Write back what was there."""
        for table, rows in zip(self.tables, self.before, strict=True):
            table.index_copy_(0, self.rows, rows)


@record
class PartialModel:
    """A generated part that travels, and a frozen rest that every party has."""

    params: Parameters
    rest: Parameters = unsent()
