"""Panacea-MLP: the hypernetwork without a graph."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor

from panacea.core.method import Facts, MethodParameters
from panacea.core.parameters import Parameters
from panacea.core.store import ClientStore
from panacea.core.transfer import on_device
from panacea.core.types import ClientIds, Newcomers, Setting
from panacea.hypernets.embedding import Floats, initial_rows, newcomer_rows
from panacea.hypernets.encoders import Encoder
from panacea.hypernets.learning import LearningParameters, LearningServer, embedding_spread, server_terms
from panacea.hypernets.network import Hypernetwork
from panacea.hypernets.state import HypernetworkState
from panacea.methods.registry import method

__all__ = ["PanaceaMlp"]


class PanaceaMlpParameters(LearningParameters):
    """Hyper-parameters of Panacea-MLP."""

    embedding: int = Field(100, ge=1, description="width of client embeddings (Panacea: 100)")
    novel_h0: Literal["mean", "random"] = Field("mean", description="a newcomer's embedding: the mean row, or a new")


@method("panacea_mlp")
class PanaceaMlp(LearningServer):
    r"""A hypernetwork without a graph: every client's model is generated from its own learnt embedding alone.

    Paper: the ablation "Panacea-MLP" of Panacea (journal version, Table IV).

    ``theta_t = heads(MLP(h_t))``, h_t a learnt row; server and clients as in Panacea with ``lambda_d = 0``.

    Parameters:
        embedding, hidden, heads, rank, chunk, head_scale, scope, rest, update, optimiser, momentum, weight_decay, clip:
            as for Panacea.
        novel_h0: a newcomer's row; there is no graph to ask, so it is the mean of the trained rows.

    Reduces to: pFedHN's rule with one client a round, K_s = 1, plain SGD (pFedHN's trunk is deeper).

    Differences from the paper: the sentence that defines it is garbled; its numbers are those the earlier version
    printed for pFedHN, so it is taken as "pFedHN inside Panacea's loop": Panacea's trunk, K_s steps, mean over the
    cohort. Only the rows of a round's clients move in that round, also by momentum.
    """

    facts: ClassVar[Facts] = Facts(
        "Lin et al., TDSC", 2025, "psi, embeddings", "nothing", "U", "U", "the mean embedding"
    )
    parameter_model: ClassVar[type[MethodParameters]] = PanaceaMlpParameters
    parameters: PanaceaMlpParameters

    def prepare(self, setting: Setting) -> tuple[Hypernetwork, Floats]:
        """A table row per training client and a trunk; no graph is looked at."""
        p = self.parameters
        self.nodes = setting.train_ids
        rows = initial_rows("learned", self.nodes, None, None, p.embedding, setting.streams)
        encoder = Encoder("mean", 0, p.embedding, p.embedding)
        return Hypernetwork(encoder, (p.hidden, p.hidden), self.head(p.hidden)), rows

    def encode(self, server: HypernetworkState, rows: ClientIds, round: int | None = None) -> Tensor:
        """The rows themselves."""
        return server.table[on_device(rows, server.table.device)]

    def admit(self, server: HypernetworkState, clients: ClientStore, newcomers: Newcomers) -> Parameters:
        """From the mean of the trained rows: without a graph nothing tells newcomers apart."""
        return self.scope.join(self.generate(server, self.newcomer_table(server, newcomers)), server.rest)

    def newcomer_table(self, server: HypernetworkState, newcomers: Newcomers) -> Tensor:
        """By `novel_h0`."""
        rule, streams = self.parameters.novel_h0, self.setting.streams
        return newcomer_rows("learned", rule, server.table, self.nodes, newcomers.ids, None, None, streams)

    def diagnostics(self, server: HypernetworkState, clients: ClientStore, train_ids: ClientIds) -> dict[str, float]:
        """Spread of the embeddings, and how the server's last steps went."""
        return embedding_spread(server.table) | server_terms(server)
