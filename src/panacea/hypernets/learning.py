"""How the server learns from a round: K_s steps towards the models its clients sent back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from panacea.core.parameters import squared_norm
from panacea.core.records import Tree
from panacea.core.transfer import on_device
from panacea.core.types import ClientIds, Cohort, Setting
from panacea.hypernets.captured import ServerGraphs
from panacea.hypernets.descent import Loss, Slopes
from panacea.hypernets.generating import GeneratingMethod, ScopedParameters
from panacea.hypernets.links import link_logits, link_loss, link_slope
from panacea.hypernets.plan import Plan
from panacea.hypernets.state import COPIED, HypernetworkState, Written

__all__ = ["LearningParameters", "LearningServer", "embedding_spread", "server_terms"]


_BY_ARCS = ("gat", "gated")  # encoders that look at single arcs, of which every round has another number

Outputs: TypeAlias = Sequence[Tensor]
"""What the server's loss is a function of: models ``[views * cohort, P_g]`` and, with L_d, logits ``[k, k]``."""


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

    where V is the first term with S as if it were new: its embeddings replaced by the mean of those of some neighbours,
    which speak for all. The gradient of the first term at the first step is ``-(1/|S|) sum_t (d theta_t / d
    psi)^T Delta_t``; the papers print it without the minus, which climbs. `update=frozen_delta` keeps Delta_t instead
    of the target: ``L = -1/|S| sum <Delta_t, GH_t>``.

    A round whose steps went astray is undone (`GeneratingMethod.guarded`) and counted as `undone` in the metrics.
    """

    parameters: LearningParameters
    _planned: tuple[int, ClientIds, Plan] | None = None

    @property
    def lambda_d(self) -> float:
        """Weight of L_d."""
        return 0.0

    @property
    def view_weight(self) -> float:
        """Weight of the newcomers' view."""
        return 0.0

    def init_server(self, setting: Setting) -> HypernetworkState:
        """As every hypernetwork; steps of an earlier server are forgotten."""
        self._graphs, self._planned = ServerGraphs(), None
        return super().init_server(setting)

    def planned(self, cohort: Cohort) -> Plan:
        """The plan of a round; it is asked for when models are sent and when they come back."""
        known = self._planned
        if known is None or known[0] != cohort.round or not np.array_equal(known[1], cohort.ids):
            known = self._planned = cohort.round, cohort.ids, self.plan(cohort)
        return known[2]

    def plan(self, cohort: Cohort) -> Plan:
        """Which rows a round touches, and how messages reach its clients; without an encoder, the cohort's own."""
        rows = on_device(self.rows_of(cohort.ids), self.setting.initial.device)
        return Plan(rows, [], torch.arange(len(rows), device=rows.device))

    def aggregate(self, server: HypernetworkState, uploads: Tree, cohort: Cohort) -> HypernetworkState:
        """K_s steps; undone if they diverged.

        Of a large table only the rows touched are written, in place as in `ClientStore`: the state that was given is
        used up by it.
        """
        targets, weights = self.uploaded(uploads, cohort)
        plan = self.planned(cohort)
        table = self._touched(plan, server.table)
        delta = None
        if self.parameters.update == "frozen_delta":
            delta = targets - self.sent(server, cohort)
        fit = Fit.of(targets, weights, delta, None if plan.view is None else self.view_weight)
        middle = self._middle(server, plan)
        touched = [self._touched(plan, memory) for memory in server.moments]
        graphs = self._graphs if self.network.encoder.kind not in _BY_ARCS else ServerGraphs()
        moved, memory, outputs = graphs.descend(
            self._objective,
            (plan, table, fit, middle),
            self.variables(table, server.weights),
            touched,
            self.optimiser,
            self.setting.server_lr * server.rate.double(),
            self.setting.server_steps,
            [None, self.layout] if self.trains_table else [self.layout],
            self.factored,
        )
        written, put = None, self._returned
        if plan.rows is not None and self.trains_table and server.table.numel() > COPIED:
            by_row = [(t, n, b) for t, n, b in zip(server.moments, memory, touched, strict=True) if t.dim() == 2]
            tables, now, before = zip((server.table, moved[0], table), *by_row, strict=True)
            written = Written(plan.rows, list(tables), list(now), list(before), self.watched(server, cohort))
            written.write()
            put = self._kept
        new = HypernetworkState(
            table=put(plan, moved[0], server.table) if self.trains_table else server.table,
            weights=moved[-1],
            moments=tuple(put(plan, *pair) for pair in zip(memory, server.moments, strict=True)),
            rest=self.averaged_rest(server, uploads, cohort),
            rate=server.rate,
            terms=torch.cat([server.terms[:2], self._terms(plan, fit, outputs)]),
            undone=server.undone,
        )
        return self.guarded(server, new, cohort, targets, weights, written)

    def _objective(
        self, leaves: Sequence[Tensor], inputs: tuple[Plan, Tensor, Fit, Tensor | None]
    ) -> tuple[Loss, Outputs]:
        """The loss of the server's variables in a round."""
        plan, table, fit, middle = inputs
        h, parts = (leaves[0], leaves[1:]) if self.trains_table else (table, leaves)
        return self._slopes(plan, h, dict(zip(self.layout.names, parts, strict=True)), fit, middle)

    @staticmethod
    def _middle(server: HypernetworkState, plan: Plan) -> Tensor | None:
        """The mean of all embeddings, where a view needs it and a plan does not have all."""
        lonely = plan.view is not None and plan.view.lonely is not None
        return server.table.mean(dim=0) if lonely and plan.rows is not None else None

    @staticmethod
    def _touched(plan: Plan, values: Tensor) -> Tensor:
        """The rows of a plan, of what has a row per client."""
        return values if plan.rows is None or values.dim() != 2 else values[plan.rows]

    @staticmethod
    def _returned(plan: Plan, new: Tensor, old: Tensor) -> Tensor:
        return new if plan.rows is None or old.dim() != 2 else old.index_copy(0, plan.rows, new)

    @staticmethod
    def _kept(plan: Plan, new: Tensor, old: Tensor) -> Tensor:
        """Like `_returned`, where the rows are written already."""
        return new if old.dim() != 2 else old

    def _slopes(
        self, plan: Plan, h: Tensor, parts: Mapping[str, Tensor], fit: Fit, middle: Tensor | None
    ) -> tuple[Loss, Outputs]:
        """Models, and logits if there is L_d, each with the slope of the loss in it; and these by themselves."""
        z = self.network.encode(parts, h if plan.view is None else plan.view.of(h, middle), plan)
        features = self.network.features(parts, z.index_select(0, plan.clients))
        if self.factored is None:
            models = self.network.head(parts, features)
            loss, outer = [(models, fit.slope(models.detach()))], None
        else:
            with torch.no_grad():
                models = self.network.head(parts, features)
                slopes = self.network.head.outer(parts, features, fit.slope(models))
            loss, outer = [*slopes.pairs], slopes.outer
        outputs = [models.detach()]
        if plan.every is not None and plan.yes is not None:
            if plan.pairs is not None:
                z = z.index_select(0, plan.pairs)
            elif plan.view is not None:
                z = z[: len(plan.every)]  # copies are behind the nodes
            logits = link_logits(parts, z)
            loss.append((logits, self.lambda_d * link_slope(logits.detach(), plan.every, plan.yes)))
            outputs.append(logits.detach())
        return loss if outer is None else Slopes(loss, outer), outputs

    @staticmethod
    def _terms(plan: Plan, fit: Fit, outputs: Outputs) -> Tensor:
        """[L_d, view] for the log; 0 for what is not part of the loss."""
        links = view = fit.shares.new_zeros(())
        if plan.view is not None:
            view = fit.of_view(outputs[0])
        if plan.every is not None and plan.yes is not None:
            links = link_loss(outputs[1], plan.every, plan.yes)
        return torch.stack([links, view])


@dataclass(frozen=True)
class Fit:
    """The terms of the loss that are about models: of the cohort, and of the cohort as the newcomers' view has it.

    Attributes:
        targets: ``[views * cohort, P_g]`` what came back, once or twice.
        shares: ``[views * cohort, 1]`` weights of the clients in the loss.
        delta: ``[views * cohort, P_g]`` what the clients changed, with `update=frozen_delta`, or None.
    """

    targets: Tensor
    shares: Tensor
    delta: Tensor | None

    @classmethod
    def of(cls, targets: Tensor, weights: Tensor, delta: Tensor | None, view: float | None) -> Fit:
        """Of targets and differences ``[cohort, P_g]`` and weights ``[cohort, 1]``; `view` is the view's weight."""
        if view is None:
            return cls(targets, weights, delta)
        twice = None if delta is None else delta.repeat(2, 1)
        return cls(targets.repeat(2, 1), torch.cat([weights, view * weights]), twice)

    def slope(self, models: Tensor) -> Tensor:
        """The gradient of the loss in the models ``[views * cohort, P_g]``."""
        return self.shares * (models - self.targets if self.delta is None else -self.delta)

    def of_view(self, models: Tensor) -> Tensor:
        """The view's term before it is weighted: half the mean squared distance of its models."""
        cohort = len(models) // 2
        return (self.shares[:cohort] * squared_norm(self.targets[cohort:] - models[cohort:])).sum() / 2


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
