"""Clients that are not there: rounds and evaluations without enough of them."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from panacea.core.files import read_lines
from panacea.deploy.asking import Desk
from panacea.deploy.inprocess import InProcess
from panacea.deploy.log import FederationLog
from panacea.deploy.orders import Failure, Log, Order, Reply
from panacea.deploy.roster import Roster
from panacea.deploy.serve import serve
from panacea.deploy.site import answer
from panacea.errors import RunFailure
from panacea.experiment.config import build_config
from tests.deploy.build import QUICK, Keep, federate, keys, ragged, transport
from tests.deploy.test_hostile import absent_in, changed, number, values

AWAY = Failure("not connected", away=True)
FLAT = keys("fedavg", cohort=6, rounds=3, eval_every=3)


def events(folder: Path, client: str | None = None) -> list[str]:
    lines = read_lines(folder / "run" / "federation.jsonl")
    return [line["event"] for line in lines if client is None or line["client"] == client]


def given(link: InProcess, clients: range, when: Callable[[Order], bool], reply: object) -> None:
    """These clients answer so when an order is so."""
    link.answers = {
        client: lambda order, c=client: reply if when(order) else answer(order, link.sites[c]) for client in clients
    }


def test_a_round_below_the_quorum_is_left_out_and_the_next_goes_on(tmp_path: Path) -> None:
    link = transport(ragged(0), tmp_path)
    absent_in(link, range(4), [2])
    quick = dataclasses.replace(QUICK, longest_backoff=0)
    found, summary = federate(ragged(0), FLAT, tmp_path, over=link, patience=quick)
    assert found.state.round == 3
    assert found.refused.tolist() == [1] * 6
    refused = read_lines(tmp_path / "run" / "refused.jsonl")
    assert {line["round"] for line in refused} == {2}
    assert [line["reason"] for line in refused if line["client"] > 3] == [
        "the round was left out: 2 of 6 clients answered soundly, 3 are needed"
    ] * 2
    assert "left out" in events(tmp_path)
    assert math.isfinite(summary["final_mean"])


def test_a_round_that_nobody_answers_leaves_the_model_as_it_is(tmp_path: Path) -> None:
    link = transport(ragged(0), tmp_path)
    absent_in(link, range(6), [1])
    found, _ = federate(ragged(0), {**FLAT, "rounds": 1, "eval_every": 1}, tmp_path, over=link)
    assert found.state.server.params.equal(found.target.initial)
    assert found.visits.sum() == 0


def test_too_many_rounds_in_a_row_end_the_run_and_a_resume_does_not_hang_on_one(tmp_path: Path) -> None:
    link = transport(ragged(0), tmp_path)
    flat, quick = {**FLAT, "rounds": 6}, dataclasses.replace(QUICK, left_out=2)
    given(link, range(6), lambda order: 2 <= order.round <= 4 and "train" in order.asks, None)
    with pytest.raises(RunFailure, match=r"round 4: 0 of 6 .*; 2 rounds before it were left out; the run is saved"):
        federate(ragged(0), flat, tmp_path, over=link, patience=quick)
    found, _ = federate(ragged(0), flat, tmp_path, over=link, patience=quick)  # round 4 is still lost
    assert found.state.round == 6


def test_clients_that_are_not_connected_are_waited_for(tmp_path: Path) -> None:
    link, since = transport(ragged(0), tmp_path), list[float]()
    patience = dataclasses.replace(QUICK, start=20.0, attempts=0, left_out=0)

    def out(order: Order) -> bool:
        if order.round != 2 or (len(since) and time.monotonic() - since[0] > 0.5):
            return False
        since.append(time.monotonic())
        return True

    given(link, range(6), out, AWAY)
    found, _ = federate(ragged(0), FLAT, tmp_path, over=link, patience=patience)
    assert found.refused.sum() == 0
    assert len(since) > 6
    assert events(tmp_path).count("waiting") == 1
    assert events(tmp_path, "site 0") == ["away", "back"]  # a line each, however often it was looked for


def test_one_that_is_not_connected_is_asked_again_at_once(tmp_path: Path) -> None:
    link = transport(ragged(0), tmp_path)
    given(link, range(1), lambda order: 1 <= order.round <= 3, AWAY)
    found, _ = federate(ragged(0), {**FLAT, "rounds": 5}, tmp_path, over=link)
    assert found.refused[0] == 3
    assert found.visits.tolist() == [2, 5, 5, 5, 5, 5]
    assert "skipped" not in events(tmp_path)


def test_one_that_connects_and_then_is_silent_is_not_waited_for_as_if_it_were_away() -> None:
    class Link:
        asked = 0

        def begin(self, names: Sequence[str], log: Log) -> None:
            pass

        def exchange(self, orders: Mapping[int, Order], deadline: float) -> Mapping[int, Reply | Failure]:
            self.asked += 1
            return dict.fromkeys(orders, AWAY) if self.asked == 1 else {}

    link = Link()
    desk = Desk(link, ["a"], dataclasses.replace(QUICK, start=1.0, attempts=1), FederationLog())
    found, reasons = desk.ask_enough({0: Order(0, "a", 1, ("train",))}, lambda client, reply: reply, 1)
    assert (found, reasons) == ({}, {0: "no reply in 5 s"})
    assert link.asked == 3  # at first, when it was away, and one attempt


# --- evaluations ----------------------------------------------------------------------------------------------------


def metrics(folder: Path) -> list[dict[str, Any]]:
    return read_lines(folder / "run" / "metrics.jsonl")


def test_an_evaluation_below_the_quorum_is_asked_for_again(tmp_path: Path) -> None:
    link, missed = transport(ragged(0), tmp_path), dict.fromkeys(range(4), 0)

    def once(client: int) -> Callable[[Order], object]:
        def give(order: Order) -> object:
            if order.asks == ("evaluate",) and not missed[client]:
                missed[client] = 1
                return None
            return answer(order, link.sites[client])

        return give

    link.answers = {client: once(client) for client in missed}
    found, _ = federate(ragged(0), FLAT, tmp_path, over=link)
    assert sum(missed.values()) == 4
    assert found.history.last is not None
    assert np.isfinite(found.history.last.test.loss).all()
    assert metrics(tmp_path)[-1]["answered"] == 6


def test_an_evaluation_that_nobody_answers_chooses_nothing(tmp_path: Path) -> None:
    link = transport(ragged(0), tmp_path)
    given(link, range(6), lambda order: order.round == 3 and order.asks == ("evaluate",), None)
    found, summary = federate(ragged(0), {**FLAT, "eval_every": 1}, tmp_path, over=link)
    assert metrics(tmp_path)[-1]["answered"] == 0
    assert summary["selected_round"] < 3
    assert found.history.selected is not None
    assert np.isfinite(found.history.selected.test.loss).all()


def test_the_last_evaluation_asks_those_in_back_off(tmp_path: Path) -> None:
    link = transport(ragged(0), tmp_path)
    given(link, range(1), lambda order: order.round == 3 and "train" in order.asks, None)
    federate(ragged(0), FLAT, tmp_path, over=link)
    assert metrics(tmp_path)[-1]["answered"] == 6


@pytest.mark.parametrize("lie", ["test.loss", "val.loss"])
def test_a_number_that_would_rule_every_mean_is_not_believed(lie: str, tmp_path: Path) -> None:
    link = transport(ragged(0), tmp_path)

    def give(order: Order) -> object:
        reply = answer(order, link.sites[1])
        assert isinstance(reply, Reply)
        return number(**{lie: 1e20})(reply) if "evaluate" in order.asks else reply

    link.answers = {1: give}
    federate(ragged(0), FLAT, tmp_path, over=link)
    line = metrics(tmp_path)[-1]
    assert line["answered"] == 5
    assert line["loss"] < 100
    assert line["val_loss"] < 100
    assert events(tmp_path, "site 1") == ["not believed"]


def test_a_training_loss_that_would_rule_the_mean_is_not_believed(tmp_path: Path) -> None:
    link = transport(ragged(0), tmp_path)
    link.answers = {1: changed(number(loss=1e11))(link)}
    federate(ragged(0), FLAT, tmp_path, over=link)
    assert metrics(tmp_path)[-1]["train_loss"] < 100


def test_an_update_a_thousand_times_as_long_as_others_is_refused(tmp_path: Path) -> None:
    link = transport(ragged(0), tmp_path)
    link.answers = {1: changed(values(lambda x: x + 100))(link)}
    found, _ = federate(ragged(0), {**FLAT, "rounds": 1, "eval_every": 1}, tmp_path, over=link)
    assert found.refused.tolist() == [0, 1, 0, 0, 0, 0]
    reason = read_lines(tmp_path / "run" / "refused.jsonl")[0]["reason"]
    assert reason.startswith("its update is ")
    assert reason.endswith(" times as long as the middle one")
    assert found.state.server.params.abs().max() < 10


# --- who is absent when the run begins --------------------------------------------------------------------------------


def hello(said: float, otherwise: Callable[[Order], object], first: int = 10**9) -> Callable[[Order], object]:
    """A client that says so many train samples, the first times it is asked."""
    asked = list[Order]()

    def give(order: Order) -> object:
        if "hello" not in order.asks or len(asked) >= first:
            return otherwise(order)
        asked.append(order)
        return None if math.isnan(said) else Reply({}, {"train.count": said, "val.count": 1, "test.count": 1})

    return give


def test_a_client_cannot_make_itself_the_mean(tmp_path: Path) -> None:
    link = transport(ragged(0), tmp_path)
    link.answers = {1: hello(1e9, lambda order: answer(order, link.sites[1]))}
    found, _ = federate(ragged(0), {**FLAT, "rounds": 1}, tmp_path, over=link)
    counts, others = found.federation.counts("train"), np.delete(ragged(0).counts("train"), 1)
    assert counts[1] == 10 * sorted([*others.tolist(), 10**9])[2]
    assert np.delete(counts, 1).tolist() == others.tolist()
    assert events(tmp_path, "site 1") == ["not believed"]


def test_what_the_roster_says_counts(tmp_path: Path) -> None:
    federation = ragged(0)
    link = transport(federation, tmp_path)
    link.answers = {1: hello(1e9, lambda order: answer(order, link.sites[1])), 2: hello(math.nan, lambda order: None)}
    kept = Keep()
    serve(build_config({**FLAT, "rounds": 1}), Roster.of(federation), link, tmp_path / "run", [kept], QUICK)
    assert kept.experiment.federation.counts("train").tolist() == federation.counts("train").tolist()
    assert events(tmp_path, "site 1") == ["other samples"]
    assert events(tmp_path, "site 2")[:2] == ["failed", "absent"]


def test_who_comes_later_is_asked_how_many_samples_it_has(tmp_path: Path) -> None:
    federation = ragged(0)
    link = transport(federation, tmp_path)
    link.answers = {1: hello(math.nan, lambda order: answer(order, link.sites[1]), first=1)}
    patience = dataclasses.replace(QUICK, start=0.0)
    found, _ = federate(federation, {**FLAT, "rounds": 4}, tmp_path, over=link, patience=patience)
    assert found.federation.counts("train").tolist() == federation.counts("train").tolist()
    assert events(tmp_path, "site 1") == ["failed", "absent", "greeted"]
    ledger = json.loads((tmp_path / "run" / "federation.json").read_text())
    assert ledger["counts"]["site 1"] == np.diff(federation.bounds, axis=1)[1].tolist()
    assert ledger["guessed"] == []
    assert found.state.round == 4


def test_what_is_counted_of_those_who_did_not_answer(tmp_path: Path) -> None:
    def run(folder: Path, away: int) -> tuple[dict[str, Any], list[int]]:
        link = transport(ragged(0), folder)
        given(link, range(away), lambda order: "train" in order.asks, None)
        found, summary = federate(ragged(0), {**FLAT, "rounds": 1, "eval_every": 1}, folder, over=link)
        return {**summary, **metrics(folder)[-1]}, found.visits.tolist()

    (all_, visits), (some, fewer) = run(tmp_path / "all", 0), run(tmp_path / "some", 2)
    assert (visits, fewer) == ([1] * 6, [0, 0, 1, 1, 1, 1])
    assert some["bytes_up"] * 6 == all_["bytes_up"] * 4
    assert some["bytes_down"] == all_["bytes_down"]
    model = all_["bytes_down"] // 6
    assert 6 * model < all_["evaluation_bytes_down"] < 6 * (model + 200)  # each was sent its model to score
    assert all_["evaluation_bytes_up"] > 0
