"""FedProx, and FedProx with local fine-tuning."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from panacea.core.local import Iterate, Local, refuse_unstable
from panacea.core.method import Adaptation, Facts, MethodParameters, Model
from panacea.core.parameters import squared_norm
from panacea.core.types import Batch, Setting
from panacea.methods.fedavg import FedAvg, FedAvgParameters
from panacea.methods.registry import method

__all__ = ["FedProx", "FedProxFt"]


class FedProxParameters(FedAvgParameters):
    """Hyper-parameters of FedProx."""

    mu: float = Field(0.1, ge=0, description="weight of the proximal term; papers' grid 0.001, 0.01, 0.1, 1")


class FedProxFtParameters(FedProxParameters):
    """Hyper-parameters of FedProx-FT."""

    tune_steps: int | None = Field(None, ge=1, description="fine-tuning steps; default: local_steps")


@method("fedprox")
class FedProx(FedAvg):
    """FedAvg whose clients are held back towards the model they received.

    Paper: Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: Federated optimization in heterogeneous networks, MLSys 2020
    (arXiv 1812.06127).

    Client k: K_c times ``w_k <- w_k - eta * grad [ f_k(w_k; batch) + mu/2 ||w_k - w||^2 ]``, w as received.
    Server: as FedAvg. Evaluated: ``w``.

    Parameters:
        mu: mu, middle of the paper's grid {0.001, 0.01, 0.1, 1} by default (libraries use 1 or 0.01).
        weighting: see FedAvg.

    Reduces to: FedAvg, bit for bit, with mu = 0.

    Differences from the paper: the inexactness gamma is a fixed number of steps; clients are sampled uniformly and
    weighted by samples, where the paper samples by samples and averages uniformly (the same in expectation).
    """

    facts: ClassVar[Facts] = Facts("Li et al., MLSys", 2020, "w", "nothing", "U", "U", "the global model")
    parameter_model: ClassVar[type[MethodParameters]] = FedProxParameters
    parameters: FedProxParameters

    def init_server(self, setting: Setting) -> Model:
        """The initial model."""
        refuse_unstable(self.name, setting.lr, self.parameters.mu, "method.mu")
        return Model(setting.initial)

    def step(self, carry: Iterate, download: Model, client: None, batches: tuple[Batch, ...], local: Local) -> Iterate:
        """SGD on the proximal loss; the term enters the loss, so its gradient is autograd's."""
        mu = self.parameters.mu
        if mu == 0:
            return local.sgd(carry, local.grad(carry.params, batches[0]))
        gradient = local.grad(carry.params, batches[0], extra=lambda w: mu / 2 * squared_norm(w - download.params))
        return local.sgd(carry, gradient)


@method("fedprox_ft")
class FedProxFt(FedProx):
    """FedProx, after which every client fine-tunes its own copy without the proximal term.

    Paper: baseline of FedAMP (Huang et al., AAAI 2021); see FedAvg-FT.

    Training: FedProx. Evaluation: `tune_steps` plain SGD steps from ``w`` on the client's own train split.

    Parameters:
        mu, weighting: see FedProx.
        tune_steps: see FedAvg-FT.

    Reduces to: FedAvg-FT with mu = 0.

    Differences from the paper: as FedProx; the number of tuning steps is ours.
    """

    facts: ClassVar[Facts] = Facts("Huang et al., AAAI", 2021, "w", "nothing", "U", "U", "w tuned to its samples")
    parameter_model = FedProxFtParameters
    parameters: FedProxFtParameters

    def adapt(self) -> Adaptation:
        """Plain SGD from the global model."""
        return Adaptation(FedAvg(), self.parameters.tune_steps)
