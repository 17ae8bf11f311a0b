"""pFedMe: personal models as proximal points of the global one (Moreau envelopes)."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor

from panacea.core.aggregate import weighted_mean
from panacea.core.local import Iterate, Local, refuse_unstable
from panacea.core.method import Adaptation, Facts, MethodParameters, Model, NewcomerData
from panacea.core.parameters import Parameters
from panacea.core.records import record
from panacea.core.types import Batch, Cohort, Newcomers, Setting
from panacea.core.visit import Visit
from panacea.errors import RequestError
from panacea.methods.fedavg import FedAvg, FedAvgParameters
from panacea.methods.registry import method

__all__ = ["PFedMe"]


class PFedMeParameters(FedAvgParameters):
    """Hyper-parameters of pFedMe."""

    lam: float = Field(15.0, gt=0, description="lambda of the Moreau envelope (the authors' code: 15)")
    inner_steps: int = Field(5, ge=1, description="K, gradient steps of theta on one batch (the authors' code: 5)")
    outer_lr: float | None = Field(
        None, gt=0, description="eta of the local copy w_i; default min(lr, 1/lam) (the authors' code: 0.005)"
    )
    beta: float = Field(1.0, gt=0, description="the server's step towards the mean (the authors' code: 1)")
    novel: Literal["global", "fit"] = Field("fit", description="a newcomer's model: theta of one visit from w, or w")


@record
class Envelope:
    """Carry: the local copy w_i and the personal model theta."""

    copy: Parameters
    theta: Iterate


@method("pfedme")
class PFedMe(FedAvg):
    r"""Every client's model is a proximal point of the global one, which descends the clients' Moreau envelopes.

    Paper: Dinh, Tran, Nguyen: Personalized federated learning with Moreau envelopes, NeurIPS 2020 (arXiv 2006.08848).

    Client i: ``w_i <- w, theta <- w``; K_c times, on one batch each,
        K times ``theta <- theta - eta_p (grad f_i(theta) + lambda (theta - w_i))``, then
        ``w_i <- w_i - eta lambda (w_i - theta)``; sends ``w_i``, keeps ``theta_i``.
        For exact inner steps ``theta = prox_{f_i / lambda}(w_i)``, and ``lambda (w_i - theta)`` is the gradient of the
        envelope ``min_theta f_i(theta) + lambda/2 ||theta - w_i||^2``.
    Server: ``w <- (1 - beta) w + beta sum_k weight_k w_k``.
    Evaluated: ``theta_i``; ``w`` where a client was never sampled. A newcomer takes one visit's steps from w (`novel`).

    Parameters:
        lam, inner_steps, beta: lambda, K, beta with the values of the authors' code. eta_p is the experiment's `lr`
            (their 0.09); R, the number of outer steps, is `local_steps` (their 20).
        outer_lr: eta. A step moves w_i by eta times the envelope's gradient, so that the authors' 0.005 trains w as
            slowly as FedAvg would at that rate; by default it is the experiment's `lr`, at most 1 / lambda (ours).
        novel: ``fit`` uses the train split of the newcomer; ``global`` gives w.
        weighting: by samples, as in the authors' code.

    Reduces to: FedAvg with one inner step, eta lambda = 1 and beta = 1: then w_i follows theta, and the pull vanishes.

    Differences from the paper: sampled clients train (the authors' code trains all and uses the sampled); theta is
    evaluated (by reading, their code evaluates w_i, whose storage the list of personal weights shares); their hidden
    weight decay of 0.001 is the experiment's `weight_decay`, 0 by default.
    """

    facts: ClassVar[Facts] = Facts("Dinh et al., NeurIPS", 2020, "w", "theta_i", "U", "U", "theta fitted, or w")
    parameter_model: ClassVar[type[MethodParameters]] = PFedMeParameters
    parameters: PFedMeParameters
    keeps_model = True

    def __init__(self, parameters: MethodParameters | None = None) -> None:
        super().__init__(parameters)
        self.gradients = self.parameters.inner_steps

    def init_server(self, setting: Setting) -> Model:
        """The initial model; rates that cannot converge are refused."""
        p = self.parameters
        refuse_unstable(self.name, setting.lr, p.lam, "method.lam")
        if p.outer_lr is not None and p.outer_lr * p.lam >= 2:
            raise RequestError(
                f"method=pfedme: method.outer_lr={p.outer_lr:g} times method.lam={p.lam:g} must be below 2, or w_i "
                f"diverges; use method.outer_lr below {2 / p.lam:.3g}"
            )
        return Model(setting.initial)

    def init_client(self, download: Model) -> Model:
        """theta_i."""
        return download

    def start(self, download: Model, client: Model, local: Local) -> Envelope:
        """Both at the received model."""
        return Envelope(download.params, local.sgd.start(download.params))

    def step(
        self, carry: Envelope, download: Model, client: Model, batches: tuple[Batch, ...], local: Local
    ) -> Envelope:
        """K steps towards the proximal point, then one step of the local copy towards it."""
        p, theta = self.parameters, carry.theta
        for _ in range(p.inner_steps):
            theta = local.sgd(theta, local.grad(theta.params, batches[0]) + p.lam * (theta.params - carry.copy))
        return Envelope(carry.copy - self._outer_lr(local) * p.lam * (carry.copy - theta.params), theta)

    def _outer_lr(self, local: Local) -> float | Tensor:
        """As set, or the client's rate, at most 1 / lambda."""
        lr, most = local.sgd.lr, 1 / self.parameters.lam
        if self.parameters.outer_lr is not None:
            return self.parameters.outer_lr
        return lr.clamp_max(most) if isinstance(lr, Tensor) else min(lr, most)

    def finish(self, carry: Envelope, download: Model, client: Model, steps: int | Tensor) -> tuple[Model, Model]:
        """w_i is sent, theta_i kept."""
        return Model(carry.copy), Model(carry.theta.params)

    def aggregate(self, server: Model, uploads: Model, cohort: Cohort) -> Model:
        """``w <- (1 - beta) w + beta mean``."""
        beta = self.parameters.beta
        mean = weighted_mean(uploads.params, cohort.weights(self.parameters.weighting))
        return Model((1 - beta) * server.params + beta * mean)

    def own_model(self, download: Model, client: Model | None) -> Parameters:
        """theta_i of those who have one."""
        return download.params if client is None else client.params

    @property
    def newcomer_uses(self) -> NewcomerData:
        """Nothing, or its samples."""
        return "train split" if self.parameters.novel == "fit" else "nothing"

    def adapt_newcomer(self, server: Model, newcomers: Newcomers) -> Adaptation | None:
        """One visit from w."""
        return Adaptation(Visit(self, lambda upload, kept, _: kept.params)) if self.parameters.novel == "fit" else None
