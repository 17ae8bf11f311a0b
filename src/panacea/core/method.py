"""The interface of a method. Its defaults are FedAvg; a method overrides what it does differently.

All functions are pure: state comes in, new state goes out, nothing is written in place, no random number is drawn in
client code, and gradients come from the engine. ``...`` stands for the leading dims of client code: ``()`` for one
client (a remote site, the sequential engine), ``(rows,)`` in the vectorised engine. Per-client scalars are
``[..., 1]`` and reductions go over the last axis only, so one text serves both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from panacea.core.aggregate import weighted_mean
from panacea.core.local import Iterate, Local
from panacea.core.parameters import Parameters
from panacea.core.records import Tree, record
from panacea.core.types import Batch, Cohort, Newcomers, Origin, Setting, Steps

if TYPE_CHECKING:
    from torch import nn

    from panacea.core.random import Streams
    from panacea.core.store import ClientStore
    from panacea.core.types import ClientIds
    from panacea.data.task import Task

__all__ = ["Adaptation", "Facts", "Method", "MethodParameters", "Model", "NewcomerData"]

NewcomerData: TypeAlias = Literal["nothing", "links", "group", "train split"]


class MethodParameters(BaseModel):
    """Base of every method's hyper-parameters (`method.*`): frozen, unknown names refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True)
class Facts:
    """A method's line in the table of all methods.

    Bytes are per client and round, in U = 4 (P + B): a model of P parameters and B shared BatchNorm statistics.

    Attributes:
        paper: who published it where.
        year: and when.
        server: what the server keeps.
        client: what a client keeps between visits.
        down: formula of the bytes a client receives.
        up: formula of the bytes it sends.
        newcomer: what a client that never took part is given.
    """

    paper: str
    year: int
    server: str
    client: str
    down: str
    up: str
    newcomer: str


@record
class Model:
    """One model vector: the server state, the download and the upload of the simplest methods."""

    params: Parameters


@dataclass(frozen=True)
class Adaptation:
    """A local programme that turns received parameters into the evaluated ones.

    Attributes:
        method: its `start`, `step` and `finish` are run with ``download = Model(params)``; the upload is a `Model`.
        steps: local steps, or ``[rows]``; None for the experiment's `local_steps`.
        download: ``[rows, ...]`` what the programme starts from instead of ``Model(params)``.
        kept: ``[rows, ...]`` the client state it finds.
        then: of the parameters it ended with: the programme that follows, if any.
    """

    method: Method
    steps: Steps = None
    download: Tree = None
    kept: Tree = None
    then: Callable[[Parameters], Adaptation | None] | None = None


class Method:
    """A federated method; see the module's docstring for the rules.

    Attributes:
        name: registry name, set by the `method` decorator; ``module.Class`` for a method from elsewhere.
        facts: its line in the table of methods.
        parameter_model: the model of its hyper-parameters.
        draws: batches one local step needs.
        gradients: gradient evaluations of one local step, so that comparisons of work are fair (tested).
        shares_statistics: whether BatchNorm statistics may be exchanged; if not, `buffers=shared` becomes `local`.
        isolated: whether nothing at all is exchanged, so that a newcomer finds nobody's statistics either.
        keeps_model: whether a client's own model depends on what it keeps: `own_model` then makes it.
        averages: whether the server's new model is a mean of the cohort's uploads, which a robust mean may replace.
        client_parameters: names of the hyper-parameters that `start`, `step` or `finish` look at, None for all: runs
            that differ in others only can be trained in one call.
    """

    name: str = ""
    facts: ClassVar[Facts | None] = None
    parameter_model: ClassVar[type[MethodParameters]] = MethodParameters
    draws: int = 1
    gradients: int = 1
    shares_statistics: ClassVar[bool] = True
    isolated: ClassVar[bool] = False
    keeps_model: ClassVar[bool] = False
    averages: ClassVar[bool] = True
    client_parameters: ClassVar[tuple[str, ...] | None] = None

    def __init__(self, parameters: MethodParameters | None = None) -> None:
        self.parameters = parameters if parameters is not None else self.parameter_model()

    # --- network ------------------------------------------------------------------------------------------------

    def enlarge(self, module: nn.Module, task: Task, streams: Streams) -> nn.Module:
        """The network this method trains: the user's own, or a new one made around (a copy of) it.

        Called once, before anything else. All parameters of what is returned are the vector ``[P]`` that the other
        hooks see, so that parts of a method which must run inside the network (branches, classifiers, mixed outputs)
        travel, are saved and are exported like any weight; what must not be trained is detached in the module's
        forward and kept by `step`. In training the module may return a pair ``(outputs, penalty [B])``: the penalty
        of every sample is added to its loss, and is not part of the training loss that is reported.

        Args:
            module: the user's network; do not change it.
            task: what it learns.
            streams: for initial values.
        """
        return module

    # --- both sides ---------------------------------------------------------------------------------------------

    def bind(self, origin: Origin) -> None:
        """Keep what client code must know of the network. `init_server` calls it; a remote client calls it instead."""

    def template(self, origin: Origin, round: int) -> Tree:
        """One client's download ``[...]`` of a server that has learnt nothing, for a remote client to fill in.

        It has the structure and shapes of any download, and the right values of all that does not travel.
        """
        return Model(origin.initial)

    # --- server -------------------------------------------------------------------------------------------------

    def init_server(self, setting: Setting) -> Tree:
        """The server's state before round 1."""
        self.bind(setting.origin)
        return Model(setting.initial)

    def download(self, server: Tree, cohort: Cohort) -> Tree:
        """What each client of the cohort receives, ``[rows, ...]``."""
        return Model(server.params.expand(len(cohort), -1))

    def aggregate(self, server: Tree, uploads: Tree, cohort: Cohort) -> Tree:
        """The server's new state from the cohort's uploads ``[rows, ...]``."""
        return Model(weighted_mean(uploads.params, cohort.weights()))

    def unchanged(self, downloads: Tree, uploads: Tree) -> Tree:
        """``[rows, ...]`` like `uploads`: what clients that trained nothing would send; the rest is their update.

        Attacks and defences work on that difference. By default the model that was sent, in the field `params`.
        """
        return uploads if uploads is None else dataclasses.replace(uploads, params=downloads.params)

    # --- client -------------------------------------------------------------------------------------------------

    def init_client(self, download: Tree) -> Tree:
        """A client's kept state before its first visit, from what it receives: a remote site has nothing else."""
        return None

    def start(self, download: Tree, client: Tree, local: Local) -> Tree:
        """The carry before the first local step."""
        return local.sgd.start(download.params)

    def step(self, carry: Tree, download: Tree, client: Tree, batches: tuple[Batch, ...], local: Local) -> Tree:
        """One local step. No `.item()`, no `if` on tensor values, no writing in place."""
        return local.sgd(carry, local.grad(carry.params, batches[0]))

    def finish(self, carry: Tree, download: Tree, client: Tree, steps: int | Tensor) -> tuple[Tree, Tree]:
        """(upload, kept client state) after the last step."""
        iterate: Iterate = carry
        return Model(iterate.params), client

    # --- evaluation ---------------------------------------------------------------------------------------------

    def personal(self, server: Tree, clients: ClientStore, cohort: Cohort) -> Parameters:
        """``[rows, P]``: the model that is each client's own, before `adapt`. The cohort here may be any clients."""
        if not self.keeps_model:
            params: Parameters = server.params
            return params.expand(len(cohort), -1)
        download, visited = self.download(server, cohort), clients.slots[cohort.ids] >= 0
        if not visited.any():
            return self.own_model(download, None)
        own = self.own_model(download, clients.take(cohort.ids, fresh=self.init_client(download)))
        if visited.all():
            return own
        return torch.where(torch.from_numpy(visited).unsqueeze(-1).to(own.device), own, self.own_model(download, None))

    def own_model(self, download: Tree, client: Tree) -> Parameters:
        """``[..., P]``: a client's own model from what it receives and what it keeps (None if it was never visited).

        For methods with `keeps_model`, of which no server can make it: the others' clients receive `personal`.
        """
        raise NotImplementedError(f"{type(self).__name__} has keeps_model but no own_model")

    def adapt(self) -> Adaptation | None:
        """The local programme run on `personal` before it is evaluated, if any."""
        return None

    def admit(self, server: Tree, clients: ClientStore, newcomers: Newcomers) -> Parameters:
        """``[rows, P]``: the model of clients that never took part, before `adapt_newcomer`."""
        params: Parameters = server.params
        return params.expand(len(newcomers.ids), -1)

    def adapt_newcomer(self, server: Tree, newcomers: Newcomers) -> Adaptation | None:
        """Like `adapt`, for newcomers."""
        return self.adapt()

    @property
    def newcomer_alone(self) -> bool:
        """Whether `adapt_newcomer` looks at no server state (it may be None), so that a remote newcomer can do it."""
        return True

    @property
    def newcomer_uses(self) -> NewcomerData:
        """What of a newcomer `admit` and `adapt_newcomer` use."""
        return "nothing" if self.adapt() is None else "train split"

    def alternatives(self, server: Tree, clients: ClientStore, cohort: Cohort) -> dict[str, Adaptation]:
        """Further ways to use the trained state, by name: each is scored apart at the end, never mixed with `personal`.

        A local programme is run on `personal` (on `admit` for newcomers) of the clients of this cohort.
        """
        return {}

    def own_alternatives(self, download: Tree, client: Tree) -> dict[str, Adaptation]:
        """`alternatives` as a remote client can make them: ``[rows, ...]`` of one row; both None for a newcomer."""
        return {}

    def joining_rows(self, server: Tree, clients: ClientStore, newcomers: Newcomers) -> dict[str, Tensor]:
        """``[newcomers, ...]`` by field of the server's state that has a row per client: those of clients that join.

        A field that is not named gets the row of a fresh server; one without rows stays as it is.
        """
        return {}

    # --- diagnostics --------------------------------------------------------------------------------------------

    def diagnostics(self, server: Tree, clients: ClientStore, train_ids: ClientIds) -> dict[str, float]:
        """Numbers of the method's own to log at every evaluation."""
        return {}

    def observations(self, module: nn.Module, x: Tensor) -> dict[str, float]:
        """Like `diagnostics`, for numbers that need the network and inputs, which no server has: a simulation's only.

        Args:
            module: the first training client's own network, in evaluation mode.
            x: ``[samples, *inputs]`` train inputs of the training clients, a few thousand at most.
        """
        return {}

    def collaboration(self, server: Tree, cohort: Cohort) -> Tensor | None:
        """``[rows, rows]``: with which weight row i would mix in client j's model now, where a method does such."""
        return None

    def link_probability(self, server: Tree, a: ClientIds, b: ClientIds) -> Tensor | None:
        """``[pairs]``: how probable the server thinks it that clients a and b are linked, where a method can tell.

        Args:
            server: its state.
            a: ``[pairs]`` training clients.
            b: ``[pairs]`` clients of the relation graph; one that takes no part in training has probability 0.
        """
        return None
