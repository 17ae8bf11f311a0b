"""Separate: every client for itself."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from panacea.core.local import Iterate, Local
from panacea.core.method import Adaptation, Facts, Method, MethodParameters, Model, NewcomerData
from panacea.core.parameters import Parameters
from panacea.core.records import record, unsent
from panacea.core.types import Cohort, Newcomers, Origin
from panacea.methods.fedavg import FedAvg
from panacea.methods.registry import method

__all__ = ["Separate"]


class SeparateParameters(MethodParameters):
    """Hyper-parameters of Separate."""

    newcomer_steps: int = Field(
        500, ge=1, description="steps a novel client trains alone, from the common start, before it is evaluated"
    )


@record
class CommonStart:
    """The initial model. It does not travel: every party makes it from the seed."""

    params: Parameters = unsent()


@method("separate")
class Separate(Method):
    """Local training only; nothing is exchanged. The floor every federated method must beat.

    Paper: the baseline "Separate" of FedAMP (Huang et al., AAAI 2021), often called Local.

    Client i, when sampled: goes on training its own ``w_i`` for K_c steps ``w_i <- w_i - eta * grad f_i(w_i; batch)``.
    Server: nothing. Evaluated: ``w_i``; the common start where a client was never sampled.
    Clients are sampled as in every other method, so that visits and batches are the same and a comparison is fair.

    Parameters:
        newcomer_steps: what a novel client, which is never sampled, trains on its own data; ours.

    Reduces to: centralised SGD with one client. Ditto with lambda = 0 and APFL with alpha = 1 reduce to it.

    Differences from the paper: trains the sampled clients only (the paper trains all in every round); a run of every
    client alone to convergence with early stopping is not offered.
    """

    facts: ClassVar[Facts] = Facts("Huang et al., AAAI", 2021, "nothing", "w_i", "0", "0", "training on its samples")
    parameter_model = SeparateParameters
    shares_statistics = False
    isolated = True
    averages = False
    keeps_model = True
    parameters: SeparateParameters

    def template(self, origin: Origin, round: int) -> CommonStart:
        """The initial model."""
        return CommonStart(origin.initial)

    def download(self, server: Model, cohort: Cohort) -> CommonStart:
        """Nothing that travels."""
        return CommonStart(server.params.expand(len(cohort), -1))

    def init_client(self, download: CommonStart) -> Model:
        """The common start."""
        return Model(download.params)

    def start(self, download: CommonStart, client: Model, local: Local) -> Iterate:
        """Go on from the client's own model."""
        return local.sgd.start(client.params)

    def finish(self, carry: Iterate, download: CommonStart, client: Model, steps: object) -> tuple[None, Model]:
        """Nothing is sent, the model is kept."""
        return None, Model(carry.params)

    def aggregate(self, server: Model, uploads: None, cohort: Cohort) -> Model:
        """The server only remembers the common start."""
        return server

    def own_model(self, download: CommonStart, client: Model | None) -> Parameters:
        """``w_i``."""
        return download.params if client is None else client.params

    def adapt_newcomer(self, server: Model, newcomers: Newcomers) -> Adaptation:
        """A newcomer trains alone from the common start."""
        return Adaptation(FedAvg(), self.parameters.newcomer_steps)

    @property
    def newcomer_uses(self) -> NewcomerData:
        """Its own samples; there is nothing else."""
        return "train split"
