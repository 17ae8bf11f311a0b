"""pFedHN: a hypernetwork that learns from one client at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from panacea.core.local import Iterate, Local
from panacea.core.method import Adaptation, Facts, Method, MethodParameters, Model, NewcomerData
from panacea.core.parameters import Parameters
from panacea.core.records import Tree
from panacea.core.store import ClientStore
from panacea.core.transfer import on_device
from panacea.core.types import Batch, ClientIds, Cohort, Newcomers, Setting
from panacea.hypernets.captured import ServerGraphs
from panacea.hypernets.descent import Loss
from panacea.hypernets.embedding import Floats, initial_rows, newcomer_rows
from panacea.hypernets.encoders import Encoder
from panacea.hypernets.generating import GeneratingMethod, HypernetworkParameters, ScopedParameters
from panacea.hypernets.network import Hypernetwork
from panacea.hypernets.state import HypernetworkState
from panacea.methods.registry import method

__all__ = ["PFedHn", "PFedHnShape"]


class PFedHnShape(HypernetworkParameters):
    """Hyper-parameters of pFedHN and pFedHN-PC."""

    embedding: int | None = Field(None, ge=1, description="width of embeddings; default 1 + clients / 4 (its code)")
    hidden_layers: int = Field(3, ge=0, description="linear layers of the trunk after the first (its code: 3)")
    weight_decay: float = Field(1e-3, ge=0, description="of the server's optimiser, embeddings too (its code: 1e-3)")


class PFedHnParameters(PFedHnShape, ScopedParameters):
    """Hyper-parameters of pFedHN."""

    novel: Literal["mean", "init", "fit_embedding"] = Field(
        "mean",
        description="a newcomer's embedding: the mean row, a fresh row, or fitted on its train split",
    )
    fit_steps: int = Field(100, ge=1, description="steps of fit_embedding")
    fit_lr: float = Field(1e-2, gt=0, description="learning rate of fit_embedding")


@method("pfedhn")
class PFedHn(GeneratingMethod):
    r"""A hypernetwork on the server makes each client's model from a learnt embedding, one client's update at a time.

    Paper: Shamsian, Navon, Fetaya, Chechik: Personalized federated learning using hypernetworks, ICML 2021
    (arXiv 2103.04628), and its public code.

    Server, for each client t of the round in turn, with ``Delta_t = ttheta_t - theta_t`` (trained minus sent):
        ``(psi, v) <- (psi, v) - alpha * clip(-(d theta_t / d (psi, v))^T Delta_t)``, exactly one step per visit, with
        momentum and weight decay; the Jacobian is that of the current psi.
    Client: ``ttheta_t <- theta_t``, then K_c times ``ttheta_t <- ttheta_t - eta * grad L_t(batch)``.
    ``theta_t = heads(MLP(v_t))``, MLP = Linear(e, 100) and three times (ReLU, Linear(100, 100)).
    Evaluated: ``theta_t``, without a local step (``gen``); ``gen+local`` is scored apart.

    Parameters:
        embedding, hidden, hidden_layers: shape of the network, as in its code.
        heads, rank, chunk, head_scale: see Panacea.
        scope, rest: see Panacea.
        optimiser, momentum, weight_decay, clip: SGD with momentum 0.9, decay 1e-3, clip 50, as in its code.
        novel, fit_steps, fit_lr: newcomers. The paper freezes psi and fits the new embedding on the newcomer's data
            (`fit_embedding`); Panacea's comparison lets it have no data, which is `mean` (default) or `init`.

    Reduces to: Panacea-MLP with one client a round, K_s = 1 and this trunk (plain SGD): both then take one step along
    ``J^T Delta``.

    Differences from the paper:
        * A round's clients are all sent models of the round's start and then taken in one after the other; the paper
          has one client per round. With cohort=1 it is the paper's loop.
        * The clients' optimiser is the experiment's (`lr`, `momentum`, `weight_decay`, `clip`), equal for all methods;
          its code uses lr 5e-3, momentum 0.9, decay 5e-5, clip 50.
        * The budget is that of the other methods: rounds x cohort visits, one server step each; its code has 5,000
          steps of one client each.
        * The heads' bias starts at an ordinary initialisation of the target network.
        * A round whose server steps diverge is undone and counted, as in Panacea.
    """

    facts: ClassVar[Facts] = Facts(
        "Shamsian et al., ICML", 2021, "psi, embeddings", "nothing", "U", "U", "the mean embedding, or one fitted"
    )
    parameter_model: ClassVar[type[MethodParameters]] = PFedHnParameters
    parameters: PFedHnParameters

    def prepare(self, setting: Setting) -> tuple[Hypernetwork, Floats]:
        """A row per training client and the trunk."""
        p, self._graphs = self.parameters, ServerGraphs()
        self.nodes = setting.train_ids
        width = p.embedding or int(1 + len(setting.counts) / 4)
        rows = initial_rows("learned", self.nodes, None, None, width, setting.streams)
        encoder = Encoder("mean", 0, width, width)
        trunk = (p.hidden,) * (1 + p.hidden_layers)
        return Hypernetwork(encoder, trunk, self.head(p.hidden), last_relu=False), rows

    def encode(self, server: HypernetworkState, rows: ClientIds, round: int | None = None) -> Tensor:
        """The rows themselves."""
        return server.table[on_device(rows, server.table.device)]

    def aggregate(self, server: HypernetworkState, uploads: Tree, cohort: Cohort) -> HypernetworkState:
        """One step along ``J^T Delta`` for each client in turn."""
        targets, weights = self.uploaded(uploads, cohort)
        deltas = targets - self.generated(server, cohort.ids)
        shares = weights / weights.max().clamp_min(1e-30)  # 1 each, less for a client that is not trusted
        variables: Sequence[Tensor] = self.variables(server.table, server.weights)
        moments: Sequence[Tensor] = server.moments
        rate, layouts = self.setting.server_lr * server.rate.double(), [None, self.layout]
        places = on_device(self.rows_of(cohort.ids), server.table.device)
        for row in range(len(cohort)):
            inputs = places[row : row + 1], (shares[row] * deltas[row]).unsqueeze(0)
            variables, moments, _ = self._graphs.descend(
                self._objective, inputs, variables, moments, self.optimiser, rate, 1, layouts, None
            )
        rest = self.averaged_rest(server, uploads, cohort)
        new = replace(server, table=variables[0], weights=variables[-1], moments=tuple(moments), rest=rest)
        return self.guarded(server, new, cohort, targets, weights)

    def _objective(self, leaves: Sequence[Tensor], inputs: tuple[Tensor, Tensor]) -> tuple[Loss, Sequence[Tensor]]:
        """``-<Delta_t, theta_t>`` of the client whose row of the table and whose Delta are given."""
        (table, *parts), (place, delta) = leaves, inputs
        model = self.network.models(dict(zip(self.layout.names, parts, strict=True)), table.index_select(0, place))
        return [(model, -delta)], ()

    # --- newcomers ----------------------------------------------------------------------------------------------

    @property
    def newcomer_alone(self) -> bool:
        """Unless its embedding is fitted through the hypernetwork, which never leaves the server."""
        return self.parameters.novel != "fit_embedding"

    @property
    def newcomer_uses(self) -> NewcomerData:
        """Nothing, unless its embedding is fitted."""
        return "train split" if self.parameters.novel == "fit_embedding" else "nothing"

    def newcomer_table(self, server: HypernetworkState, newcomers: Newcomers) -> Tensor:
        """By `novel`."""
        rule: Literal["mean", "random"] = "random" if self.parameters.novel == "init" else "mean"
        streams = self.setting.streams
        return newcomer_rows("learned", rule, server.table, self.nodes, newcomers.ids, None, None, streams)

    def admit(self, server: HypernetworkState, clients: ClientStore, newcomers: Newcomers) -> Parameters:
        """From the mean of the rows, or a fresh one."""
        return self.scope.join(self.generate(server, self.newcomer_table(server, newcomers)), server.rest)

    def adapt_newcomer(self, server: HypernetworkState, newcomers: Newcomers) -> Adaptation | None:
        """With `fit_embedding`, steps on the embedding alone; psi stays as it is."""
        p = self.parameters
        if p.novel != "fit_embedding":
            return None
        parts, rest = self.parts(server), server.rest

        def make(v: Tensor) -> Tensor:
            rows = v.reshape(-1, v.shape[-1])
            models = self.scope.join(self.network.models(parts, rows), rest)
            return models.reshape(*v.shape[:-1], -1)

        return Adaptation(FitEmbedding(make, p.fit_lr), p.fit_steps, Model(self.newcomer_table(server, newcomers)))

    def diagnostics(self, server: HypernetworkState, clients: ClientStore, train_ids: ClientIds) -> dict[str, float]:
        """How the server's last steps went."""
        before, after = server.terms.tolist()[:2]
        return {"fit_before": before, "fit_after": after, "undone": int(server.undone)}


class FitEmbedding(Method):
    """A newcomer's programme: ``v <- v - lr (d theta / d v)^T grad L(theta(v))`` with the hypernetwork frozen."""

    def __init__(self, make: Callable[[Tensor], Tensor], lr: float) -> None:
        super().__init__()
        self.make, self.lr = make, lr

    def start(self, download: Model, client: Tree, local: Local) -> Iterate:
        """The embedding it was given."""
        return Iterate(download.params)

    def step(self, carry: Iterate, download: Model, client: Tree, batches: tuple[Batch, ...], local: Local) -> Iterate:
        """The chain rule through the hypernetwork."""
        with torch.enable_grad():
            v = carry.params.detach().requires_grad_()
            model = self.make(v)
        (direction,) = torch.autograd.grad(model, v, local.grad(model.detach(), batches[0]))
        return Iterate(carry.params - self.lr * direction)

    def finish(self, carry: Iterate, download: Model, client: Tree, steps: int | Tensor) -> tuple[Model, Tree]:
        """The model of the fitted embedding."""
        with torch.no_grad():
            return Model(self.make(carry.params)), client
