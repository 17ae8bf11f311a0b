"""Per-FedAvg: a global model from which one step of every client leads to a good model (MAML)."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor

from panacea.core.local import Iterate, Local
from panacea.core.method import Adaptation, Facts, Method, MethodParameters, Model
from panacea.core.parameters import squared_norm
from panacea.core.types import Batch
from panacea.methods.fedavg import FedAvg, FedAvgParameters
from panacea.methods.registry import method

__all__ = ["PerFedAvg"]

_DRAWS = {"fo": 2, "hf": 3, "exact": 3}
_GRADIENTS = {"fo": 2, "hf": 4, "exact": 4}


class PerFedAvgParameters(FedAvgParameters):
    """Hyper-parameters of Per-FedAvg."""

    variant: Literal["hf", "fo", "exact"] = Field(
        "hf", description="second-order term: by differences of gradients (hf), left out (fo), or exact"
    )
    inner_lr: float = Field(0.01, ge=0, description="a, rate of the inner step and of adaptation (public code: 0.01)")
    delta: float = Field(1e-3, gt=0, description="delta of hf, divided by max(1, ||g||) (public code: 0.001)")
    adapt_steps: int = Field(
        1, ge=1, description="steps at rate a a client adapts by before it is evaluated (paper: 1)"
    )
    weighting: Literal["samples", "uniform"] = Field(
        "uniform", description="weight of client k in the mean: 1/|S| (paper), or by samples"
    )


@method("perfedavg")
class PerFedAvg(FedAvg):
    """A global model trained so that one gradient step on a client's own data makes it that client's.

    Paper: Fallah, Mokhtari, Ozdaglar: Personalized federated learning with theoretical guarantees: a model-agnostic
    meta-learning approach, NeurIPS 2020 (arXiv 2002.07948).

    Client i minimises ``F_i(w) = f_i(w - a grad f_i(w))``. K_c times, with fresh batches D', D, D'':
        ``g = grad f_i(w - a grad f_i(w; D); D')``
        fo:    ``w <- w - beta g``
        hf:    ``w <- w - beta (g - a d)``,
               ``d = [grad f_i(w + delta g; D'') - grad f_i(w - delta g; D'')] / (2 delta)``
        exact: the same with ``d = H_i(w; D'') g``, the Hessian-vector product that hf approximates.
    Server: the mean. Evaluated: ``w`` after `adapt_steps` steps at rate a on the client's own train split, for
    participating, idle and novel clients alike.

    Parameters:
        variant: hf as Panacea's experiments use it; fo and hf are the paper's two approximations.
        inner_lr: a; public code has 0.01. beta is the experiment's `lr` (public code: 0.001, which undertrains).
        delta: of hf; scaled down for long gradients, so that the difference stays accurate in single precision.
        adapt_steps: 1, the step the objective is made for.
        weighting: uniform as in the paper.

    Reduces to: FedAvg with inner_lr = 0 (training and evaluation, with the same weighting), but for the masks of
    Dropout, which go by the number of gradients taken.

    Differences from the paper: delta is scaled by the length of g (ours); D' is the batch FedAvg would have drawn.
    """

    facts: ClassVar[Facts] = Facts("Fallah et al., NeurIPS", 2020, "w", "nothing", "U", "U", "w adapted to its samples")
    parameter_model: ClassVar[type[MethodParameters]] = PerFedAvgParameters
    parameters: PerFedAvgParameters

    def __init__(self, parameters: MethodParameters | None = None) -> None:
        super().__init__(parameters)
        self.draws = _DRAWS[self.parameters.variant]
        self.gradients = _GRADIENTS[self.parameters.variant]

    def step(self, carry: Iterate, download: Model, client: None, batches: tuple[Batch, ...], local: Local) -> Iterate:
        """One step of the meta-gradient."""
        p, w = self.parameters, carry.params
        ahead = w - p.inner_lr * local.grad(w, batches[1], track=False)
        g = local.grad(ahead, batches[0])
        if p.variant == "fo":
            return local.sgd(carry, g)
        return local.sgd(carry, g - p.inner_lr * self._curvature(w, g, batches[2], local))

    def _curvature(self, w: Tensor, g: Tensor, batch: Batch, local: Local) -> Tensor:
        """``H_i(w) g``, or its central difference."""
        if self.parameters.variant == "exact":
            return local.grad.curvature(w, batch, g)
        delta = self.parameters.delta / squared_norm(g).sqrt().clamp_min(1.0)
        up, down = (local.grad(w + sign * delta * g, batch, track=False) for sign in (1.0, -1.0))
        return (up - down) / (2 * delta)

    def adapt(self) -> Adaptation:
        """Steps at rate a from the global model."""
        return Adaptation(InnerSteps(self.parameters.inner_lr), self.parameters.adapt_steps)


class InnerSteps(Method):
    """A local programme: plain steps at a rate of their own."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def step(self, carry: Iterate, download: Model, client: None, batches: tuple[Batch, ...], local: Local) -> Iterate:
        """``w <- w - a grad f(w)``."""
        return Iterate(carry.params - self.rate * local.grad(carry.params, batches[0], track=False), carry.velocity)
