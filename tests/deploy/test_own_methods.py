"""Methods of a user's own in a federation."""

from __future__ import annotations

import pytest

from panacea.core.method import Method, Model
from panacea.core.parameters import Parameters
from panacea.core.records import Tree
from panacea.core.store import ClientStore
from panacea.core.types import Cohort
from panacea.deploy.roster import Roster
from panacea.deploy.serve import federated_config
from panacea.errors import RequestError
from panacea.experiment.config import build_config
from panacea.methods import method_names
from tests.toy import toy_experiment


class Hidden(Method):
    """Its personal models are made from what clients keep, where only a simulation has it."""

    def init_client(self, download: Tree) -> Model:
        return Model(download.params)

    def personal(self, server: Tree, clients: ClientStore, cohort: Cohort) -> Parameters:
        fresh = self.init_client(self.download(server, cohort))
        params: Parameters = clients.take(cohort.ids, fresh).params
        return params


class Told(Hidden):
    """The same with the hook for it."""

    keeps_model = True

    def own_model(self, download: Tree, client: Tree) -> Parameters:
        params: Parameters = (download if client is None else client).params
        return params


def test_a_model_that_no_server_can_make_is_refused() -> None:
    """Else all clients would be scored with a model that is not theirs."""
    roster = Roster.of(toy_experiment("fedavg").federation)
    with pytest.raises(RequestError, match=r"Hidden.*own_model"):
        federated_config(build_config({"data": "fl60", "method": f"{__name__}:Hidden"}), roster)
    for name in (f"{__name__}:Told", *method_names()):
        federated_config(build_config({"data": "fl60", "method": name}), roster)
