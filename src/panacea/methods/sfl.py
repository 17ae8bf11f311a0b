"""SFL: clients' models are smoothed along the relation graph."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from panacea.core.aggregate import with_rows
from panacea.core.local import Iterate, Local, refuse_unstable
from panacea.core.method import Facts, Method, MethodParameters, Model, NewcomerData
from panacea.core.parameters import Parameters, squared_norm
from panacea.core.records import record
from panacea.core.store import ClientStore
from panacea.core.transfer import on_device
from panacea.core.types import Batch, ClientIds, Cohort, Newcomers, Origin, Setting
from panacea.errors import RequestError
from panacea.graphs import ClientGraph
from panacea.hypernets.propagation import Propagation
from panacea.methods.registry import method

__all__ = ["Sfl"]

_PORTION = 256  # clients; so many are a portion of more


class SflParameters(MethodParameters):
    """Hyper-parameters of SFL."""

    layers: int = Field(3, ge=0, description="L, how many times models travel along the graph (the authors' code: 3)")
    mix: float = Field(
        1.0, gt=0, le=1, description="share of the smoothed models, the rest stays (the authors' code: 1)"
    )
    rho_graph: float = Field(
        0.3, ge=0, description="pull towards the neighbourhood's model u_i (the authors' code: 0.3)"
    )
    rho_global: float = Field(0.3, ge=0, description="pull towards the global model (the authors' code: 0.3)")
    detached_reg: bool = Field(
        False, description="leave the pulls without a gradient, as the authors' code does by mistake"
    )


@record
class ClientModels:
    """Server state: ``[train clients, P]`` the last model of each."""

    models: Parameters


@record
class Centres:
    """Download: the neighbourhood's model u_i and the global one."""

    near: Parameters
    overall: Parameters


@method("sfl")
class Sfl(Method):
    """Every client's model is the mean of its neighbours' models over the relation graph, several hops wide.

    Paper: Chen, Long, Wu, Zhou, Jiang: Personalized federated learning with a graph, IJCAI 2022 (arXiv 2203.00829).

    Server: ``U = (1 - a) W + a At^L W`` (rows are clients, ``At`` the row-normalised adjacency with self loops),
        ``w_g = mean_i u_i`` over all training clients; client i receives ``u_i`` and ``w_g``.
    Client i: from ``w_g``, K_c SGD steps on ``f_i(w) + rho_1/2 ||w - u_i||^2 + rho_2/2 ||w - w_g||^2``; sends ``w_i``.
    Evaluated: ``u_i``. A newcomer's row starts at ``w_g`` and is smoothed over the graph with its links.

    Parameters:
        layers, mix: L and a with the values of the authors' code.
        rho_graph, rho_global: rho_1 and rho_2; 0.3 each in the authors' code.
        detached_reg: reproduces the authors' code, whose pulls are computed on detached copies and have no gradient.

    Reduces to: FedAvg with uniform weights on a complete graph, both rho = 0 and every client in every round.

    Differences from the paper: norms are squared and differentiable (the authors' code uses unsquared norms, which
    never reach the gradient); clients have copies of their own (there, one shared dict is overwritten); self loops are
    added, since our graphs have none; clients that are not sampled keep their last model, at first the initial one;
    BatchNorm's statistics are not part of what is smoothed, and travel once, not with both models; the variant that
    learns the graph (SFL*) is not offered.
    """

    facts: ClassVar[Facts] = Facts("Chen et al., IJCAI", 2022, "all w_i, graph", "nothing", "U + 4P", "U", "its links")
    parameter_model = SflParameters
    parameters: SflParameters
    averages = False
    setting: Setting
    mixing: Propagation
    readout: Tensor
    _smoothed: tuple[Tensor, int, Parameters] | None = None

    def init_server(self, setting: Setting) -> ClientModels:
        """Every client at the initial model; the read-out's weights are those of ``1/n 1^T U``."""
        if setting.graph is None:
            raise RequestError("method=sfl needs a relation graph; give graph=knn, graph=complete or a file")
        if not self.parameters.detached_reg:
            pull = self.parameters.rho_graph + self.parameters.rho_global
            refuse_unstable(self.name, setting.lr, pull, "method.rho_graph + method.rho_global")
        self.setting, self._smoothed, n = setting, None, len(setting.train_ids)
        self.mixing = self._propagation(setting.graph.take(setting.train_ids))
        weights = setting.initial.new_full((n, 1), 1 / n)
        travelled = weights
        whole = self.mixing.whole()
        for _ in range(self.parameters.layers):
            travelled = (whole.matrix.T if whole.transposed is None else whole.transposed) @ travelled
        a = self.parameters.mix
        self.readout = ((1 - a) * weights + a * travelled).squeeze(-1)
        return ClientModels(setting.initial.repeat(n, 1))

    def template(self, origin: Origin, round: int) -> Centres:
        """Both the initial model."""
        return Centres(origin.initial, origin.initial)

    def _propagation(self, graph: ClientGraph) -> Propagation:
        return Propagation(graph, "mean", self.setting.initial)

    def _rows(self, ids: ClientIds) -> ClientIds:
        return np.searchsorted(self.setting.train_ids, ids).astype(np.int64)

    def smoothed(self, models: Parameters, rows: ClientIds, mixing: Propagation) -> Parameters:
        """``u`` of these rows; only their L-hop neighbourhood is touched."""
        reached, blocks = mixing.around(rows, self.parameters.layers)
        h = models[on_device(reached, models.device)]
        for block in blocks:
            h = block.mix(h)
        a = self.parameters.mix
        return h if a == 1 else (1 - a) * models[on_device(rows, models.device)] + a * h

    def overall(self, server: ClientModels) -> Parameters:
        """``w_g``."""
        return self.readout @ server.models

    def download(self, server: ClientModels, cohort: Cohort) -> Centres:
        """u_i and w_g."""
        near = self.smoothed(server.models, self._rows(cohort.ids), self.mixing)
        return Centres(near, self.overall(server).expand(len(cohort), -1))

    def unchanged(self, downloads: Centres, uploads: Model) -> Model:
        """The global model, at which local training begins."""
        return Model(downloads.overall)

    def start(self, download: Centres, client: None, local: Local) -> Iterate:
        """Local training begins at the global model."""
        return local.sgd.start(download.overall)

    def step(
        self, carry: Iterate, download: Centres, client: None, batches: tuple[Batch, ...], local: Local
    ) -> Iterate:
        """SGD on the regularised loss."""
        p = self.parameters

        def pulls(w: Tensor) -> Tensor:
            near, overall = squared_norm(w - download.near), squared_norm(w - download.overall)
            return p.rho_graph / 2 * near + p.rho_global / 2 * overall

        return local.sgd(carry, local.grad(carry.params, batches[0], extra=None if p.detached_reg else pulls))

    def aggregate(self, server: ClientModels, uploads: Model, cohort: Cohort) -> ClientModels:
        """The cohort's rows are replaced; a row that a defence does not trust moves by its trust only."""
        rows = on_device(self._rows(cohort.ids), server.models.device)
        new = torch.lerp(server.models[rows], uploads.params, cohort.trust)
        return replace(server, models=with_rows(server.models, rows, new))

    def personal(self, server: ClientModels, clients: ClientStore, cohort: Cohort) -> Parameters:
        """u_i."""
        rows = self._rows(cohort.ids)
        if _PORTION <= len(rows) < len(server.models):  # of an evaluation, and all portions hear about everybody
            return self._everyone(server, cohort.round)[on_device(rows, server.models.device)]
        return self.smoothed(server.models, rows, self.mixing)

    def _everyone(self, server: ClientModels, round: int) -> Parameters:
        """``U``; that of the last round asked for is at hand."""
        if self._smoothed is None or self._smoothed[0] is not server.models or self._smoothed[1] != round:
            h, a = server.models, self.parameters.mix
            for _ in range(self.parameters.layers):
                h = self.mixing.whole().mix(h)
            self._smoothed = server.models, round, h if a == 1 else torch.lerp(server.models, h, a)
        return self._smoothed[2]

    def admit(self, server: ClientModels, clients: ClientStore, newcomers: Newcomers) -> Parameters:
        """A row at w_g, smoothed over the graph that has it."""
        overall = self.overall(server)
        if newcomers.graph is None:
            return overall.expand(len(newcomers.ids), -1)
        models = overall.repeat(newcomers.graph.n, 1)
        models[torch.from_numpy(self.setting.train_ids).to(models.device)] = server.models
        return self.smoothed(models, newcomers.ids, self._propagation(newcomers.graph))

    def joining_rows(self, server: ClientModels, clients: ClientStore, newcomers: Newcomers) -> dict[str, Parameters]:
        """It begins at the model it is given."""
        return {"models": self.admit(server, clients, newcomers)}

    @property
    def newcomer_uses(self) -> NewcomerData:
        """Its links."""
        return "links"

    def collaboration(self, server: ClientModels, cohort: Cohort) -> Tensor:
        """The rows of ``(1 - a) I + a At^L`` among these clients."""
        rows = self._rows(cohort.ids)
        unit = torch.eye(len(server.models), dtype=server.models.dtype, device=server.models.device)[:, rows]
        return self.smoothed(unit, rows, self.mixing)
