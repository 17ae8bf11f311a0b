"""What FedAMP and HeurFedAMP share: a server that gives each client a mixture of similar clients' models."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from panacea.core.aggregate import with_rows
from panacea.core.local import Iterate, Local, refuse_unstable
from panacea.core.method import Adaptation, Method, MethodParameters, Model, NewcomerData
from panacea.core.parameters import Parameters
from panacea.core.records import record, unsent
from panacea.core.store import ClientStore
from panacea.core.transfer import on_device
from panacea.core.types import Batch, ClientIds, Cohort, Newcomers, Origin, Setting

__all__ = ["ClientModels", "MessagePassing", "MessagePassingParameters"]

_ALL = 1_000  # clients up to which all models are looked at, heard or not


class MessagePassingParameters(MethodParameters):
    """What FedAMP and HeurFedAMP share."""

    start: Literal["centre", "own"] = Field(
        "centre", description="local training begins at u_i, or at the client's w_i"
    )
    prox: Literal["gradient", "closed_form"] = Field(
        "gradient", description="pull towards u_i: in the gradient, or in closed form after each step (always stable)"
    )


@record
class ClientModels:
    """Server state: the last model of each training client ``[clients, P]``, and whether it was ever heard."""

    models: Parameters
    heard: Tensor


@record
class Centre:
    """Download: the cloud model u_i, and the pull towards it ``[rows, 1]``, which follows from the keys."""

    params: Parameters
    rho: Tensor = unsent()


class MessagePassing(Method):
    """Base of both; a variant says how similarity becomes weights."""

    parameters: MessagePassingParameters
    averages = False
    keeps_model = True
    setting: Setting
    pull_key: ClassVar[str]

    # --- what a variant decides -------------------------------------------------------------------------------

    @abstractmethod
    def weights(self, own: Tensor, others: Tensor, known: Tensor, same: Tensor, round: int) -> Tensor:
        """``[rows, clients]``: xi, rows summing to one; the row's own client has the weight on itself.

        Args:
            own: ``[rows, P]`` models that ask.
            others: ``[clients, P]`` models that answer.
            known: ``[clients]`` which of them were ever heard.
            same: ``[rows, clients]`` true where both are the same client.
            round: the round's number, for schedules.
        """

    @abstractmethod
    def pull(self, round: int) -> float:
        """``rho = lambda / alpha_k``."""

    # --- server -----------------------------------------------------------------------------------------------

    def init_server(self, setting: Setting) -> ClientModels:
        """All clients at the same initial model: different ones would be too far apart to ever collaborate."""
        self.setting = setting
        if self.parameters.prox == "gradient":  # alpha_k never grows, so the last round's pull is the largest
            remedy = ", or method.prox=closed_form"
            refuse_unstable(self.name, setting.lr, self.pull(setting.rounds), self.pull_key, remedy)
        n = len(setting.train_ids)
        return ClientModels(setting.initial.repeat(n, 1), setting.initial.new_zeros(n, 1))

    def template(self, origin: Origin, round: int) -> Centre:
        """The initial model, and the pull of this round."""
        return Centre(origin.initial, torch.full_like(origin.initial[:1], self.pull(max(round, 1))))

    def _rows(self, ids: ClientIds) -> Tensor:
        return on_device(np.searchsorted(self.setting.train_ids, ids), self.setting.initial.device)

    def mixture(self, server: ClientModels, cohort: Cohort) -> Tensor:
        """``[rows, train clients]``: xi of these clients."""
        rows = self._rows(cohort.ids)
        same = torch.arange(len(server.models), device=rows.device) == rows.unsqueeze(1)
        known = server.heard.squeeze(-1) > 0
        return self.weights(server.models[rows], server.models, known, same, max(cohort.round, 1))

    def download(self, server: ClientModels, cohort: Cohort) -> Centre:
        """``u_i = sum_j xi_ij w_j``."""
        centres = self._centres(server, cohort)
        return Centre(centres, torch.full_like(centres[:, :1], self.pull(max(cohort.round, 1))))

    def _centres(self, server: ClientModels, cohort: Cohort) -> Tensor:
        """``[rows, P]``; of very many clients only those ever heard are looked at, as the others weigh nothing."""
        if len(server.models) <= _ALL:
            return self.mixture(server, cohort) @ server.models
        rows, heard = self._rows(cohort.ids), server.heard.squeeze(-1) > 0
        some = torch.cat([heard.nonzero().squeeze(-1), rows]).unique()
        models, same = server.models[some], some == rows.unsqueeze(1)
        return self.weights(server.models[rows], models, heard[some], same, max(cohort.round, 1)) @ models

    def aggregate(self, server: ClientModels, uploads: Model, cohort: Cohort) -> ClientModels:
        """The cohort's models are replaced; one that a defence does not trust moves by its trust only."""
        rows, heard = self._rows(cohort.ids), server.heard.clone()
        models = with_rows(server.models, rows, torch.lerp(server.models[rows], uploads.params, cohort.trust))
        heard[rows] = torch.maximum(heard[rows], (cohort.trust > 0).to(heard.dtype))
        return ClientModels(models, heard)

    # --- client -----------------------------------------------------------------------------------------------

    def init_client(self, download: Centre) -> Model:
        """w_i of a client never visited: what it is given."""
        return Model(download.params)

    def start(self, download: Centre, client: Model, local: Local) -> Iterate:
        """At the centre of the pull, or where the client stopped."""
        return local.sgd.start(download.params if self.parameters.start == "centre" else client.params)

    def step(
        self, carry: Iterate, download: Centre, client: Model, batches: tuple[Batch, ...], local: Local
    ) -> Iterate:
        """SGD on ``f_i(w) + rho/2 ||w - u_i||^2``."""
        gradient = local.grad(carry.params, batches[0])
        if self.parameters.prox == "gradient":
            return local.sgd(carry, gradient + download.rho * (carry.params - download.params))
        new, reach = local.sgd(carry, gradient), local.sgd.lr * download.rho
        return Iterate((new.params + reach * download.params) / (1 + reach), new.velocity)

    def finish(self, carry: Iterate, download: Centre, client: Model, steps: int | Tensor) -> tuple[Model, Model]:
        """w_i is sent and kept."""
        return Model(carry.params), Model(carry.params)

    # --- evaluation -------------------------------------------------------------------------------------------

    def personal(self, server: ClientModels, clients: ClientStore, cohort: Cohort) -> Parameters:
        """w_i; u_i of a client never visited."""
        if bool((clients.slots[cohort.ids] >= 0).all()):  # then no mixture has to be made
            return self.own_model(None, clients.take(cohort.ids, fresh=None))
        return super().personal(server, clients, cohort)

    def own_model(self, download: Centre | None, client: Model | None) -> Parameters:
        """w_i; u_i of a client never visited."""
        own = self.init_client(download) if client is None and download is not None else client
        assert own is not None
        return own.params

    def admit(self, server: ClientModels, clients: ClientStore, newcomers: Newcomers) -> Parameters:
        """The mean of the clients' models."""
        heard = server.heard if bool(server.heard.any()) else torch.ones_like(server.heard)
        mean = (heard * server.models).sum(dim=0) / heard.sum()
        return mean.expand(len(newcomers.ids), -1)

    @property
    def newcomer_alone(self) -> bool:
        """No: it is compared with the models of others, which only the server has."""
        return False

    def joining_rows(self, server: ClientModels, clients: ClientStore, newcomers: Newcomers) -> dict[str, Parameters]:
        """It begins at the model it is given."""
        return {"models": self.admit(server, clients, newcomers)}

    @property
    def newcomer_uses(self) -> NewcomerData:
        """Its samples: similarity is between trained models."""
        return "train split"

    def adapt_newcomer(self, server: ClientModels, newcomers: Newcomers) -> Adaptation:
        """Local steps from the mean make a model to compare; its mixture is the centre of a visit like any other."""
        models, heard = server.models, server.heard.squeeze(-1) > 0
        if len(models) > _ALL:  # as in `_centres`
            models, heard = models[heard], heard[heard]

        def visit(params: Parameters) -> Adaptation:
            others = torch.cat([models, params])
            known = torch.cat([heard, torch.zeros(len(params), dtype=torch.bool).to(params.device)])
            place = torch.arange(len(params), device=params.device).unsqueeze(1) + len(models)
            same = torch.arange(len(others), device=params.device) == place
            centres = self.weights(params, others, known, same, self.setting.rounds) @ others
            rho = torch.full_like(centres[:, :1], self.pull(self.setting.rounds))
            return Adaptation(self, download=Centre(centres, rho), kept=Model(params))

        return Adaptation(Method(), then=visit)

    def collaboration(self, server: ClientModels, cohort: Cohort) -> Tensor:
        """``xi`` among these clients."""
        return self.mixture(server, cohort)[:, self._rows(cohort.ids)]
