"""How the server learns from a round: K_s steps towards the models its clients sent back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from panacea.core.parameters import squared_norm
from panacea.core.records import Tree
from panacea.core.types import Cohort
from panacea.hypernets.descent import descend
from panacea.hypernets.generating import GeneratingMethod, HypernetworkState, ScopedParameters
from panacea.hypernets.links import link_logits, link_loss
from panacea.hypernets.plan import Plan

__all__ = ["LearningParameters", "LearningServer", "embedding_spread", "server_terms"]


class LearningParameters(ScopedParameters):
    """Hyper-parameters of methods whose server takes K_s steps a round."""

    update: Literal["target", "frozen_delta"] = Field(
        "target",
        description="K_s steps towards a fixed target (Eq. 4), or along a fixed difference",
    )


class LearningServer(GeneratingMethod):
    r"""The server of Panacea and its ablations.

    With ``theta_t`` the models sent, ``ttheta_t`` those that came back and ``Delta_t = ttheta_t - theta_t``, K_s times

        psi <- psi - alpha * clip(grad_psi L(psi)),
        L(psi) = 1/(2|S|) sum_{t in S} ||ttheta_t - GH(h_t, A; psi)||^2 + lambda_d L_d(psi) + view * V(psi)

    where V is the first term with the embeddings of S replaced by the mean of their neighbours'. The gradient of the
    first term at the first step is ``-(1/|S|) sum_t (d theta_t / d psi)^T Delta_t``; the papers print it without the
    minus, which climbs. `update=frozen_delta` keeps Delta_t instead of the target: ``L = -1/|S| sum <Delta_t, GH_t>``.

    A round whose steps went astray is undone (`GeneratingMethod.guarded`) and counted as `undone` in the metrics.
    """

    parameters: LearningParameters

    @property
    def lambda_d(self) -> float:
        """Weight of L_d."""
        return 0.0

    @property
    def view_weight(self) -> float:
        """Weight of the newcomers' view."""
        return 0.0

    def plan(self, cohort: Cohort) -> Plan:
        """Which rows a round touches, and how messages reach its clients; without an encoder, the cohort's own."""
        rows = torch.from_numpy(self.rows_of(cohort.ids)).to(self.setting.initial.device)
        return Plan(rows, [], torch.arange(len(rows), device=rows.device))

    def aggregate(self, server: HypernetworkState, uploads: Tree, cohort: Cohort) -> HypernetworkState:
        """K_s steps; undone if they diverged."""
        targets, weights = self.uploaded(uploads, cohort)
        plan = self.plan(cohort)
        table = self._touched(plan, server.table)
        delta = None
        if self.parameters.update == "frozen_delta":
            delta = targets - self.generated(server, cohort.ids)
        middle = server.table.mean(dim=0) if plan.view is not None and plan.rows is not None else None

        def objective(variables: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
            h = variables[0] if self.trains_table else table
            return self._loss(plan, h, variables[-1], targets, weights, delta, middle)

        moved, memory, last = descend(
            objective,
            self.variables(table, server.weights),
            [self._touched(plan, memory) for memory in server.moments],
            self.optimiser,
            self.setting.server_lr * float(server.rate),
            self.setting.server_steps,
        )
        new = HypernetworkState(
            table=self._returned(plan, moved[0], server.table) if self.trains_table else server.table,
            weights=moved[-1],
            moments=tuple(self._returned(plan, *pair) for pair in zip(memory, server.moments, strict=True)),
            rest=self.averaged_rest(server, uploads, cohort),
            rate=server.rate,
            terms=torch.cat([server.terms[:2], last]),
            undone=server.undone,
        )
        return self.guarded(server, new, cohort, targets, weights)

    @staticmethod
    def _touched(plan: Plan, values: Tensor) -> Tensor:
        """The rows of a plan, of what has a row per client."""
        return values if plan.rows is None or values.dim() != 2 else values[plan.rows]

    @staticmethod
    def _returned(plan: Plan, new: Tensor, old: Tensor) -> Tensor:
        return new if plan.rows is None or old.dim() != 2 else old.index_copy(0, plan.rows, new)

    def _loss(
        self,
        plan: Plan,
        h: Tensor,
        psi: Tensor,
        targets: Tensor,
        weights: Tensor,
        delta: Tensor | None,
        middle: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """The loss of the server's steps, and [L_d, view] for the log."""
        parts = self.layout.unflatten(psi)
        given = h if plan.view is None else plan.view.of(h, middle)
        z = self.network.encode(parts, given, plan)
        models = self.network.models(parts, z.index_select(0, plan.clients)).split(len(targets))
        fits = [(weights * squared_norm(targets - made)).sum() / 2 for made in models]
        losses = fits if delta is None else [-(weights * delta * made).sum() for made in models]
        loss, links = losses[0], torch.zeros_like(fits[0])
        if plan.every is not None and plan.yes is not None:
            nodes = z[: len(plan.every)] if plan.pairs is None else z.index_select(0, plan.pairs)
            links = link_loss(link_logits(parts, nodes), plan.every, plan.yes)
            loss = loss + self.lambda_d * links
        if plan.view is None:
            return loss, torch.stack([links, torch.zeros_like(links)])
        return loss + self.view_weight * losses[1], torch.stack([links, fits[1]])


def embedding_spread(z: Tensor) -> dict[str, float]:
    """How far apart the clients' embeddings are, beside the length of what they have in common (per dimension)."""
    middle = z.mean(dim=0)
    apart = (z - middle).square().mean().sqrt()
    return {"embedding_spread": float(apart), "embedding_common": float(middle.square().mean().sqrt())}


def server_terms(server: HypernetworkState) -> dict[str, float]:
    """How the server's last steps went."""
    before, after, links, view = server.terms.tolist()
    return {
        "fit_before": before, "fit_after": after, "link_loss": links, "view_fit": view,
        "undone": int(server.undone), "server_rate": float(server.rate),
    }  # fmt: skip
