"""The graph hypernetwork as a server: Panacea without and with its graph generator is made of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from panacea.core.method import MethodParameters, NewcomerData
from panacea.core.parameters import Parameters
from panacea.core.random import uniform
from panacea.core.store import ClientStore
from panacea.core.transfer import on_device
from panacea.core.types import ClientIds, Cohort, Newcomers, Setting
from panacea.errors import RequestError
from panacea.graphs import ClientGraph
from panacea.hypernets.embedding import FIXED, H0, Floats, NovelH0, initial_rows, newcomer_rows
from panacea.hypernets.encoders import Encoder, EncoderKind
from panacea.hypernets.learning import LearningParameters, LearningServer, embedding_spread, server_terms
from panacea.hypernets.links import link_auc, link_logits
from panacea.hypernets.network import Hypernetwork
from panacea.hypernets.plan import Execution, Fanout, Plan, Planner
from panacea.hypernets.state import HypernetworkState
from panacea.hypernets.view import Links

__all__ = ["GraphParameters", "GraphServer"]

_E_NAMES = {
    "E1": {"h0": "learned", "novel_h0": "random"},
    "E2": {"h0": "learned", "novel_h0": "neighbours"},
    "E3": {"h0": "fixed", "novel_h0": "random"},
    "E4": {"h0": "laplacian", "novel_h0": "neighbours"},
    "E5": {"h0": "features", "novel_h0": "auto"},
}


class GraphParameters(LearningParameters):
    """Hyper-parameters of graph hypernetworks."""

    preset: Literal["default", "paper"] = Field(
        "default", description="paper: as printed (mean layer, no view); default: chosen on validation data"
    )
    embedding: int = Field(100, ge=1, description="width of client embeddings (Panacea: 100)")
    h0: H0 = Field("learned", description="initial embeddings; E1 .. E5 name h0 and novel_h0 together")
    novel_h0: NovelH0 = Field("auto", description="a newcomer's embedding: neighbours (their mean), mean, random")
    encoder: EncoderKind = Field("sage", description="graph layer: mean, gcn, sage, gat (deaf to weights), gated")
    layers: int = Field(3, ge=1, description="graph layers (Panacea: 3)")
    width: int = Field(100, ge=1, description="width of graph layers (Panacea: 100)")
    residual: bool = Field(False, description="each graph layer adds to its input instead of replacing it")
    norm: bool = Field(False, description="layer normalisation in the encoder")
    newcomer_view: float = Field(
        0.3, ge=0, description="weight of a second fit, of the cohort as newcomers: from the mean of their neighbours"
    )
    newcomer_links: Literal["some", "all"] = Field(
        "some", description="neighbours that newcomers of that fit hear: a number drawn for every visit, or all"
    )
    newcomer_practice: float = Field(
        0.5, ge=0, le=1, description="share of visits in which a client is sent the model of that fit (if there is one)"
    )
    graph_mode: Literal["inductive", "transductive"] = Field(
        "inductive", description="newcomers' nodes are absent from the graph in training, or present"
    )
    execution: Execution = Field("auto", description="dense, sparse or neighbourhood; auto by the number of clients")
    fanout: Fanout = Field(
        "auto", description="neighbours heard in a round, drawn anew: all, or so many; auto: all up to 2,000 clients"
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        values = dict(given)
        if isinstance(values.get("h0"), str):
            named = _E_NAMES.get(values["h0"].upper(), {"h0": values["h0"]})
            values = {**named, **values, "h0": named["h0"]}
        return {**cls.paper_values(), **values} if values.get("preset") == "paper" else values

    @classmethod
    def paper_values(cls) -> dict[str, Any]:
        """What `preset=paper` sets, unless a key is given by itself."""
        return {
            "encoder": "mean", "layers": 3, "residual": False, "norm": False, "newcomer_view": 0.0,
            "newcomer_links": "all", "newcomer_practice": 0.0, "h0": "learned", "novel_h0": "neighbours",
            "update": "target", "graph_mode": "inductive",
        }  # fmt: skip


class GraphServer(LearningServer):
    """Embeddings along the training graph, models from them, and newcomers by their links."""

    parameter_model: ClassVar[type[MethodParameters]] = GraphParameters
    parameters: GraphParameters
    graph: ClientGraph
    planner: Planner
    _admission: Planner | None = None
    _codes: tuple[Tensor, Tensor, dict[int, Tensor]] | None = None

    def prepare(self, setting: Setting) -> tuple[Hypernetwork, Floats]:
        """Embeddings of the nodes of the training graph, an encoder along it, trunk and heads."""
        p = self.parameters
        if setting.graph is None:
            raise RequestError(f"method={self.name} needs a relation graph and this data has none; try graph=knn")
        inductive = p.graph_mode == "inductive"
        self.nodes = setting.train_ids if inductive else np.arange(setting.graph.n)
        self.graph = setting.graph.take(self.nodes) if inductive else setting.graph
        rows = initial_rows(p.h0, self.nodes, self.graph, setting.features, p.embedding, setting.streams)
        if p.encoder == "gated" and rows.shape[1] > p.width:
            raise RequestError(
                f"method.encoder=gated needs layers at least as wide as its inputs: width={p.width}, but embeddings "
                f"have {rows.shape[1]} numbers; raise method.width or lower method.embedding"
            )
        encoder = Encoder(p.encoder, p.layers, rows.shape[1], p.width, p.residual, p.norm)
        self.planner = Planner(self.graph, encoder, setting.initial, p.execution, p.fanout)
        self._admission = self._codes = None
        transform = self.transform_width
        return Hypernetwork(encoder, (p.hidden, p.hidden), self.head(p.hidden), transform=transform), rows

    @property
    def transform_width(self) -> int:
        """Width of the graph generator's transform, 0 without one."""
        return 0

    @property
    def trains_table(self) -> bool:
        """Whether embeddings are learnt."""
        return self.parameters.h0 not in FIXED

    @property
    def view_weight(self) -> float:
        """Weight of the newcomers' view."""
        return self.parameters.newcomer_view

    def plan(self, cohort: Cohort) -> Plan:
        """The cohort's neighbourhood, or the whole graph where it is small."""
        rows, key = self.rows_of(cohort.ids), self.draw_key(cohort.round)
        return self.planner.round(
            rows, links=False, balanced=True, view=self.view_links(cohort), extra=rows[:0], key=key
        )

    def view_links(self, cohort: Cohort) -> Links | None:
        """What the cohort hears in the newcomers' view; of d links each number from 1 to d is as likely.

        Taken in the order of the round's draw of neighbours: where that leaves few, the first of them are among them.
        """
        if not self.view_weight:
            return None
        share = np.ones(len(cohort))
        if self.parameters.newcomer_links == "some":
            share -= self._drawn("newcomers' links", cohort)
        return Links(share, self.draw_key(cohort.round))

    def sent(self, server: HypernetworkState, cohort: Cohort) -> Tensor:
        """A client's own model, or in a share of the visits the one it would get if it were new."""
        own = super().sent(server, cohort)
        practised = self._drawn("practice", cohort) < self.parameters.newcomer_practice * (self.view_weight > 0)
        if not practised.any():
            return own
        plan = self.planned(cohort)
        assert plan.view is not None
        with torch.no_grad():
            h = plan.view.of(self._touched(plan, server.table), self._middle(server, plan))
            z = self.network.encode(self.parts(server), h, plan)[plan.clients[len(cohort) :]]
        return torch.where(on_device(practised, own.device).unsqueeze(-1), self.generate(server, z), own)

    def _drawn(self, purpose: str, cohort: Cohort) -> Floats:
        return uniform(self.setting.streams.keys(purpose, cohort.round, cohort.ids), 1)[:, 0]

    def draw_key(self, round: int) -> int:
        """Of the neighbours heard in a round."""
        return self.setting.streams.key("neighbours heard", round)

    def encode(self, server: HypernetworkState, rows: ClientIds, round: int | None = None) -> Tensor:
        """``z`` of these nodes in the training graph."""
        if round is not None and self.planner.fanout is not None:
            return self._encoded(server, server.table, self.planner.encode(rows, self.draw_key(round)))
        if self.planner.crowded(len(rows)):
            return self._everyone(server, self.planner, lambda: server.table)[self._index(rows)]
        return self._encoded(server, server.table, self.planner.encode(rows))

    def _encoded(self, server: HypernetworkState, table: Tensor, plan: Plan) -> Tensor:
        with torch.no_grad():
            h = table if plan.rows is None else table[plan.rows]
            return self.network.encode(self.parts(server), h, plan)[plan.clients]

    def _everyone(self, server: HypernetworkState, planner: Planner, table: Callable[[], Tensor]) -> Tensor:
        """``z`` of all nodes; those of the last state asked for are at hand: it is asked more than once."""
        if self._codes is None or self._codes[0] is not server.weights or self._codes[1] is not server.table:
            self._codes = server.weights, server.table, {}
        known = self._codes[2]
        if id(planner) not in known:  # the training graph's, and with newcomers the full one's
            known[id(planner)] = self._encoded(server, table(), planner.everyone())
        return known[id(planner)]

    def _index(self, rows: ClientIds) -> Tensor:
        return on_device(rows, self.setting.initial.device)

    # --- newcomers ----------------------------------------------------------------------------------------------

    @property
    def newcomer_uses(self) -> NewcomerData:
        """Its links (and with h0=features what is known of it), none of its samples."""
        return "links"

    def admit(self, server: HypernetworkState, clients: ClientStore, newcomers: Newcomers) -> Parameters:
        """Generated along the full graph, newcomers included; their h0 by `novel_h0`."""
        graph = newcomers.graph if newcomers.graph is not None else self.setting.graph
        assert graph is not None
        if self._admission is None or self._admission.graph is not graph:
            self._admission = Planner(graph, self.network.encoder, self.setting.initial, self.planner.execution)
            self._codes = None
        planner = self._admission

        def table() -> Tensor:
            return self._full_table(server, graph, newcomers)

        if planner.crowded(len(newcomers.ids)):
            z = self._everyone(server, planner, table)[self._index(newcomers.ids)]
        else:
            z = self._encoded(server, table(), planner.encode(newcomers.ids))
        return self.scope.join(self.generate(server, z), server.rest)

    def newcomer_table(self, server: HypernetworkState, newcomers: Newcomers) -> Tensor:
        """By `novel_h0`, along the graph that has them."""
        assert newcomers.graph is not None
        return self._full_table(server, newcomers.graph, newcomers)[self._index(newcomers.ids)]

    def _full_table(self, server: HypernetworkState, graph: ClientGraph, newcomers: Newcomers) -> Tensor:
        """h0 of every node of the full graph; those that never trained get theirs by the rule."""
        unknown = np.setdiff1d(np.arange(graph.n), self.nodes)
        if not len(unknown):
            return server.table
        p = self.parameters
        rows = newcomer_rows(
            p.h0, p.novel_h0, server.table, self.nodes, unknown, graph, newcomers.features, self.setting.streams
        )
        table = server.table.new_empty(graph.n, server.table.shape[1])
        table[torch.from_numpy(self.nodes).to(table.device)] = server.table
        table[torch.from_numpy(unknown).to(table.device)] = rows
        return table

    def diagnostics(self, server: HypernetworkState, clients: ClientStore, train_ids: ClientIds) -> dict[str, float]:
        """Spread of the embeddings, how well links are told from them, and how the server's last steps went."""
        rows = self.planner.looked_at()
        z = self.encode(server, rows)
        logits = link_logits(self.parts(server), z)
        auc = link_auc(logits, torch.from_numpy(self.planner.linked(rows)).to(logits.device))
        return embedding_spread(z) | ({} if math.isnan(auc) else {"link_auc": auc}) | server_terms(server)
