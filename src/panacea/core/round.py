"""One communication round, on one screen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from torch import Tensor

from panacea.core.messages import deliver
from panacea.core.records import Tree, nbytes
from panacea.core.screening import Judged, screen
from panacea.core.store import ClientStore
from panacea.core.types import Cohort

if TYPE_CHECKING:
    from panacea.core.method import Method
    from panacea.core.statistics import Statistics

__all__ = ["Adversary", "Defence", "Report", "State", "Trained", "Trainer", "run_round"]


@dataclass(frozen=True)
class Trained:
    """What an engine returns: uploads and kept states ``[rows, ...]``, statistics ``[rows, S]``, loss ``[rows]``.

    `unread` says, by client, why nothing usable came from it; its rows then hold what it would send untrained.
    """

    uploads: Tree
    kept: Tree
    statistics: Tensor
    loss: Tensor
    unread: Mapping[int, str] = field(default_factory=dict)


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


class Adversary(Protocol):
    """Clients that lie."""

    def corrupt(self, unchanged: Tree, uploads: Tree, cohort: Cohort) -> Tree:
        """What arrives ``[rows, ...]`` in place of the uploads; see `Method.unchanged`."""
        ...

    def messages(self, uploads: Tree, cohort: Cohort) -> Mapping[int, object]:
        """By client, messages that arrive in place of these rows and need not even be uploads; often none."""
        ...


class Defence(Protocol):
    """A server that does not believe everything."""

    def judge(self, memory: Tree, judged: Judged, sent: Tensor, cohort: Cohort, server: Tree) -> tuple[Tree, Judged]:
        """Its new memory, and the uploads as the server may use them.

        Args:
            memory: what it remembers of earlier rounds; None before the first.
            judged: uploads that are finite.
            sent: ``[rows, S]`` the statistics the clients were given, as far as they travel.
            cohort: whose they are.
            server: the method's state that the uploads are for.
        """
        ...


@dataclass
class State:
    """All that an experiment is, between two rounds; saving it is the checkpoint."""

    server: Tree
    clients: ClientStore
    statistics: Statistics
    round: int = 0
    memory: Tree = None  # the defence's


@dataclass(frozen=True)
class Report:
    """What a round cost and how it went; the loss is over clients whose uploads were used (all, if none was)."""

    loss: float
    bytes_down: int
    bytes_up: int
    refused: dict[int, str] = field(default_factory=dict)  # why an upload was not used, by client
    trust: tuple[float, ...] = ()  # in the cohort's clients, 1 unless a defence doubts them
    absent: tuple[int, ...] = ()  # clients from which nothing usable came


def run_round(
    method: Method,
    state: State,
    cohort: Cohort,
    engine: Trainer,
    adversary: Adversary | None = None,
    defence: Defence | None = None,
) -> tuple[State, Report]:
    """Download, train, upload, judge, aggregate."""
    downloads = method.download(state.server, cohort)  # one message per client
    kept = state.clients.take(cohort.ids, fresh=method.init_client(downloads))
    sent = state.statistics.send(cohort)
    trained = engine.train(method, downloads, kept, sent, cohort)
    state.clients.put(cohort.ids, trained.kept)  # client state is never lost
    back = state.statistics.returned(cohort, trained.statistics)  # a client's own do not travel

    unchanged, uploads, memory = method.unchanged(downloads, trained.uploads), trained.uploads, state.memory
    sent, unread = sent[:, : back.shape[1]], dict(trained.unread)
    if adversary is not None:
        uploads = adversary.corrupt(unchanged, uploads, cohort)
        uploads, lies = deliver(adversary.messages(uploads, cohort), unchanged, uploads, cohort)
        unread |= lies
    judged = screen(unchanged, uploads, sent, back, cohort, unread)
    if defence is not None:
        memory, judged = defence.judge(memory, judged, sent, cohort, state.server)

    believed = judged.trust is cohort.trust  # nobody was refused or doubted, as nearly always
    used = None if believed else judged.trust[:, 0] > 0
    losses = trained.loss[used] if used is not None and judged.reasons else trained.loss
    loss = float((losses if len(losses) else trained.loss).mean())  # before the server's work, which need not be over
    trust = [1.0] * len(cohort) if believed else judged.trust[:, 0].tolist()

    server, cohort = state.server, replace(cohort, trust=judged.trust)
    if any(trust):  # else there is nothing to learn from
        state.statistics.receive(cohort, judged.statistics)
        server = method.aggregate(server, judged.uploads, cohort)

    shared = state.statistics.nbytes(cohort)
    came = len(cohort) - len(trained.unread)
    down, up = nbytes(downloads) + shared, (nbytes(trained.uploads) + shared) * came // len(cohort)
    report = Report(loss, down, up, judged.reasons, tuple(trust), tuple(trained.unread))
    return State(server, state.clients, state.statistics, cohort.round, memory), report
