"""FedRep: FedPer whose clients train the last layer first, then the body."""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from panacea.core.local import Iterate, Local
from panacea.core.method import Facts, MethodParameters, Model
from panacea.core.records import record, tree_map
from panacea.core.transfer import beside
from panacea.core.types import Batch, Origin, Setting
from panacea.errors import RequestError
from panacea.methods.fedper import FedPer, FedPerParameters, SharedPart
from panacea.methods.registry import method

__all__ = ["FedRep"]


class FedRepParameters(FedPerParameters):
    """Hyper-parameters of FedRep."""

    head_share: float = Field(
        10 / 11, gt=0, lt=1, description="share of the local steps that train the head (the authors: 10 of 11 epochs)"
    )


@record
class Phases:
    """Carry: the iterate, and how many steps were taken ``[..., 1]``."""

    model: Iterate
    taken: Tensor


@method("fedrep")
class FedRep(FedPer):
    """A shared representation under personal heads: a client fits its head to the received body, then moves the body.

    Paper: Collins, Hassani, Mokhtari, Shakkottai: Exploiting shared representations for personalized federated
    learning, ICML 2021 (arXiv 2102.07078).

    Client i, body ``b`` as received, head ``h_i`` kept: the first ``K_h`` of its K_c steps are
        ``h_i <- h_i - eta grad_h f_i(b, h_i)``, the others ``b <- b - eta grad_b f_i(b, h_i)``; sends ``b``.
    Server: ``b <- sum_k weight_k b_k``. Evaluated: ``(b, h_i)``.

    Parameters:
        head_share: K_h / K_c, rounded up but less than K_c where K_c > 1; the authors train the head for ten epochs
            and the body for one.
        personal, head_steps, weighting: see FedPer.

    Reduces to: nothing else; FedPer trains both parts in every step.

    Differences from the paper: local work is a number of steps shared out between the two phases, so that every method
    takes the same number; momentum, where it is set, begins anew with each visit and stands still for the part that
    rests.
    """

    facts: ClassVar[Facts] = Facts(
        "Collins et al., ICML", 2021, "b", "h_i", "U - 4P_own", "U - 4P_own", "h trained on its samples"
    )
    parameter_model: ClassVar[type[MethodParameters]] = FedRepParameters
    parameters: FedRepParameters
    is_head: Tensor

    def init_server(self, setting: Setting) -> SharedPart:
        """As FedPer; both parts need steps."""
        if setting.local_steps < 2:
            raise RequestError("method=fedrep: local_steps=1 leaves no step to the body; use at least 2")
        return super().init_server(setting)

    def bind(self, origin: Origin) -> None:
        """As FedPer; and which entries are the head's."""
        super().bind(origin)
        head, body = self.scope.split(origin.initial)
        assert body is not None
        self.is_head = self.scope.join(
            torch.ones_like(head, dtype=torch.bool), torch.zeros_like(body, dtype=torch.bool)
        )

    def start(self, download: SharedPart, client: Model, local: Local) -> Phases:  # type: ignore[override]
        """As FedPer, at step 0."""
        model = super().start(download, client, local)
        return Phases(model, torch.zeros_like(model.params[..., :1]))

    def step(
        self, carry: Phases, download: SharedPart, client: Model, batches: tuple[Batch, ...], local: Local
    ) -> Phases:
        """Only the part whose turn it is moves."""
        given = local.steps
        steps = given.double() if isinstance(given, Tensor) else carry.taken.new_full((), given, dtype=torch.float64)
        share = self.parameters.head_share * steps - 1e-9  # 0.07 * 100 is a little more than 7
        first = torch.minimum(share.ceil(), (steps - 1).clamp_min(1))
        moving = beside(self.is_head, carry.taken) == (carry.taken < first)
        gradient = torch.where(moving, local.grad(carry.model.params, batches[0]), 0.0)
        new = local.sgd(carry.model, gradient)
        return Phases(tree_map(lambda a, b: torch.where(moving, a, b), new, carry.model), carry.taken + 1)

    def finish(  # type: ignore[override]
        self, carry: Phases, download: SharedPart, client: Model, steps: int | Tensor
    ) -> tuple[SharedPart, Model]:
        """As FedPer."""
        return super().finish(carry.model, download, client, steps)
