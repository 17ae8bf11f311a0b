"""APFL: a mixture of a personal and the global model, with a weight that each client learns."""

from __future__ import annotations

import copy
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from panacea.core.local import Iterate, Local
from panacea.core.method import Adaptation, Facts, MethodParameters, Model, NewcomerData
from panacea.core.parameters import Parameters
from panacea.core.random import Streams
from panacea.core.records import record
from panacea.core.store import ClientStore
from panacea.core.types import Batch, Newcomers, Origin, Setting
from panacea.core.visit import Visit
from panacea.data.task import Task
from panacea.methods.fedavg import FedAvgBeside, FedAvgParameters, StartedModel
from panacea.methods.registry import method

__all__ = ["Apfl"]


class ApflParameters(FedAvgParameters):
    """Hyper-parameters of APFL."""

    alpha: float = Field(0.5, ge=0, le=1, description="share of the personal model at the start (public code: 0.5)")
    adaptive: Literal["round", "step", "never"] = Field(
        "round", description="when alpha learns: in the first step of a visit (paper), in every step, or never"
    )
    mixing: Literal["parameters", "logits"] = Field(
        "parameters", description="what is mixed: the models' parameters (paper), or their outputs (public code)"
    )
    novel: Literal["global", "fit"] = Field("global", description="a newcomer's model: w, or the mixture of one visit")


@record
class Mixture:
    """What a client keeps: its personal model v and its share alpha ``[..., 1]``."""

    params: Parameters
    alpha: Tensor


@record
class Training:
    """Carry: the global model's local copy, v, alpha, and how many steps were taken ``[..., 1]``."""

    shared: Iterate
    personal: Iterate
    alpha: Tensor
    taken: Tensor


class OutputMixture(nn.Module):
    """Two networks whose outputs are mixed: ``alpha v(x) + (1 - alpha) w(x)``; its vector is (alpha, w, v)."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.zeros(1))
        self.shared, self.personal = module, copy.deepcopy(module)

    def forward(self, x: Tensor) -> Tensor:
        """The mixture of outputs."""
        mixed: Tensor = self.alpha * self.personal(x) + (1 - self.alpha) * self.shared(x)
        return mixed


@method("apfl")
class Apfl(FedAvgBeside):
    """Every client mixes a personal model into the global one and learns how much of it.

    Paper: Deng, Kamani, Mahdavi: Adaptive personalized federated learning, 2020 (arXiv 2003.13461).

    Client i: ``w_i <- w``; K_c times, on one batch, with ``vbar = alpha v_i + (1 - alpha) w_i``:
        ``w_i <- w_i - eta grad f_i(w_i)``, ``v_i <- v_i - eta alpha grad f_i(vbar)``, and once a visit
        ``alpha <- clip_[0,1](alpha - eta <v_i - w_i, grad f_i(vbar)>)``; sends ``w_i``, keeps ``v_i, alpha``.
    Server: as FedAvg. Evaluated: ``alpha v_i + (1 - alpha) w`` with the newest w; ``w`` for clients never sampled.

    Parameters:
        alpha: at the start; public code has 0.5.
        adaptive: ``round`` as in the paper (its gradient on the first batch of the visit).
        mixing: ``parameters`` is the paper's; with ``logits`` the evaluated network holds both models and mixes their
            outputs, ``f_i(vbar)`` above is the loss of that mixture, and alpha's gradient is its slope in alpha.
        novel: newcomers get w (alpha = 0), or the mixture one visit on their own samples gives.
        weighting: see FedAvg.

    Reduces to: FedAvg with alpha = 0, Separate with alpha = 1 for clients that were sampled (adaptive = never), but for
    the masks of Dropout, which go by the number of gradients taken.

    Differences from the paper: public code mixes logits, and adds 0.02 alpha to alpha's gradient; the first is an
    option here, the second is left out. v_i starts at the common initial model. Networks with BatchNorm have one set of
    running statistics, which follows the mixture, for it is what is evaluated (mixed logits: one each).
    """

    facts: ClassVar[Facts] = Facts(
        "Deng et al., arXiv", 2020, "w", "v_i, alpha_i", "U", "U", "the global model, or a mixture fitted"
    )
    parameter_model: ClassVar[type[MethodParameters]] = ApflParameters
    parameters: ApflParameters
    gradients = 2
    keeps_model = True

    def enlarge(self, module: nn.Module, task: Task, streams: Streams) -> nn.Module:
        """Both networks, where their outputs are mixed."""
        return OutputMixture(module) if self.parameters.mixing == "logits" else module

    def init_server(self, setting: Setting) -> StartedModel:
        """The initial model, twice."""
        return self.template(setting.origin, 0)

    def template(self, origin: Origin, round: int) -> StartedModel:
        """The initial model, twice."""
        return StartedModel(*2 * (self._shared(origin.initial),))

    def _shared(self, params: Parameters) -> Parameters:
        """``w`` of a whole vector: all of it, or of the mixture of outputs (alpha, w, v) the middle."""
        return params[..., 1 : 1 + params.shape[-1] // 2] if self.parameters.mixing == "logits" else params

    def mixture(self, alpha: Tensor, v: Tensor, w: Tensor) -> Parameters:
        """The evaluated vector: the mixed parameters, or all that the mixture of outputs is made of."""
        if self.parameters.mixing == "logits":
            return torch.cat([alpha, w, v], dim=-1)
        return alpha * v + (1 - alpha) * w

    def slopes(self, alpha: Tensor, v: Tensor, w: Tensor, batch: Batch, local: Local) -> tuple[Tensor, Tensor, Tensor]:
        """Of w's own loss in w, and of the mixture's loss in v and in alpha."""
        if self.parameters.mixing == "logits":  # without a share of v, the mixture is w
            alone = local.grad(self.mixture(torch.zeros_like(alpha), v, w), batch, track=False)
            g_alpha, _, g_v = local.grad(self.mixture(alpha, v, w), batch).split([1, *2 * v.shape[-1:]], dim=-1)
            return alone.split([1, *2 * v.shape[-1:]], dim=-1)[1], g_v, g_alpha
        g_w = local.grad(w, batch, track=False)
        slope = local.grad(self.mixture(alpha, v, w), batch)
        return g_w, alpha * slope, ((v - w) * slope).sum(dim=-1, keepdim=True)

    def init_client(self, download: StartedModel) -> Mixture:
        """The initial model as ``v``, alpha as set."""
        return Mixture(download.initial, torch.full_like(download.initial[..., :1], self.parameters.alpha))

    def start(self, download: StartedModel, client: Mixture, local: Local) -> Training:
        """The received model, and the client's own as they were left."""
        return Training(
            local.sgd.start(download.params),
            local.sgd.start(client.params),
            client.alpha,
            torch.zeros_like(client.alpha),
        )

    def step(
        self, carry: Training, download: StartedModel, client: Mixture, batches: tuple[Batch, ...], local: Local
    ) -> Training:
        """One step of w, v and, when it is time, alpha; all from the values before."""
        w, v, alpha = carry.shared, carry.personal, carry.alpha
        g_w, g_v, g_alpha = self.slopes(alpha, v.params, w.params, batches[0], local)
        if self.parameters.adaptive != "never":
            learnt = (alpha - local.sgd.lr * g_alpha).clamp(0.0, 1.0)
            every = self.parameters.adaptive == "step"
            alpha = learnt if every else torch.where(carry.taken == 0, learnt, alpha)
        return Training(local.sgd(w, g_w), local.sgd(v, g_v), alpha, carry.taken + 1)

    def finish(
        self, carry: Training, download: StartedModel, client: Mixture, steps: int | Tensor
    ) -> tuple[Model, Mixture]:
        """The shared copy is sent, v and alpha are kept."""
        return Model(carry.shared.params), Mixture(carry.personal.params, carry.alpha)

    def own_model(self, download: StartedModel, client: Mixture | None) -> Parameters:
        """The mixture; a client never sampled has no share of its own."""
        w = download.params
        own = Mixture(w, torch.zeros_like(w[..., :1])) if client is None else client
        return self.mixture(own.alpha, own.params, w)

    def admit(self, server: StartedModel, clients: ClientStore, newcomers: Newcomers) -> Parameters:
        """The global model: no share of its own."""
        w = server.params.expand(len(newcomers.ids), -1)
        return self.mixture(torch.zeros_like(w[:, :1]), w, w)

    def diagnostics(self, server: StartedModel, clients: ClientStore, train_ids: object) -> dict[str, float]:
        """The mean share of the personal model, over the clients sampled so far."""
        own = clients.packed()[1]
        return {} if own is None else {"alpha_mean": float(own.alpha.mean())}

    @property
    def newcomer_uses(self) -> NewcomerData:
        """Nothing, or its samples."""
        return "train split" if self.parameters.novel == "fit" else "nothing"

    def adapt_newcomer(self, server: StartedModel, newcomers: Newcomers) -> Adaptation | None:
        """A visit in which v begins at w."""
        if self.parameters.novel == "global":
            return None

        def begun(model: Model) -> StartedModel:
            return StartedModel(*2 * (self._shared(model.params),))

        return Adaptation(Visit(self, lambda _, kept, sent: self.mixture(kept.alpha, kept.params, sent.params), begun))
