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
from panacea.hypernets.descent import Objective, descend
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
        table = server.table if plan.rows is None else server.table[plan.rows]
        moments = [self._touched(plan, memory) for memory in server.moments]
        objective = self._objective(plan, server.table, targets, weights)
        lr = self.setting.server_lr * server.rate
        moved, memory, before, after = descend(
            objective, self.variables(table, server.weights), moments, self.optimiser, lr, self.setting.server_steps
        )
        new = HypernetworkState(
            table=self._returned(plan, moved[0], server.table) if self.trains_table else server.table,
            weights=moved[-1],
            moments=tuple(self._returned(plan, *pair) for pair in zip(memory, server.moments, strict=True)),
            rest=self.averaged_rest(server, uploads, cohort),
            rate=server.rate,
            terms=torch.cat([before[:1], after]),
            undone=server.undone,
        )
        asked = torch.where(weights > 0, targets - self.generated(server, cohort.ids), torch.zeros_like(targets))
        return self.guarded(server, new, cohort, asked)

    @staticmethod
    def _touched(plan: Plan, values: Tensor) -> Tensor:
        """The rows of a plan, of what has a row per client."""
        return values if plan.rows is None or values.dim() != 2 else values[plan.rows]

    @staticmethod
    def _returned(plan: Plan, new: Tensor, old: Tensor) -> Tensor:
        return new if plan.rows is None or old.dim() != 2 else old.index_copy(0, plan.rows, new)

    def _objective(self, plan: Plan, table: Tensor, targets: Tensor, weights: Tensor) -> Objective:
        """The loss of the server's steps, and its terms [fit, L_d, view] for the log."""
        delta: Tensor | None = None
        given = self._touched(plan, table)
        middle = table.mean(dim=0) if plan.view is not None and plan.rows is not None else None

        def fit(models: Tensor) -> tuple[Tensor, Tensor]:
            nonlocal delta
            distance = (weights * squared_norm(targets - models)).sum() / 2
            if self.parameters.update == "target":
                return distance, distance
            if delta is None:  # the first step sees the models that were sent
                delta = (targets - models).detach()
            return distance, -(weights * delta * models).sum()

        def objective(variables: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
            h = variables[0] if self.trains_table else given
            parts = self.layout.unflatten(variables[-1])
            z = self.network.encode(parts, h, plan)
            distance, loss = fit(self.network.models(parts, z[plan.clients]))
            links = view = distance.new_zeros(())
            if plan.every is not None and plan.yes is not None:
                logits = link_logits(parts, z if plan.pairs is None else z[plan.pairs])
                links = link_loss(logits, plan.every, plan.yes)
                loss = loss + self.lambda_d * links
            if plan.view is not None:
                seen = plan.view.of(h, h.mean(dim=0) if middle is None else middle)
                z = self.network.encode(parts, seen, plan)
                view, extra = fit(self.network.models(parts, z[plan.clients]))
                loss = loss + self.view_weight * extra
            return loss, torch.stack([distance, links, view])

        return objective


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
