"""The interface of a method. Its defaults are FedAvg; a method overrides what it does differently.

All functions are pure: state comes in, new state goes out, nothing is written in place, no random number is drawn in
client code, and gradients come from the engine. ``...`` stands for the leading dims of client code: ``()`` for one
client (a remote site, the sequential engine), ``(rows,)`` in the vectorised engine. Per-client scalars are
``[..., 1]`` and reductions go over the last axis only, so one text serves both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict
from torch import Tensor

from panacea.core.aggregate import weighted_mean
from panacea.core.local import Iterate, Local
from panacea.core.parameters import Parameters
from panacea.core.records import Tree, record
from panacea.core.types import Batch, Cohort, Newcomers, Setting

if TYPE_CHECKING:
    from torch import nn

    from panacea.core.random import Streams
    from panacea.core.store import ClientStore
    from panacea.core.types import ClientIds
    from panacea.data.task import Task

__all__ = ["Adaptation", "Method", "MethodParameters", "Model", "NewcomerData"]

NewcomerData: TypeAlias = Literal["nothing", "links", "train split"]


class MethodParameters(BaseModel):
    """Base of every method's hyper-parameters (`method.*`): frozen, unknown names refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


@record
class Model:
    """One model vector: the server state, the download and the upload of the simplest methods."""

    params: Parameters


@dataclass(frozen=True)
class Adaptation:
    """A local programme that turns received parameters into the evaluated ones.

    Attributes:
        method: its `start`, `step` and `finish` are run with ``download = Model(params)``; the upload is a `Model`.
        steps: local steps, None for the experiment's `local_steps`.
        download: ``[rows, ...]`` what the programme starts from instead of ``Model(params)``.
    """

    method: Method
    steps: int | None = None
    download: Tree = None


class Method:
    """A federated method; see the module's docstring for the rules.

    Attributes:
        name: registry name, set by the `method` decorator; ``module.Class`` for a method from elsewhere.
        parameter_model: the model of its hyper-parameters.
        draws: batches one local step needs.
        gradients: gradient evaluations of one local step, so that comparisons of work are fair (tested).
        shares_statistics: whether BatchNorm statistics may be exchanged; if not, `buffers=shared` becomes `local`.
    """

    name: str = ""
    parameter_model: ClassVar[type[MethodParameters]] = MethodParameters
    draws: ClassVar[int] = 1
    gradients: ClassVar[int] = 1
    shares_statistics: ClassVar[bool] = True

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

    # --- server -------------------------------------------------------------------------------------------------

    def init_server(self, setting: Setting) -> Tree:
        """The server's state before round 1."""
        return Model(setting.initial)

    def download(self, server: Tree, cohort: Cohort) -> Tree:
        """What each client of the cohort receives, ``[rows, ...]``."""
        return Model(server.params.expand(len(cohort), -1))

    def aggregate(self, server: Tree, uploads: Tree, cohort: Cohort) -> Tree:
        """The server's new state from the cohort's uploads ``[rows, ...]``."""
        return Model(weighted_mean(uploads.params, cohort.weights()))

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
        params: Parameters = server.params
        return params.expand(len(cohort), -1)

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
    def newcomer_uses(self) -> NewcomerData:
        """What of a newcomer `admit` and `adapt_newcomer` use."""
        return "nothing" if self.adapt() is None else "train split"

    def alternatives(self) -> dict[str, Adaptation]:
        """Further ways to use the trained state, by name: each is scored apart at the end, never mixed with `personal`.

        A local programme is run on `personal` (on `admit` for newcomers) of every client.
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
