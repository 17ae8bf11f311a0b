"""Ditto: a global model by FedAvg, and beside it a personal one that is held towards it."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor

from panacea.core.local import Iterate, Local, refuse_unstable
from panacea.core.method import Adaptation, Facts, MethodParameters, Model, NewcomerData
from panacea.core.parameters import Parameters
from panacea.core.records import record
from panacea.core.types import Batch, Newcomers, Setting
from panacea.core.visit import Visit
from panacea.methods.fedavg import FedAvgBeside, FedAvgParameters, StartedModel
from panacea.methods.registry import method

__all__ = ["Ditto"]


class DittoParameters(FedAvgParameters):
    """Hyper-parameters of Ditto."""

    lam: float = Field(0.05, ge=0, description="lambda, pull of the personal model towards w (the authors' code: 0.05)")
    personal_start: Literal["initial", "received"] = Field(
        "initial", description="v_i before a client's first visit: the common initial model (paper), or the received w"
    )
    novel: Literal["global", "fit"] = Field("global", description="a newcomer's model: w, or v fitted to its samples")
    novel_steps: int | None = Field(None, ge=1, description="steps of novel=fit; default local_steps")


@record
class Tracks:
    """Carry: the global model's local copy and the personal model."""

    shared: Iterate
    personal: Iterate


@method("ditto")
class Ditto(FedAvgBeside):
    """FedAvg, beside which every client trains a personal model that is held towards the global one.

    Paper: Li, Hu, Beirami, Smith: Ditto: fair and robust federated learning through personalization, ICML 2021
    (arXiv 2012.04221).

    Client i: ``w_i <- w``, and K_c times, on the same batch,
        ``w_i <- w_i - eta * grad f_i(w_i)`` and
        ``v_i <- v_i - eta * (grad f_i(v_i) + lambda (v_i - w))``, w as received; sends ``w_i``, keeps ``v_i``.
    Server: as FedAvg. Evaluated: ``v_i``; ``w`` where a client was never sampled or is new.

    Parameters:
        lam: lambda; the authors' code has 0.05, their scripts 1; our grid {0.05, 0.1, 0.5, 1, 2}.
        personal_start: the paper starts every v_i at the initial model; ``received`` serves late clients better.
        novel, novel_steps: the authors' code gives newcomers w; ``fit`` trains v on their own samples from w.
        weighting: see FedAvg (samples in the authors' PyTorch code, uniform in their TensorFlow code).

    Reduces to: the shared track is FedAvg's, bit for bit; lam = 0 is Separate for clients that were sampled;
    lam to infinity is FedAvg. (Dropout's masks go by the number of gradients taken, so that they are others.)

    Differences from the paper: none known. Both tracks see the same batch, as in the authors' code. Networks with
    BatchNorm have one set of running statistics, which follows the personal model, for it is what is evaluated.
    """

    facts: ClassVar[Facts] = Facts("Li et al., ICML", 2021, "w", "v_i", "U", "U", "the global model, or v fitted")
    parameter_model: ClassVar[type[MethodParameters]] = DittoParameters
    parameters: DittoParameters
    gradients = 2
    keeps_model = True

    def init_server(self, setting: Setting) -> StartedModel:
        """The initial model, twice."""
        refuse_unstable(self.name, setting.lr, self.parameters.lam, "method.lam")
        return super().init_server(setting)

    def init_client(self, download: StartedModel) -> Model:
        """v_i."""
        return Model(download.initial if self.parameters.personal_start == "initial" else download.params)

    def start(self, download: StartedModel, client: Model, local: Local) -> Tracks:
        """The received model, and the personal one as it was left."""
        return Tracks(local.sgd.start(download.params), local.sgd.start(client.params))

    def step(
        self, carry: Tracks, download: StartedModel, client: Model, batches: tuple[Batch, ...], local: Local
    ) -> Tracks:
        """One step of each track."""
        w, v = carry.shared, carry.personal
        shared = local.sgd(w, local.grad(w.params, batches[0], track=False))
        pull = self.parameters.lam * (v.params - download.params)
        return Tracks(shared, local.sgd(v, local.grad(v.params, batches[0]) + pull))

    def finish(self, carry: Tracks, download: StartedModel, client: Model, steps: int | Tensor) -> tuple[Model, Model]:
        """The shared track is sent, the personal one kept."""
        return Model(carry.shared.params), Model(carry.personal.params)

    def own_model(self, download: StartedModel, client: Model | None) -> Parameters:
        """v_i of those who have one."""
        return download.params if client is None else client.params

    @property
    def newcomer_uses(self) -> NewcomerData:
        """Nothing, or its samples."""
        return "train split" if self.parameters.novel == "fit" else "nothing"

    def adapt_newcomer(self, server: StartedModel, newcomers: Newcomers) -> Adaptation | None:
        """A visit in which v begins at w."""
        if self.parameters.novel == "global":
            return None
        fit = Visit(self, lambda upload, kept, _: kept.params, lambda model: StartedModel(model.params, model.params))
        return Adaptation(fit, self.parameters.novel_steps)
