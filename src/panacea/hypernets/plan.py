"""Plans: which rows of the embedding table a round touches, and how messages reach the clients it is about.

`dense` and `sparse` propagate over all clients, as one matrix product per layer. `neighbourhood` touches only what the
round's clients can hear within L layers, and of many neighbours a few that are drawn anew in every round (`fanout`), so
that a round costs the same with a thousand and with a million clients. Evaluation hears all neighbours: so many clients
are encoded then that all of them are, once, by a sparse product per layer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field
from torch import Tensor

from panacea.core.transfer import on_device
from panacea.graphs import ClientGraph
from panacea.hypernets.encoders import MIXING, Encoder
from panacea.hypernets.links import linked_pairs, pair_weights
from panacea.hypernets.propagation import Block, Draw, Propagation, thinned
from panacea.hypernets.view import Links, View, with_copies

__all__ = ["Execution", "Fanout", "Plan", "Planner"]

Execution: TypeAlias = Literal["auto", "dense", "sparse", "neighbourhood"]
Fanout: TypeAlias = Literal["auto", "all"] | Annotated[int, Field(ge=1)]
Ids = npt.NDArray[np.int64]

_DENSE, _SPARSE = 1_024, 2_000  # clients up to which all of them are encoded, by a dense or a sparse product
_FULL = 1 << 16  # pairs of clients up to which a matrix is dense however few of them are linked
_FANOUT = 8  # of more clients than that
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
        inputs: `rows` on the host, where plans are made.
    """

    rows: Tensor | None
    blocks: list[Block]
    clients: Tensor
    pairs: Tensor | None = None
    every: Tensor | None = None
    yes: Tensor | None = None
    view: View | None = None
    inputs: Ids | None = None


class Planner:
    """Plans over one graph (the training graph, or the full one for newcomers)."""

    def __init__(
        self,
        graph: ClientGraph,
        encoder: Encoder,
        like: Tensor,
        execution: Execution = "auto",
        fanout: Fanout = "auto",
    ) -> None:
        if execution == "auto" and isinstance(fanout, int):
            execution = "neighbourhood"
        if execution == "auto":
            execution = _fitting(graph)
        if fanout == "auto":
            fanout = "all" if graph.n <= _SPARSE else _FANOUT
        self.fanout = None if fanout == "all" or execution != "neighbourhood" else fanout
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

    def encode(self, clients: Ids, key: int | None = None) -> Plan:
        """Only the encoding of these nodes, by all they hear or (with a round's key) by those drawn in the round."""
        return self._around(clients, clients, self._draw(key))

    def everyone(self) -> Plan:
        """The encoding of all nodes by all they hear, whatever the execution."""
        nodes = torch.arange(self.graph.n, device=self.like.device)
        return Plan(None, [self.arcs.whole()] * self.encoder.layers, nodes)

    def crowded(self, clients: int) -> bool:
        """Whether all nodes are encoded at once: always, or because so many clients hear nearly all of them."""
        reach = (1 + 2 * len(self.graph.edges) / max(self.graph.n, 1)) ** self.encoder.layers
        return self.execution != "neighbourhood" or clients * reach > self.graph.n

    def _draw(self, key: int | None) -> Draw | None:
        return None if key is None or self.fanout is None else Draw(self.fanout, key)

    def round(
        self,
        cohort: Ids,
        *,
        links: bool,
        balanced: bool,
        view: Links | None,
        extra: Ids,
        all_pairs: bool | None = None,
        key: int | None = None,
    ) -> Plan:
        """The plan of one round's server steps.

        Args:
            cohort: nodes of the round's clients.
            links: whether L_d is part of the loss.
            balanced: see `links`.
            view: the cohort's links in the newcomers' view; None without a view.
            extra: random nodes that join the cohort and its neighbours where not all pairs are looked at.
            all_pairs: whether L_d looks at all pairs; by default where that is cheap.
            key: of the round's draw of neighbours; None to hear all of them.
        """
        draw = self._draw(key)
        nodes = None if self.all_pairs(all_pairs) else self._link_nodes(cohort, extra)
        wanted = cohort
        if links:
            wanted = np.arange(self.graph.n) if nodes is None else np.unique(np.concatenate([cohort, nodes]))
        plan = self._around(wanted, cohort, draw)
        every = yes = pairs = None
        if links:
            every, yes = self._pair_weights(nodes, balanced)
            if nodes is not None:
                pairs = self._places(wanted, nodes)
        plan = replace(plan, pairs=pairs, every=every, yes=yes)
        return plan if view is None else self._with_view(plan, cohort, draw, view)

    def all_pairs(self, asked: bool | None) -> bool:
        """Whether L_d looks at all pairs: as asked for, by default where that is cheap."""
        return self.graph.n <= _ALL_PAIRS and self.execution != "neighbourhood" if asked is None else asked

    def looked_at(self) -> Ids:
        """The nodes diagnostics look at: all of a small graph, some linked ones of a large one."""
        if self.execution != "neighbourhood":
            return np.arange(min(self.graph.n, _LOOKED_AT))
        near, _ = self.neighbours.around(np.arange(min(self.graph.n, 32)), 1)
        return np.sort(near[:256])

    def _around(self, wanted: Ids, clients: Ids, draw: Draw | None) -> Plan:
        layers = self.encoder.layers
        if self.execution == "neighbourhood":
            inputs, blocks = self.arcs.around(wanted, layers, draw)
            return Plan(self._tensor(inputs), blocks, self._places(wanted, clients), inputs=inputs)
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
        linked = torch.from_numpy(self.linked(np.arange(self.graph.n) if nodes is None else nodes))
        every, yes = (self._tensor(w.numpy()).to(self.like.dtype) for w in pair_weights(linked, balanced))
        if nodes is None:
            self._all_pairs[balanced] = every, yes
        return every, yes

    def linked(self, nodes: Ids) -> npt.NDArray[np.bool_]:
        """``[k, k]`` symmetric: which of these nodes are linked; only their own arcs are looked at."""
        places, speakers, _ = self.neighbours.into(nodes)
        return linked_pairs(speakers, nodes[places], nodes, self.graph.n)

    def _with_view(self, plan: Plan, cohort: Ids, draw: Draw | None, links: Links) -> Plan:
        inputs = plan.blocks[0].n_in
        names = np.arange(inputs) if plan.inputs is None else plan.inputs
        targets, speakers, shares = self.neighbours.into(cohort, draw)
        most = links.most(targets)
        kept, shares = thinned(targets, speakers, cohort, shares, most, links.key)
        targets, speakers = targets[kept], speakers[kept]
        places = cohort
        if plan.inputs is not None:
            places, speakers = _find(names, cohort), _find(names, speakers)
        lonely = most == 0
        shape, dense = (len(cohort), inputs), plan.blocks[0].transposed is None
        copies = plan.blocks[-1].n_out + np.arange(len(cohort))
        return replace(
            plan,
            blocks=with_copies(plan.blocks, places, names, most, links.key, self.like),
            clients=torch.cat([plan.clients, self._tensor(copies)]),
            view=View(
                Block.of(shape, (targets, speakers), shares, self.like, dense),
                self._tensor(lonely).unsqueeze(-1) if lonely.any() else None,
            ),
        )

    def _tensor(self, values: npt.NDArray[Any]) -> Tensor:
        return on_device(values, self.like.device)


def _fitting(graph: ClientGraph) -> Execution:
    """By the number of clients and of links: a product with zeros is about thirty times as fast as one by arcs."""
    pairs = graph.n**2
    if graph.n <= _DENSE and (pairs <= _FULL or pairs <= 32 * (2 * len(graph.edges) + graph.n)):
        return "dense"
    return "sparse" if graph.n <= _SPARSE else "neighbourhood"


def _find(values: Ids, wanted: Ids) -> Ids:
    """Where the wanted values are among distinct ones."""
    order = np.argsort(values, kind="stable")
    return order[np.searchsorted(values, wanted, sorter=order)]
