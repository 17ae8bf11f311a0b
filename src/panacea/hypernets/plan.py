"""Plans: which rows of the embedding table a round touches, and how messages reach the clients it is about.

`dense` and `sparse` propagate over all clients, as one matrix product per layer. `neighbourhood` touches only what the
round's clients can hear within L layers, so that a round costs the same with a thousand and with a million clients.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from panacea.graphs import ClientGraph
from panacea.hypernets.encoders import MIXING, Encoder
from panacea.hypernets.links import linked_pairs, pair_weights
from panacea.hypernets.propagation import Block, Propagation
from panacea.hypernets.view import View, copied_nodes, with_copies

__all__ = ["Execution", "Plan", "Planner"]

Execution: TypeAlias = Literal["auto", "dense", "sparse", "neighbourhood"]
Ids = npt.NDArray[np.int64]

_DENSE, _SPARSE = 1_024, 2_000  # clients up to which all of them are encoded, by a dense or a sparse product
_ALL_PAIRS = 512  # clients up to which L_d looks at all pairs
_LOOKED_AT = 2_000  # nodes in diagnostics, at most
_NEIGHBOURS = 64  # neighbours of the cohort among the nodes of L_d, at most


@dataclass(frozen=True)
class Plan:
    """How one set of clients is encoded.

    Attributes:
        rows: rows of the table that are the encoder's inputs, None for all of them in order.
        blocks: one per layer.
        clients: places of the clients among the encoder's outputs, in the order asked for; with a view, then those of
            their copies.
        pairs: places of the nodes whose pairs L_d looks at, None for all nodes.
        every: ``[k, k]`` weights of their pairs, None without L_d.
        yes: ``[k, k]`` weights of the linked ones.
        view: the newcomers' view, or None; with one, blocks and outputs have copies behind the nodes.
    """

    rows: Tensor | None
    blocks: list[Block]
    clients: Tensor
    pairs: Tensor | None = None
    every: Tensor | None = None
    yes: Tensor | None = None
    view: View | None = None


class Planner:
    """Plans over one graph (the training graph, or the full one for newcomers)."""

    def __init__(self, graph: ClientGraph, encoder: Encoder, like: Tensor, execution: Execution = "auto") -> None:
        if execution == "auto":
            execution = "dense" if graph.n <= _DENSE else "sparse" if graph.n <= _SPARSE else "neighbourhood"
        self.graph, self.encoder, self.like, self.execution = graph, encoder, like, execution
        dense = {"dense": True, "sparse": False}.get(execution)
        self.arcs = Propagation(graph, MIXING[encoder.kind], like, dense)
        self._neighbours: Propagation | None = None
        self._all_pairs: dict[bool, tuple[Tensor, Tensor]] = {}

    @property
    def neighbours(self) -> Propagation:
        """Arcs with which a newcomer's embedding is the mean of its neighbours'."""
        if self._neighbours is None:
            dense = True if self.execution == "dense" else None
            self._neighbours = Propagation(self.graph, "neighbours", self.like, dense)
        return self._neighbours

    def encode(self, clients: Ids) -> Plan:
        """Only the encoding of these nodes."""
        return self._around(clients, clients)

    def round(
        self, cohort: Ids, *, links: bool, balanced: bool, view: bool, extra: Ids, all_pairs: bool | None = None
    ) -> Plan:
        """The plan of one round's server steps.

        Args:
            cohort: nodes of the round's clients.
            links: whether L_d is part of the loss.
            balanced: see `links`.
            view: whether the newcomers' view is.
            extra: random nodes that join the cohort and its neighbours where not all pairs are looked at.
            all_pairs: whether L_d looks at all pairs; by default where that is cheap.
        """
        nodes = None if self.all_pairs(all_pairs) else self._link_nodes(cohort, extra)
        wanted = cohort
        if links:
            wanted = np.arange(self.graph.n) if nodes is None else np.unique(np.concatenate([cohort, nodes]))
        plan = self._around(wanted, cohort)
        every = yes = pairs = None
        if links:
            every, yes = self._pair_weights(nodes, balanced)
            if nodes is not None:
                pairs = self._places(wanted, nodes)
        plan = replace(plan, pairs=pairs, every=every, yes=yes)
        return self._with_view(plan, cohort) if view else plan

    def all_pairs(self, asked: bool | None) -> bool:
        """Whether L_d looks at all pairs: as asked for, by default where that is cheap."""
        return self.graph.n <= _ALL_PAIRS and self.execution != "neighbourhood" if asked is None else asked

    def looked_at(self) -> Ids:
        """The nodes diagnostics look at: all of a small graph, some linked ones of a large one."""
        if self.execution != "neighbourhood":
            return np.arange(min(self.graph.n, _LOOKED_AT))
        near, _ = self.neighbours.around(np.arange(min(self.graph.n, 32)), 1)
        return np.sort(near[:256])

    def _around(self, wanted: Ids, clients: Ids) -> Plan:
        layers = self.encoder.layers
        if self.execution == "neighbourhood":
            inputs, blocks = self.arcs.around(wanted, layers)
            return Plan(self._tensor(inputs), blocks, self._places(wanted, clients))
        return Plan(None, [self.arcs.whole()] * layers, self._tensor(clients))

    def _places(self, wanted: Ids, nodes: Ids) -> Tensor:
        """Where these nodes are among the encoder's outputs."""
        if self.execution != "neighbourhood":
            return self._tensor(nodes)
        return self._tensor(_find(wanted, nodes))

    def _link_nodes(self, cohort: Ids, extra: Ids) -> Ids:
        near, _ = self.neighbours.around(cohort, 1)
        others = near[len(cohort) :]  # by number: of too many, every so-manieth, or clients at the end never were there
        chosen = np.arange(min(len(others), _NEIGHBOURS)) * len(others) // min(max(len(others), 1), _NEIGHBOURS)
        return np.unique(np.concatenate([cohort, others[chosen], extra]))

    def _pair_weights(self, nodes: Ids | None, balanced: bool) -> tuple[Tensor, Tensor]:
        if nodes is None and balanced in self._all_pairs:
            return self._all_pairs[balanced]
        chosen = np.arange(self.graph.n) if nodes is None else nodes
        linked = torch.from_numpy(linked_pairs(self.graph.edges[:, 0], self.graph.edges[:, 1], chosen, self.graph.n))
        every, yes = (w.to(self.like.device, self.like.dtype) for w in pair_weights(linked, balanced))
        if nodes is None:
            self._all_pairs[balanced] = every, yes
        return every, yes

    def _with_view(self, plan: Plan, cohort: Ids) -> Plan:
        first, last = plan.blocks[0], plan.blocks[-1]
        nodes, distances = copied_nodes(first, plan.clients.cpu().numpy(), len(plan.blocks))
        copies = np.arange(len(nodes))
        targets, speakers, shares = self.neighbours.into(cohort)
        if plan.rows is not None:
            speakers = _find(plan.rows.cpu().numpy(), speakers)
        others = slice(len(cohort), None)
        arcs = np.concatenate([targets, copies[others]]), np.concatenate([speakers, nodes[others]])
        shares = np.concatenate([shares, np.ones(len(nodes[others]))])
        lonely = np.pad(np.diff(self.neighbours.starts)[cohort] == 0, (0, len(nodes[others])))
        return replace(
            plan,
            blocks=with_copies(plan.blocks, nodes, distances, self.like),
            clients=torch.cat([plan.clients, last.n_out + self._tensor(copies[: len(cohort)])]),
            view=View(
                Block.of((len(nodes), first.n_in), arcs, shares, self.like, first.transposed is None),
                self._tensor(lonely).unsqueeze(-1) if lonely.any() else None,
            ),
        )

    def _tensor(self, values: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(values).to(self.like.device)


def _find(values: Ids, wanted: Ids) -> Ids:
    """Where the wanted values are among distinct ones."""
    order = np.argsort(values, kind="stable")
    return order[np.searchsorted(values, wanted, sorter=order)]
