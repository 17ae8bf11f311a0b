"""One round: who gets what, what is kept, what it costs; and the default method."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from torch import Tensor

from panacea.core.method import Method, Model
from panacea.core.records import Tree, record, unsent
from panacea.core.round import State, Trained, run_round
from panacea.core.statistics import BufferPolicy, Statistics
from panacea.core.store import ClientStore
from panacea.core.types import Cohort, Newcomers

COUNTS = np.array([1, 2, 3, 4, 5])
LIKE = torch.zeros(3, dtype=torch.float64)


@record
class Down:
    w: Tensor
    seed_made: Tensor = unsent()


class Counting(Method):
    """Sends each client its own row, keeps a visit counter, uploads the number it received plus the visits."""

    def download(self, server: Tensor, cohort: Cohort) -> Down:
        return Down(server[cohort.ids], torch.zeros(len(cohort), 50))

    def init_client(self, download: Down) -> Tensor:
        return torch.full((len(download.w), 1), 100.0, dtype=torch.float64)

    def unchanged(self, downloads: Down, uploads: Tensor) -> Tensor:
        return downloads.w

    def aggregate(self, server: Tensor, uploads: Tensor, cohort: Cohort) -> Tensor:
        new = server.clone()
        new[cohort.ids] = uploads
        return new


@dataclass
class Echo:
    """An engine that only adds things up."""

    seen: list[tuple[Tree, Tree, Tensor]] = field(default_factory=list)

    def train(self, method: Method, downloads: Down, kept: Tensor, statistics: Tensor, cohort: Cohort) -> Trained:
        self.seen.append((downloads, kept, statistics))
        losses = torch.arange(len(cohort), dtype=torch.float64)
        return Trained(downloads.w + kept, kept + 1, statistics + cohort.counts, losses)


def cohort(round: int, *ids: int) -> Cohort:
    return Cohort.of(np.array(ids), COUNTS, round, LIKE)


def begin(policy: BufferPolicy = "shared", statistics: int = 2) -> State:
    server = torch.arange(15, dtype=torch.float64).reshape(5, 3)
    return State(server, ClientStore(5), Statistics(policy, torch.zeros(statistics, dtype=torch.float64), 5))


def test_each_client_trains_on_its_own_message_and_memory():
    engine, state = Echo(), begin()
    state, _ = run_round(Counting(), state, cohort(1, 4, 1), engine)
    state, _ = run_round(Counting(), state, cohort(2, 1, 2), engine)
    downloads, kept, _ = engine.seen[1]
    assert downloads.w.tolist() == [[103.0, 104.0, 105.0], [6.0, 7.0, 8.0]]  # client 1 came back, client 2 is new
    assert kept.tolist() == [[101.0], [100.0]]
    assert state.server[1].tolist() == [204.0, 205.0, 206.0]
    assert state.server[0].tolist() == [0.0, 1.0, 2.0]
    assert state.clients.seen.tolist() == [1, 2, 4]
    assert state.clients.take(np.array([1, 2, 4]), torch.zeros(3, 1)).tolist() == [[102.0], [101.0], [101.0]]
    assert state.round == 2


def test_statistics_come_back_and_go_out_again():
    engine, state = Echo(), begin()
    state, _ = run_round(Counting(), state, cohort(1, 0, 3), engine)  # counts 1 and 4: mean 1/5 * 1 + 4/5 * 4
    assert state.statistics.common.tolist() == pytest.approx([3.4, 3.4])
    run_round(Counting(), state, cohort(2, 2), engine)
    assert engine.seen[1][2].tolist() == [pytest.approx([3.4, 3.4])]


@pytest.mark.parametrize(("policy", "extra"), [("shared", 2 * 2 * 8), ("local", 0), ("frozen", 0)])
def test_a_report_counts_what_travels(policy: BufferPolicy, extra: int):
    _, report = run_round(Counting(), begin(policy), cohort(1, 0, 3), Echo())
    assert report.bytes_down == 2 * 3 * 8 + extra  # the unsent field is not counted
    assert report.bytes_up == 2 * 3 * 8 + extra
    assert report.loss == 0.5


# --- the interface's defaults -----------------------------------------------------------------------------------


def test_an_empty_method_is_federated_averaging():
    method = Method()
    server = Model(torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64))
    who = cohort(1, 0, 2)
    down = method.download(server, who)
    assert down.params.tolist() == [[1.0, 2.0, 3.0]] * 2
    assert method.init_client(down) is None
    uploads = Model(torch.tensor([[4.0, 0.0, 0.0], [0.0, 4.0, 8.0]], dtype=torch.float64))
    assert method.aggregate(server, uploads, who).params.tolist() == [1.0, 3.0, 6.0]  # 1/4 and 3/4


def test_by_default_everybody_is_evaluated_with_the_servers_model():
    method, store = Method(), ClientStore(5)
    server = Model(torch.tensor([1.0, 2.0, 3.0]))
    assert method.personal(server, store, cohort(1, 0, 2)).tolist() == [[1.0, 2.0, 3.0]] * 2
    newcomers = Newcomers(np.array([3, 4, 1]), None)
    assert method.admit(server, store, newcomers).tolist() == [[1.0, 2.0, 3.0]] * 3
    assert method.adapt() is None
    assert method.adapt_newcomer(None, newcomers) is None
    assert method.diagnostics(server, store, np.arange(5)) == {}


def test_newcomers_adapt_like_the_others_unless_said_otherwise():
    class Tuned(Method):
        def adapt(self):
            return "programme"

    assert Tuned().adapt_newcomer(None, Newcomers(np.array([3]), None)) == "programme"
