"""Plans: which rows of the embedding table a round touches, and how messages reach the clients it is about.

`dense` and `sparse` propagate over all clients, as one matrix product per layer. `neighbourhood` touches only what the
round's clients can hear within L layers, so that a round costs the same with a thousand and with a million clients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from panacea.graphs import ClientGraph
from panacea.hypernets.encoders import MIXING, Encoder
from panacea.hypernets.links import linked_pairs, pair_weights
from panacea.hypernets.propagation import Block, Propagation

__all__ = ["Execution", "Plan", "Planner", "View"]

Execution: TypeAlias = Literal["auto", "dense", "sparse", "neighbourhood"]
Ids = npt.NDArray[np.int64]

_DENSE, _SPARSE = 1_024, 2_000  # clients up to which all of them are encoded, by a dense or a sparse product
_ALL_PAIRS = 512  # clients up to which L_d looks at all pairs
_LOOKED_AT = 2_000  # nodes in diagnostics, at most
_NEIGHBOURS = 64  # neighbours of the cohort among the nodes of L_d, at most


@dataclass(frozen=True)
class View:
    """The cohort as if it were new: each client's row replaced by the mean of its neighbours' rows.

    Attributes:
        speakers: places of the neighbours' rows among the encoder's inputs, None for all of them.
        matrix: ``[cohort, speakers]`` from them to the means.
        lonely: ``[cohort, 1]`` who has no neighbour and is given the middle of all rows.
        places: places of the cohort among the encoder's inputs.
    """

    speakers: Tensor | None
    matrix: Tensor
    lonely: Tensor
    places: Tensor

    def of(self, h: Tensor, middle: Tensor) -> Tensor:
        """The encoder's inputs with the cohort's rows replaced; `middle` ``[d0]`` is the mean of the whole table."""
        means = self.matrix @ (h if self.speakers is None else h[self.speakers])
        return h.index_copy(0, self.places, torch.where(self.lonely, middle, means))


@dataclass(frozen=True)
class Plan:
    """How one set of clients is encoded.

    Attributes:
        rows: rows of the table that are the encoder's inputs, None for all of them in order.
        blocks: one per layer.
        clients: places of the clients among the encoder's outputs, in the order asked for.
        pairs: places of the nodes whose pairs L_d looks at, None for all outputs.
        every: ``[k, k]`` weights of their pairs, None without L_d.
        yes: ``[k, k]`` weights of the linked ones.
        view: the newcomers' view, or None.
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
        if all_pairs is None:
            all_pairs = self.graph.n <= _ALL_PAIRS and self.execution != "neighbourhood"
        nodes = None if all_pairs else self._link_nodes(cohort, extra)
        wanted = cohort
        if links:
            wanted = np.arange(self.graph.n) if nodes is None else np.unique(np.concatenate([cohort, nodes]))
        plan = self._around(wanted, cohort)
        every = yes = pairs = None
        if links:
            every, yes = self._pair_weights(nodes, balanced)
            if nodes is not None:
                pairs = self._places(wanted, nodes)
        seen = self._view(plan, cohort) if view else None
        return Plan(plan.rows, plan.blocks, plan.clients, pairs, every, yes, seen)

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
        order = np.argsort(wanted, kind="stable")
        return self._tensor(order[np.searchsorted(wanted, nodes, sorter=order)])

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

    def _view(self, plan: Plan, cohort: Ids) -> View:
        lonely = torch.from_numpy(np.diff(self.neighbours.starts)[cohort] == 0).unsqueeze(-1).to(self.like.device)
        places = self._tensor(cohort)
        if self.execution == "dense":
            return View(None, self.neighbours.whole().matrix[places], lonely, places)
        speakers, (block,) = self.neighbours.around(cohort, 1)
        if plan.rows is not None:
            inputs = plan.rows.cpu().numpy()
            order = np.argsort(inputs, kind="stable")
            speakers, cohort = (order[np.searchsorted(inputs, nodes, sorter=order)] for nodes in (speakers, cohort))
        matrix = block.matrix if block.transposed is None else block.matrix.to_dense()
        return View(self._tensor(speakers), matrix, lonely, self._tensor(cohort))

    def _tensor(self, nodes: Ids) -> Tensor:
        return torch.from_numpy(np.asarray(nodes, np.int64)).to(self.like.device)
