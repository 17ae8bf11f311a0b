"""One communication round, on one screen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from torch import Tensor

from panacea.core.records import Tree, nbytes
from panacea.core.store import ClientStore
from panacea.core.types import Cohort

if TYPE_CHECKING:
    from panacea.core.method import Method
    from panacea.core.statistics import Statistics

__all__ = ["Report", "State", "Trained", "Trainer", "run_round"]


@dataclass(frozen=True)
class Trained:
    """What an engine returns: uploads and kept states ``[rows, ...]``, statistics ``[rows, S]``, loss ``[rows]``."""

    uploads: Tree
    kept: Tree
    statistics: Tensor
    loss: Tensor


class Trainer(Protocol):
    """The part of an engine a round needs."""

    def train(
        self,
        method: Method,
        downloads: Tree,
        kept: Tree,
        statistics: Tensor,
        cohort: Cohort,
    ) -> Trained:
        """Run local training for every client of the cohort."""
        ...


@dataclass
class State:
    """All that an experiment is, between two rounds; saving it is the checkpoint."""

    server: Tree
    clients: ClientStore
    statistics: Statistics
    round: int = 0


@dataclass(frozen=True)
class Report:
    """What a round cost and how it went."""

    loss: float
    bytes_down: int
    bytes_up: int


def run_round(method: Method, state: State, cohort: Cohort, engine: Trainer) -> tuple[State, Report]:
    """Download, train, upload, aggregate."""
    downloads = method.download(state.server, cohort)  # one message per client
    kept = state.clients.take(cohort.ids, fresh=method.init_client(downloads))
    trained = engine.train(method, downloads, kept, state.statistics.send(cohort), cohort)

    state.clients.put(cohort.ids, trained.kept)  # client state is never lost
    state.statistics.receive(cohort, trained.statistics)
    server = method.aggregate(state.server, trained.uploads, cohort)

    shared = state.statistics.nbytes(cohort)
    report = Report(float(trained.loss.mean()), nbytes(downloads) + shared, nbytes(trained.uploads) + shared)
    return State(server, state.clients, state.statistics, cohort.round), report
