"""FedBN: FedAvg for everything but BatchNorm."""

from __future__ import annotations

from typing import ClassVar

import torch

from panacea.core.method import Adaptation, Facts, MethodParameters, Model, NewcomerData
from panacea.core.parameters import Parameters
from panacea.core.store import ClientStore
from panacea.core.types import Newcomers, Origin
from panacea.errors import RequestError
from panacea.methods.fedavg import FedAvgParameters
from panacea.methods.fedper import FedPer, SharedPart
from panacea.methods.registry import method

__all__ = ["FedBn"]


@method("fedbn")
class FedBn(FedPer):
    """FedAvg for all layers but BatchNorm, whose scales, shifts and statistics stay with the client.

    Paper: Li, Jiang, Zhang, Kamp, Dou: FedBN: federated learning on non-IID features via local batch normalization,
    ICLR 2021 (arXiv 2102.07623).

    Client i: SGD on all parameters; sends all but those of BatchNorm, which it keeps with their running statistics.
    Server: FedAvg's mean of what was sent. Evaluated: the shared layers with the client's own BatchNorm.
    A newcomer is given the mean of the clients' BatchNorm parameters and statistics.

    Parameters:
        weighting: see FedAvg.

    Reduces to: plain SGD with one client, as FedAvg does.

    Differences from the paper: none known. A network without BatchNorm is refused, for there this is FedAvg.
    """

    facts: ClassVar[Facts] = Facts(
        "Li et al., ICLR", 2021, "all but BatchNorm", "BatchNorm_i", "4(P - P_own)", "4(P - P_own)",
        "the mean of the clients' BatchNorm",
    )  # fmt: skip
    parameter_model: ClassVar[type[MethodParameters]] = FedAvgParameters
    parameters: FedAvgParameters  # type: ignore[assignment]  # none of FedPer's own
    shares_statistics = False

    def personal_tensors(self, origin: Origin) -> str:
        """The parameters of every layer that has running statistics."""
        layers = {name.rpartition(".")[0] for name in origin.statistics_layout.names}
        own = [name for name in origin.layout.names if name.rpartition(".")[0] in layers]
        if not own:
            raise RequestError(
                "method=fedbn: the network has no BatchNorm with parameters; use one that has, e.g. model.norm=batch"
            )
        return "+".join(own)

    def admit(self, server: SharedPart, clients: ClientStore, newcomers: Newcomers) -> Parameters:
        """The shared part with the mean of the clients' own."""
        own: Model | None = clients.packed()[1]
        mean = server.start if own is None else torch.mean(own.params, dim=0)
        return self.scope.join(mean, server.params).expand(len(newcomers.ids), -1)

    @property
    def newcomer_uses(self) -> NewcomerData:
        """Nothing."""
        return "nothing"

    def adapt_newcomer(self, server: SharedPart, newcomers: Newcomers) -> Adaptation | None:
        """Nothing to be trained."""
        return None
