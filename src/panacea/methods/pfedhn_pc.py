"""pFedHN-PC: pFedHN whose clients keep their last layer."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor

from panacea.core.local import Iterate, Local
from panacea.core.method import Adaptation, Facts, Method, MethodParameters, Model, NewcomerData
from panacea.core.parameters import Layout, Parameters
from panacea.core.records import Tree, record, unsent
from panacea.core.scope import TrainPart, all_but_last
from panacea.core.store import ClientStore
from panacea.core.types import Cohort, Newcomers, Origin
from panacea.hypernets.state import HypernetworkState
from panacea.methods.pfedhn import PFedHn, PFedHnShape
from panacea.methods.registry import method

__all__ = ["PFedHnPc"]


class PFedHnPcParameters(PFedHnShape):
    """Hyper-parameters of pFedHN-PC."""

    novel: Literal["mean", "init"] = Field("mean", description="a newcomer's embedding: the mean row, or a fresh row")
    head_steps: int | None = Field(None, ge=1, description="steps of a newcomer's last layer; default local_steps")


@record
class BodyModel:
    """The generated body, and the common start of the last layer, which every party makes from the seed."""

    params: Parameters
    head: Parameters = unsent()


@method("pfedhn_pc")
class PFedHnPc(PFedHn):
    r"""pFedHN in which the last layer belongs to the client: the hypernetwork makes all layers but that one.

    Paper: Shamsian et al., ICML 2021 (arXiv 2103.04628), the variant "pFedHN-PC" (personal classifier).

    Client t keeps its last layer ``w_t`` between visits: each local step moves the
    generated body and ``w_t`` together along the gradient of the client's loss. It sends back the body only.
    Server: as pFedHN, for the body.
    Evaluated: the generated body with the client's own last layer; a client never sampled has the common start's.

    Parameters:
        embedding, hidden, hidden_layers, heads, rank, chunk, head_scale, optimiser, momentum, weight_decay, clip,
            novel: as for pFedHN.
        head_steps: what a newcomer trains its last layer for, on its own train split: it has none otherwise.

    Reduces to: pFedHN where the last layer is empty.

    Differences from the paper: those of pFedHN; the client's clipping (`clip`) covers body and last layer together; the
    velocity of the last layer's optimiser begins anew with every visit, as in all methods here.
    """

    facts: ClassVar[Facts] = Facts(
        "Shamsian et al., ICML", 2021, "psi, embeddings", "h_i", "U - 4P_own", "U - 4P_own", "h trained on its samples"
    )
    parameter_model: ClassVar[type[MethodParameters]] = PFedHnPcParameters
    parameters: PFedHnPcParameters  # type: ignore[assignment]  # the same fields, fewer choices
    keeps_model = True

    def generated_scope(self, layout: Layout) -> str:
        """Everything but the last layer."""
        return all_but_last(layout)

    def template(self, origin: Origin, round: int) -> BodyModel:
        """The initial model, cut in two."""
        body, head = self.scope.split(origin.initial)
        assert head is not None
        return BodyModel(body, head)

    def _common_head(self, server: HypernetworkState, rows: int) -> Tensor:
        assert server.rest is not None
        return server.rest.expand(rows, -1)

    def download(self, server: HypernetworkState, cohort: Cohort) -> BodyModel:
        """The generated body."""
        return BodyModel(self.generated(server, cohort.ids), self._common_head(server, len(cohort)))

    def generated_part(self, uploads: BodyModel) -> Tensor:
        """The body is all that is sent."""
        return uploads.params

    def averaged_rest(self, server: HypernetworkState, uploads: BodyModel, cohort: Cohort) -> Tensor | None:
        """The common start of the last layer, as it was."""
        return server.rest

    def init_client(self, download: BodyModel) -> Model:
        """The common start of the last layer."""
        return Model(download.head)

    def start(self, download: BodyModel, client: Model, local: Local) -> Iterate:
        """The generated body under the client's own last layer."""
        return local.sgd.start(self.scope.join(download.params, client.params))

    def finish(self, carry: Iterate, download: BodyModel, client: Model, steps: int | Tensor) -> tuple[Tree, Tree]:
        """The body is sent, the last layer kept."""
        body, head = self.scope.split(carry.params)
        assert head is not None
        return BodyModel(body, download.head), Model(head)

    def personal(self, server: HypernetworkState, clients: ClientStore, cohort: Cohort) -> Parameters:
        """The generated body under the client's own last layer."""
        return Method.personal(self, server, clients, cohort)

    def own_model(self, download: BodyModel, client: Model | None) -> Parameters:
        """The same; without an own layer under that of the common start."""
        own = self.init_client(download) if client is None else client
        return self.scope.join(download.params, own.params)

    @property
    def newcomer_uses(self) -> NewcomerData:
        """Its samples: its last layer is trained on them."""
        return "train split"

    def adapt_newcomer(self, server: HypernetworkState, newcomers: Newcomers) -> Adaptation:
        """The last layer alone, on the newcomer's train split."""
        return Adaptation(TrainPart(self.scope, "rest"), self.parameters.head_steps)
