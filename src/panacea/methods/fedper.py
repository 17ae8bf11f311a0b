"""FedPer: shared body, personal last layer."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from torch import Tensor

from panacea.core.aggregate import weighted_mean
from panacea.core.local import Iterate, Local
from panacea.core.method import Adaptation, Facts, MethodParameters, Model, NewcomerData
from panacea.core.parameters import Parameters
from panacea.core.records import record, unsent
from panacea.core.scope import Scope, TrainPart
from panacea.core.store import ClientStore
from panacea.core.types import Cohort, Newcomers, Origin, Setting
from panacea.errors import RequestError
from panacea.methods.fedavg import FedAvg, FedAvgParameters
from panacea.methods.registry import method

__all__ = ["FedPer", "FedPerParameters", "SharedPart"]


class FedPerParameters(FedAvgParameters):
    """Hyper-parameters of FedPer."""

    personal: str = Field(
        "last", description="tensors that stay with the client: last (layer), or names, e.g. fc+conv2"
    )
    head_steps: int | None = Field(None, ge=1, description="steps of a newcomer's personal part; default local_steps")


@record
class SharedPart:
    """Server state, download and upload: the shared part; the personal part's start is made from the seed."""

    params: Parameters
    start: Parameters = unsent()


@method("fedper")
class FedPer(FedAvg):
    """FedAvg for the lower layers; the last layer never leaves the client.

    Paper: Arivazhagan, Aggarwal, Singh, Choudhary: Federated learning with personalization layers, 2019
    (arXiv 1912.00818).

    Client i keeps ``h_i``: K_c times ``(b, h_i) <- (b, h_i) - eta grad f_i(b, h_i)``, b as received; sends ``b``.
    Server: ``b <- sum_k weight_k b_k``. Evaluated: ``(b, h_i)``; a client never sampled has the initial ``h``.

    Parameters:
        personal: which tensors are personal; the paper's simplest choice, the classifier, by default.
        head_steps: a newcomer has no ``h`` and trains one on its own samples under the received ``b``.
        weighting: see FedAvg.

    Reduces to: FedAvg as the personal part becomes empty, Separate as it becomes everything.

    Differences from the paper: none known; the paper does not treat newcomers.
    """

    facts: ClassVar[Facts] = Facts(
        "Arivazhagan et al., arXiv", 2019, "b", "h_i", "U - 4P_own", "U - 4P_own", "h trained on its samples"
    )
    parameter_model: ClassVar[type[MethodParameters]] = FedPerParameters
    parameters: FedPerParameters
    keeps_model = True
    scope: Scope

    def personal_tensors(self, origin: Origin) -> str:
        """The tensors that stay with the client, in the form of the key `personal`."""
        return self.parameters.personal

    def bind(self, origin: Origin) -> None:
        """Where the network is cut in two."""
        own = self.personal_tensors(origin)
        self.scope = Scope.of(origin.layout, own, key="method.personal")
        if self.scope.rest is None:
            raise RequestError(f"method.personal={own}: nothing is left to share; use method=separate")

    def template(self, origin: Origin, round: int) -> SharedPart:
        """The initial model, cut in two."""
        start, shared = self.scope.split(origin.initial)
        assert shared is not None
        return SharedPart(shared, start)

    def init_server(self, setting: Setting) -> SharedPart:
        """The same."""
        self.bind(setting.origin)
        return self.template(setting.origin, 0)

    def download(self, server: SharedPart, cohort: Cohort) -> SharedPart:
        """The shared part."""
        rows = len(cohort)
        return SharedPart(server.params.expand(rows, -1), server.start.expand(rows, -1))

    def aggregate(self, server: SharedPart, uploads: SharedPart, cohort: Cohort) -> SharedPart:  # type: ignore[override]
        """FedAvg's mean of the shared part."""
        mean = weighted_mean(uploads.params, cohort.weights(self.parameters.weighting))
        return SharedPart(mean, server.start)

    def init_client(self, download: SharedPart) -> Model:
        """The common start of the personal part."""
        return Model(download.start)

    def start(self, download: SharedPart, client: Model, local: Local) -> Iterate:
        """The received part with the client's own."""
        return local.sgd.start(self.scope.join(client.params, download.params))

    def finish(
        self, carry: Iterate, download: SharedPart, client: Model, steps: int | Tensor
    ) -> tuple[SharedPart, Model]:
        """The shared part is sent, the personal one kept."""
        own, shared = self.scope.split(carry.params)
        assert shared is not None
        return SharedPart(shared, download.start), Model(own)

    def own_model(self, download: SharedPart, client: Model | None) -> Parameters:
        """The shared part with the client's own."""
        own = self.init_client(download) if client is None else client
        return self.scope.join(own.params, download.params)

    def admit(self, server: SharedPart, clients: ClientStore, newcomers: Newcomers) -> Parameters:
        """The shared part with the common start."""
        return self.scope.join(server.start, server.params).expand(len(newcomers.ids), -1)

    @property
    def newcomer_uses(self) -> NewcomerData:
        """Its samples: its personal part is trained on them."""
        return "train split"

    def adapt_newcomer(self, server: SharedPart, newcomers: Newcomers) -> Adaptation | None:
        """The personal part alone."""
        return Adaptation(TrainPart(self.scope, "chosen"), self.parameters.head_steps)
