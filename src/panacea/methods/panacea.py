"""Panacea: a graph hypernetwork generates every client's model; and its ablation Panacea-GN."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from panacea.core.method import Facts, MethodParameters
from panacea.core.types import ClientIds, Cohort
from panacea.hypernets.graph import GraphParameters, GraphServer
from panacea.hypernets.links import link_rows
from panacea.hypernets.plan import Plan
from panacea.hypernets.state import HypernetworkState
from panacea.methods.registry import method

__all__ = ["Panacea", "PanaceaGn"]


class PanaceaParameters(GraphParameters):
    """Hyper-parameters of Panacea."""

    lambda_d: float = Field(0.01, ge=0, description="weight of the graph generator's loss L_d (of the paper's grid)")
    balance: Literal["classes", "literal"] = Field(
        "classes", description="L_d: mean over links plus mean over non-links (halved), or the mean over all pairs"
    )
    transform: Literal["mlp", "identity"] = Field("mlp", description="what L_d scores: a transform of z, or z itself")
    pairs: Literal["auto", "all", "sampled"] = Field("auto", description="pairs of L_d; auto: all, up to 512 clients")
    random_nodes: int = Field(32, ge=0, description="sampled pairs: random clients beside cohort and neighbours")

    @classmethod
    def paper_values(cls) -> dict[str, Any]:
        """As for Panacea-GN, with the generator's."""
        return {**super().paper_values(), "lambda_d": 0.1, "balance": "classes", "transform": "mlp"}


@method("panacea_gn")
class PanaceaGn(GraphServer):
    r"""Panacea without its graph generator: the hypernetwork sees the graph, but is not asked to tell links.

    Paper: the ablation "Panacea-GN" of Panacea (see there).

    Server and clients as in Panacea with ``lambda_d = 0`` and no transform ``psi_d``.

    Parameters:
        preset, embedding, h0, novel_h0, encoder, layers, width, residual, norm, newcomer_view, newcomer_links,
        newcomer_practice, graph_mode, execution, fanout, hidden, heads, rank, chunk, head_scale, scope, rest, update,
        optimiser, momentum, weight_decay, clip: as for Panacea.

    Reduces to: Panacea with ``lambda_d = 0`` is this method. On a graph without edges (mean layer) no message is
    exchanged and it is an MLP hypernetwork whose first layers are the encoder's.

    Differences from the paper: those of Panacea.
    """

    facts: ClassVar[Facts] = Facts("Lin et al., TDSC", 2025, "psi, embeddings, graph", "nothing", "U", "U", "its links")
    parameter_model: ClassVar[type[MethodParameters]] = GraphParameters
    parameters: GraphParameters


@method("panacea")
class Panacea(GraphServer):
    r"""A graph hypernetwork on the server generates every client's model and learns from what clients make of it.

    Paper: Lin, Lan, He, Li: Graph-relational federated learning: enhanced personalization and robustness, IEEE
    Transactions on Dependable and Secure Computing 2025 (doi 10.1109/TDSC.2025.3574329), and its earlier version.

    Server, state: embeddings ``h_t`` of the clients, a graph encoder ``psi_e``, a trunk with heads ``psi_m``, a
    transform ``psi_d``; A is the relation graph. Nothing of it leaves the server.
        ``z = GNN(h, A; psi_e)``, ``theta_t = heads(MLP(z_t; psi_m))``
        sends ``theta_t`` to each t of the cohort S, gets ``ttheta_t`` back, and with these fixed takes K_s steps
        ``psi <- psi - alpha * clip(grad L)``,
        ``L = 1/(2|S|) sum_{t in S} ||ttheta_t - theta_t(psi)||^2 + lambda_d L_d + newcomer_view V``
        ``L_d``: cross entropy of ``sigma(zhat_u . zhat_v)`` against the links, ``zhat = MLP(z; psi_d)``
        ``V``: the first term with S as if it were new (none with `preset=paper`): its h replaced by the mean of some
        neighbours', drawn for the visit, which speak for all; in a share of the visits (`newcomer_practice`), drawn
        too, t is sent that model in place of ``theta_t``, and ``ttheta_t`` is the target of both
    Client: ``ttheta_t <- theta_t``, then K_c times ``ttheta_t <- ttheta_t - eta * grad L_t(batch)``; keeps nothing.
    Evaluated: ``theta_t`` without a local step (``gen``), for clients that train and for newcomers alike; the model
    after K_c further local steps (``gen+local``) is scored apart.
    Newcomers: a node is added to the graph, its h is the mean of its neighbours', and the same network makes its model.

    Parameters:
        preset: `paper` sets what the paper says or needs, `default` what validation data of three data sets preferred
            (docs/panacea.md has the table). Keys given by hand win over both.
        lambda_d, balance, transform, pairs, random_nodes: the graph generator; `lambda_d` of the paper's grid, the
            others are not in the paper.
        encoder, layers, width, residual, norm: the GNN; the paper never names the layer: the mean over neighbours and
            self is the one its theory analyses.
        newcomer_view, newcomer_links, newcomer_practice: practising newcomers: the weight of V, whether some links or
            all count in it, and how often its model is the one that is sent. With all links, always the same, V is
            learnt by heart where they say little, and newcomers are served badly (docs/panacea.md).
        embedding, h0, novel_h0, graph_mode: what the encoder is given, in training and for newcomers.
        hidden, heads, rank, chunk, head_scale, scope, rest: trunk and heads; P outputs, or a part of the network.
        update, optimiser, momentum, weight_decay, clip: the server's steps; the paper is silent, so pFedHN's code.
        execution: how messages are computed. `dense` and `sparse` give the same numbers; `neighbourhood` moves only the
            embeddings near the round's clients, and L_d looks at pairs near them.
        fanout: of a large graph, how many neighbours are heard in a round (docs/scale.md); evaluation hears all.

    Reduces to: Panacea-GN with ``lambda_d = 0``; one step with one client and plain SGD is pFedHN's rule.

    Differences from the paper:
        * Its Algorithm 1 prints ``psi <- psi - alpha (d theta / d psi)^T (ttheta - theta)``, which climbs the loss its
          Eq. (4) asks to minimise. The sign here is that of Eq. (4).
        * "K_s steps" are taken towards a fixed target, as Eq. (4) says (`update=frozen_delta` is the other reading).
        * The sum over the cohort is a mean.
        * ``zhat`` comes from a transform of its own, since Eq. (8) gives L_d no gradient in the generator; its inner
          products are scaled by ``1/sqrt(d)``; pairs of a client with itself are left out; the two classes are averaged
          apart, because most pairs are not linked.
        * Newcomers' nodes are absent from the graph in training (`graph_mode=transductive` keeps them).
        * The heads' bias starts at an ordinary initialisation of the target network.
        * A round whose server steps diverge is undone and counted.
        * `residual`, `norm`, and V with its three keys are ours. In V nobody hears the newcomer, and its neighbours
          have heard the client that it is like; one that joins is heard, and starts as `h0` and `novel_h0` say.
    """

    facts: ClassVar[Facts] = Facts("Lin et al., TDSC", 2025, "psi, embeddings, graph", "nothing", "U", "U", "its links")
    parameter_model: ClassVar[type[MethodParameters]] = PanaceaParameters
    parameters: PanaceaParameters

    @property
    def lambda_d(self) -> float:
        """Weight of L_d."""
        return self.parameters.lambda_d

    @property
    def transform_width(self) -> int:
        """The transform is as wide as z; it goes with the generator."""
        return self.parameters.width if self.lambda_d and self.parameters.transform == "mlp" else 0

    def link_probability(self, server: HypernetworkState, a: ClientIds, b: ClientIds) -> Tensor | None:
        """``p_ab = sigma(zhat_a . zhat_b / sqrt(d))`` of the graph generator."""
        if not self.lambda_d:
            return None
        known = np.isin(b, self.nodes)
        ids, places = np.unique(np.concatenate([a, b[known]]), return_inverse=True)
        with torch.no_grad():
            rows = link_rows(self.parts(server), self.encode(server, self.rows_of(ids)))
        left, right = (torch.from_numpy(part).to(rows.device) for part in (places[: len(a)][known], places[len(a) :]))
        found = torch.sigmoid((rows[left] * rows[right]).sum(dim=1) / math.sqrt(rows.shape[1]))
        return rows.new_zeros(len(a)).index_copy(0, torch.from_numpy(np.flatnonzero(known)).to(rows.device), found)

    def plan(self, cohort: Cohort) -> Plan:
        """As for Panacea-GN, with the pairs L_d looks at."""
        p, rows = self.parameters, self.rows_of(cohort.ids)
        all_pairs = self.planner.all_pairs({"all": True, "sampled": False}.get(p.pairs))
        extra = rows[:0]
        if not all_pairs:
            extra = self.setting.streams.numpy("link nodes", cohort.round).integers(0, self.graph.n, p.random_nodes)
        return self.planner.round(
            rows,
            links=p.lambda_d > 0,
            balanced=p.balance == "classes",
            view=self.view_links(cohort),
            extra=extra,
            all_pairs=all_pairs,
            key=self.draw_key(cohort.round),
        )
