"""What every method with a hypernetwork shares: its parameters, its server state, and the models it generates."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from panacea.core.aggregate import weighted_mean
from panacea.core.local import Local
from panacea.core.method import Adaptation, Method, MethodParameters, Model
from panacea.core.parameters import Layout, Parameters, squared_norm
from panacea.core.records import Tree, tree_map
from panacea.core.scope import Scope, TrainPart, part_step
from panacea.core.store import ClientStore
from panacea.core.transfer import on_device
from panacea.core.types import Batch, ClientIds, Cohort, Newcomers, Origin, Setting
from panacea.errors import RequestError
from panacea.hypernets.descent import Optimiser, OptimiserKind
from panacea.hypernets.heads import Head, HeadKind
from panacea.hypernets.network import Hypernetwork
from panacea.hypernets.state import AT_HAND, COPIED, HypernetworkState, PartialModel, Written

__all__ = ["GeneratingMethod", "HypernetworkParameters", "ScopedParameters"]

_PROBED = 16  # clients besides the cohort whose models are looked at after a round, at most
_PROBED_NUMBERS = 1 << 24  # and of how many parameters: sixteen ResNets would be more than the rest of the server


class HypernetworkParameters(MethodParameters):
    """Hyper-parameters of every method with a hypernetwork."""

    hidden: int = Field(100, ge=1, description="width of the trunk (both papers: 100)")
    heads: HeadKind = Field("full", description="full (one linear head per tensor), low_rank or chunked")
    rank: int = Field(8, ge=1, description="rank of low_rank heads")
    chunk: int = Field(1024, ge=1, description="parameters per chunk of chunked heads")
    head_scale: float = Field(0.1, gt=0, description="size of the heads' weights at the start; ours, for a sane start")
    optimiser: OptimiserKind = Field("momentum", description="the server's optimiser (pFedHN's code: momentum)")
    momentum: float = Field(0.9, ge=0, lt=1, description="of optimiser=momentum (pFedHN's code: 0.9)")
    weight_decay: float = Field(0.0, ge=0, description="of the server's optimiser")
    clip: float = Field(50.0, ge=0, description="largest norm of the server's gradient, 0 = off (pFedHN's code: 50)")


class ScopedParameters(HypernetworkParameters):
    """Hyper-parameters of methods that may generate a part of the network only."""

    scope: str = Field("all", description="generated tensors: all, last (layer), or names, e.g. fc+layer4")
    rest: Literal["shared", "frozen"] = Field("shared", description="other tensors: averaged as in FedAvg, or frozen")


class GeneratingMethod(Method):
    """Base of hypernetwork methods: `prepare` says what the network looks like, `encode` what its trunk is given."""

    parameter_model: ClassVar[type[MethodParameters]] = HypernetworkParameters
    parameters: HypernetworkParameters
    averages = False
    client_parameters = ("scope", "rest")
    network: Hypernetwork
    layout: Layout
    scope: Scope
    setting: Setting
    nodes: ClientIds
    _probed: ClientIds
    _cut: tuple[Tensor, dict[str, Tensor]] | None = None

    @abstractmethod
    def prepare(self, setting: Setting) -> tuple[Hypernetwork, np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
        """The hypernetwork's shape and the embeddings ``[nodes, d0]`` it starts from; may keep what depends on them."""

    @abstractmethod
    def encode(self, server: HypernetworkState, rows: ClientIds, round: int | None = None) -> Tensor:
        """``[rows, d]``: what the trunk is given for these nodes.

        Args:
            server: its state.
            rows: the nodes.
            round: within a round, where a large graph may be heard in part; None for all that there is to hear.
        """

    # --- server -------------------------------------------------------------------------------------------------

    def init_server(self, setting: Setting) -> HypernetworkState:
        """Fresh embeddings and weights; the heads' bias is the initial model."""
        self.setting = setting
        self.bind(setting.origin)
        self.network, rows = self.prepare(setting)
        probed = max(1, min(_PROBED, len(self.nodes), _PROBED_NUMBERS // self.scope.chosen_size))
        self._probed = self.nodes[np.linspace(0, len(self.nodes) - 1, probed).astype(np.int64)]
        start, rest = self.scope.split(setting.initial)
        self.layout, weights = self.network.init(start, setting.streams.torch("hypernetwork"))
        table = torch.as_tensor(rows, dtype=weights.dtype, device=weights.device)
        one = weights.new_ones(())
        moments = self.optimiser.start(self.variables(table, weights))
        return HypernetworkState(table, weights, moments, rest, one, weights.new_zeros(4), one * 0)

    def bind(self, origin: Origin) -> None:
        """Which part of the network is generated."""
        self.scope = Scope.of(origin.layout, self.generated_scope(origin.layout))

    def template(self, origin: Origin, round: int) -> Tree:
        """The initial model; only its generated part where the rest is frozen."""
        if not self._frozen_rest:
            return Model(origin.initial)
        chosen, rest = self.scope.split(origin.initial)
        assert rest is not None
        return PartialModel(chosen, rest)

    def generated_scope(self, layout: Layout) -> str:
        """The tensors that are generated, in the form of the key `scope`."""
        return self.parameters.scope if isinstance(self.parameters, ScopedParameters) else "all"

    @property
    def optimiser(self) -> Optimiser:
        """The server's optimiser."""
        p = self.parameters
        return Optimiser(p.optimiser, p.momentum, p.weight_decay, p.clip)

    @property
    def trains_table(self) -> bool:
        """Whether embeddings are trained."""
        return True

    def variables(self, table: Tensor, weights: Tensor) -> list[Tensor]:
        """What the server's optimiser moves."""
        return [table, weights] if self.trains_table else [weights]

    def head(self, features: int) -> Head:
        """The head of the generated part."""
        p = self.parameters
        head = Head(p.heads, features, self.scope.chosen_size, p.rank, p.chunk, p.head_scale)
        # weights and memory, both while they change, gradient, update; the factors of a gradient are small
        copies = {"sgd": 3 if p.heads == "full" else 4, "momentum": 6, "adam": 9}[p.optimiser]
        head.refuse_too_large(self.setting.initial, copies)
        return head

    @property
    def factored(self) -> str | None:
        """The part of the weights whose gradient plain SGD takes by its factors; None where that does not go."""
        p = self.parameters
        return "head.weight" if p.optimiser == "sgd" and p.heads == "full" else None

    def rows_of(self, ids: ClientIds) -> ClientIds:
        """Rows of the table that belong to these clients."""
        return np.searchsorted(self.nodes, ids).astype(np.int64)

    def parts(self, server: HypernetworkState) -> Mapping[str, Tensor]:
        """The hypernetwork's weights by name; those of the last state asked for are at hand."""
        if self._cut is None or self._cut[0] is not server.weights:
            self._cut = server.weights, self.layout.unflatten(server.weights)
        return self._cut[1]

    def generate(self, server: HypernetworkState, z: Tensor) -> Tensor:
        """``[rows, d] -> [rows, P_g]`` without gradients."""
        with torch.no_grad():
            return self.network.models(self.parts(server), z)

    def generated(self, server: HypernetworkState, ids: ClientIds, round: int | None = None) -> Tensor:
        """``[rows, P_g]``: the generated part of these training clients' models; `round` as in `encode`."""
        return self.generate(server, self.encode(server, self.rows_of(ids), round))

    @property
    def _frozen_rest(self) -> bool:
        p = self.parameters
        return isinstance(p, ScopedParameters) and p.rest == "frozen" and self.scope.chosen is not None

    def sent(self, server: HypernetworkState, cohort: Cohort) -> Tensor:
        """``[rows, P_g]``: the generated part of the models that the cohort starts from."""
        return self.generated(server, cohort.ids, cohort.round)

    def download(self, server: HypernetworkState, cohort: Cohort) -> Tree:
        """``theta_t = GH(h_t, A; psi)``, and with it what is shared by all."""
        if self._frozen_rest and server.rest is not None:
            return PartialModel(self.sent(server, cohort), server.rest.expand(len(cohort), -1))
        return Model(self.scope.join(self.sent(server, cohort), server.rest))

    def uploaded(self, uploads: Tree, cohort: Cohort) -> tuple[Tensor, Tensor]:
        """``[rows, P_g]`` generated parts after local training, and ``[rows, 1]`` their weights in the server's loss.

        A client that came back with a non-finite model has no weight: there is nothing to learn from it.
        """
        targets = self.generated_part(uploads)
        finite = torch.isfinite(uploads.params).all(dim=-1, keepdim=True)
        weights = cohort.weights("uniform") * finite
        return torch.where(finite, targets, torch.zeros_like(targets)), weights / weights.sum().clamp_min(1e-30)

    def generated_part(self, uploads: Tree) -> Tensor:
        """``[rows, P_g]`` of what was sent back."""
        params: Tensor = uploads.params
        return params if self._frozen_rest else self.scope.split(params)[0]

    def averaged_rest(self, server: HypernetworkState, uploads: Tree, cohort: Cohort) -> Tensor | None:
        """The part that is not generated: FedAvg's mean over those that sent a finite model, or as it was."""
        if server.rest is None or self._frozen_rest:
            return server.rest
        rest = self.scope.split(uploads.params)[1]
        assert rest is not None
        finite = torch.isfinite(uploads.params).all(dim=-1, keepdim=True)
        weights = cohort.weights() * finite
        mean = weighted_mean(torch.where(finite, rest, 0), weights / weights.sum().clamp_min(1e-30))
        return torch.where(finite.any(), mean, server.rest)

    def watched(self, server: HypernetworkState, cohort: Cohort) -> tuple[ClientIds, Tensor]:
        """The cohort and a few other clients ``[k]``, and ``[k, P_g]`` the generated part of their models."""
        ids = np.union1d(cohort.ids, self._probed)
        return ids, self.generated(server, ids, cohort.round)

    def guarded(
        self,
        old: HypernetworkState,
        new: HypernetworkState,
        cohort: Cohort,
        targets: Tensor,
        weights: Tensor,
        written: Written | None = None,
    ) -> HypernetworkState:
        """The new state with its fits logged; or the old one, its rate halved, if the server's steps went astray.

        They did if something is not finite, or if some client's model (of the cohort, and of a few others) moved by
        more than a quarter of its length and ten times as far as any client asked for (the largest distance from a
        client's model to its target, if it has a weight). Undone rounds are counted, the optimiser forgets its memory,
        and the rate grows back by a tenth a round. What is not generated keeps its new value.

        Args:
            old: the state before.
            new: the state after; it shares the table with the old one, where that was written to.
            cohort: the round's clients.
            targets: ``[rows, P_g]`` what they sent back.
            weights: ``[rows, 1]`` of them in the loss.
            written: what was written where, and what was there; None where nothing was.
        """
        ids, before = self.watched(old, cohort) if written is None else written.watched
        after = self.generated(new, ids, cohort.round)
        place = on_device(np.searchsorted(ids, cohort.ids), before.device)
        had, made = before[place], after[place]
        asked = ((targets - had).norm(dim=-1, keepdim=True) * (weights > 0)).max()
        fits = [(weights * squared_norm(targets - model)).sum() / 2 for model in (had, made)]
        moved = (after - before).norm(dim=-1)
        far = (moved > before.norm(dim=-1) / 4) & (moved > 10 * asked)
        changed = (new.table, new.weights, *new.moments) if written is None else (new.weights, *written.now)
        finite = torch.isfinite(torch.stack([t.sum() for t in (after, *changed)])).all()
        good = finite & ~far.any()
        learnt = replace(new, rate=(1.1 * old.rate).clamp_max(1.0), terms=torch.stack([*fits, *new.terms[2:]]))
        chosen_there = written is None and good.device.type not in AT_HAND and new.weights.numel() <= COPIED
        if not chosen_there and bool(good):
            return learnt
        if written is not None:
            written.undo()
        forgotten = self.optimiser.start(self.variables(old.table, old.weights))
        terms = torch.stack([fits[0], fits[0], *old.terms[2:]])
        back = replace(old, moments=forgotten, rest=new.rest, rate=old.rate / 2, terms=terms, undone=old.undone + 1)
        # on a GPU chosen where the numbers are: to look at them would mean to wait for its K_s steps
        return tree_map(lambda a, b: torch.where(good, a, b), learnt, back) if chosen_there else back

    def newcomer_table(self, server: HypernetworkState, newcomers: Newcomers) -> Tensor:
        """``[newcomers, d0]``: embeddings of clients that have no row."""
        raise RequestError(f"method={self.name} has no rule for the embedding of a client that joins")

    def joining_rows(self, server: HypernetworkState, clients: ClientStore, newcomers: Newcomers) -> dict[str, Tensor]:
        """The embedding from which its first model was made, learnt from now on."""
        return {"table": self.newcomer_table(server, newcomers)}

    # --- client -------------------------------------------------------------------------------------------------

    def start(self, download: Tree, client: Tree, local: Local) -> Tree:
        """The model as it was generated."""
        if isinstance(download, PartialModel):
            return local.sgd.start(self.scope.join(download.params, download.rest))
        return super().start(download, client, local)

    def step(self, carry: Tree, download: Tree, client: Tree, batches: tuple[Batch, ...], local: Local) -> Tree:
        """Plain SGD; a frozen rest has no gradient."""
        if not isinstance(download, PartialModel):
            return super().step(carry, download, client, batches, local)
        return part_step(self.scope, "chosen", carry, batches, local)

    def finish(self, carry: Tree, download: Tree, client: Tree, steps: int | Tensor) -> tuple[Tree, Tree]:
        """The trained model; of a frozen rest nothing travels."""
        if isinstance(download, PartialModel):
            return PartialModel(self.scope.split(carry.params)[0], download.rest), client
        return super().finish(carry, download, client, steps)

    # --- evaluation ---------------------------------------------------------------------------------------------

    def personal(self, server: HypernetworkState, clients: ClientStore, cohort: Cohort) -> Parameters:
        """``gen``: the generated model, before any local step."""
        return self.scope.join(self.generated(server, cohort.ids), server.rest)

    def alternatives(self, server: HypernetworkState, clients: ClientStore, cohort: Cohort) -> dict[str, Adaptation]:
        """``gen+local``: the generated model followed by one visit's local steps."""
        return self.own_alternatives(None, None)

    def own_alternatives(self, download: Tree, client: Tree) -> dict[str, Adaptation]:
        """The same: it begins at the model that is evaluated."""
        return {"local": Adaptation(TrainPart(self.scope, "chosen") if self._frozen_rest else Method())}
