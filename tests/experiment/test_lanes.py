"""Who waits for whom on a GPU, seen with pretended streams: nothing is read before it is written."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from panacea.core import lanes
from panacea.core.round import run_round
from panacea.engines.requests import Request
from panacea.engines.vectorised import VectorisedEngine
from panacea.experiment import replicas
from panacea.experiment.replicas import Meeting, run_together
from tests.toy import toy_experiment

Seen = set[tuple[str, int, int]]


class FakeStream:
    """Knows of all work that is done before what is queued now."""

    def __init__(self) -> None:
        self.seen: Seen = set()

    def record_event(self) -> Seen:
        return set(self.seen)

    def wait_event(self, event: Seen) -> None:
        self.seen |= event

    def wait_stream(self, other: FakeStream) -> None:
        self.seen |= other.seen


class Streams:
    """The streams of a pretended GPU."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.current = FakeStream()
        monkeypatch.setattr(lanes, "_gpu", lambda: True)
        monkeypatch.setattr(torch.cuda, "Stream", FakeStream)
        monkeypatch.setattr(torch.cuda, "stream", self.entered)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: self.current)

    @contextlib.contextmanager
    def entered(self, stream: FakeStream) -> Iterator[None]:
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before


@pytest.mark.parametrize("two_sides_from", [2, 8])
@pytest.mark.parametrize("own_lane", [True, False])
def test_calls_see_their_runs_and_runs_their_calls(
    own_lane: bool, two_sides_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run works before every round (its server; an attacker that poisons samples) and uses what training made."""
    streams, rounds, seeds = Streams(monkeypatch), 4, 4
    monkeypatch.setattr(replicas, "_TWO_SIDES", two_sides_from)
    monkeypatch.setattr(replicas, "_works_beside", lambda engine: True)
    monkeypatch.setattr(replicas, "_needs_lane", lambda run: own_lane)
    launch = VectorisedEngine.launch
    checked: list[tuple[int, int]] = []

    def noted(self: VectorisedEngine, requests: list[Request]) -> Any:
        for one in requests:
            seed, round = one.party.samples.streams.seed, one.party.round
            assert ("run", seed, round) in streams.current.seen
            if round > 1 and own_lane:  # what the run made of the last call is read, and its memory used again
                assert ("used", seed, round - 1) in streams.current.seen
            streams.current.seen.add(("call", seed, round))
        return launch(self, requests)

    monkeypatch.setattr(VectorisedEngine, "launch", noted)

    def run(number: int, meeting: Meeting, asked: Callable[[], bool]) -> None:
        experiment = toy_experiment("fedavg", seed=number, rounds=rounds)
        streams.current.seen.add(("made", number, 0))
        meeting.join(number, experiment)
        for round in range(1, rounds + 1):
            cohort = experiment.cohort(round)
            streams.current.seen.add(("run", number, round))
            experiment.state, _ = run_round(experiment.method, experiment.state, cohort, experiment.engine)
            if own_lane:  # otherwise the host has waited for it
                assert ("call", number, round) in streams.current.seen
            streams.current.seen.add(("used", number, round))
            checked.append((number, round))

    run_together(range(seeds), run)
    assert sorted(checked) == [(seed, round) for seed in range(seeds) for round in range(1, rounds + 1)]


def test_a_lane_begins_behind_what_was_queued_where_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = Streams(monkeypatch)
    streams.current.seen.add(("made", 0, 0))
    with lanes.Lane().entered():
        assert ("made", 0, 0) in streams.current.seen


def test_a_run_that_ends_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may still use what a call made when the next call of the others takes that memory."""
    streams = Streams(monkeypatch)
    monkeypatch.setattr(replicas, "_works_beside", lambda engine: True)
    monkeypatch.setattr(replicas, "_needs_lane", lambda run: True)
    launch, waited = VectorisedEngine.launch, list[bool]()

    def noted(self: VectorisedEngine, requests: list[Request]) -> Any:
        if len(requests) == 1:
            waited.append(("last", 0, 0) in streams.current.seen)
        return launch(self, requests)

    monkeypatch.setattr(VectorisedEngine, "launch", noted)

    def run(number: int, meeting: Meeting, asked: Callable[[], bool]) -> None:
        experiment = toy_experiment("fedavg", seed=number)
        meeting.join(number, experiment)
        for round in range(1, 2 + number):
            run_round(experiment.method, experiment.state, experiment.cohort(round), experiment.engine)
        if number == 0:
            streams.current.seen.add(("last", 0, 0))

    run_together(range(2), run)
    assert waited == [True]
