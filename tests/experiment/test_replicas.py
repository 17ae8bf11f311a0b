"""Runs that advance together have the numbers they have alone, and fail alone."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from panacea.core.method import Adaptation, Method
from panacea.core.round import run_round
from panacea.engines.requests import Request
from panacea.engines.vectorised import VectorisedEngine
from panacea.errors import RunFailure
from panacea.experiment.batch import Job, grouped, run_batch
from panacea.experiment.config import build_config
from panacea.experiment.experiment import Experiment
from panacea.experiment.interrupt import Interrupter
from panacea.experiment.replicas import Meeting, run_together
from panacea.experiment.runner import run_experiment
from panacea.experiment.sharing import same_programme
from panacea.methods import make_method, method_names
from tests.toy import largest_difference, outcome, toy_experiment


def together(experiments: list[Experiment], rounds: list[int] | None = None) -> list[Exception | None]:
    """Run them to the end as a group; what each raised."""
    errors: list[Exception | None] = [None] * len(experiments)

    def run(number: int, meeting: Meeting, asked: Callable[[], bool]) -> None:
        meeting.join(number, experiments[number])
        try:
            run_experiment(experiments[number])
        except Exception as error:
            errors[number] = error

    run_together(range(len(experiments)), run)
    for experiment in experiments:
        engine = experiment.engine
        assert isinstance(engine, VectorisedEngine)
        engine.together = None
    return errors


def same_run(alone: Experiment, experiment: Experiment) -> bool:
    """What it trained, and what it found when it evaluated itself among the others."""
    if largest_difference(outcome(alone), outcome(experiment)) >= 1e-9:
        return False
    one, other = alone.history.last, experiment.history.last
    assert one is not None
    assert other is not None
    pairs = ((one.test, other.test), (one.val, other.val), (one.novel, other.novel))
    return all(np.allclose(a.loss, b.loss, rtol=0, atol=1e-9, equal_nan=True) for a, b in pairs)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many runs each call trained."""
    sizes: list[int] = []
    original = VectorisedEngine.launch

    def counted(self: VectorisedEngine, requests: list[Request]) -> Any:
        sizes.append(len(requests))
        return original(self, requests)

    monkeypatch.setattr(VectorisedEngine, "launch", counted)
    return sizes


@pytest.mark.parametrize("method", method_names())
def test_every_method_has_the_numbers_it_has_alone(method: str, calls: list[int]) -> None:
    """Three seeds, one of them with another rate; the programmes of evaluation and of newcomers too."""
    keys = [{"seed": 0}, {"seed": 1}, {"seed": 2, "lr": 0.05}]
    group = [toy_experiment(method, rounds=6, eval_every=3, **own) for own in keys]
    assert together(group) == [None] * 3
    assert 3 in calls
    for own, experiment in zip(keys, group, strict=True):
        alone = toy_experiment(method, rounds=6, eval_every=3, **own)
        run_experiment(alone)
        assert same_run(alone, experiment)
        assert alone.engine.gradient_evaluations == experiment.engine.gradient_evaluations
        assert alone.history.numbers["selected_round"] == experiment.history.numbers["selected_round"]


@pytest.fixture
def sides(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with many runs on a GPU: one half is trained while the other half does the rest."""
    monkeypatch.setattr("panacea.experiment.replicas._works_beside", lambda engine: True)
    monkeypatch.setattr("panacea.experiment.replicas._TWO_SIDES", 2)


@pytest.mark.usefixtures("sides")
@pytest.mark.parametrize("method", ["fedavg_ft", "panacea", "scaffold"])
def test_in_two_sides_every_run_has_the_numbers_it_has_alone(method: str, calls: list[int]) -> None:
    lengths = [3, 5, 2, 4, 5]
    group = [toy_experiment(method, rounds=rounds, eval_every=2, seed=seed) for seed, rounds in enumerate(lengths)]
    assert together(group) == [None] * 5
    assert calls[:4] == [3, 2, 3, 2]
    for seed, (rounds, experiment) in enumerate(zip(lengths, group, strict=True)):
        alone = toy_experiment(method, rounds=rounds, eval_every=2, seed=seed)
        run_experiment(alone)
        assert same_run(alone, experiment)


@pytest.mark.usefixtures("sides")
def test_one_side_is_begun_before_the_other_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise nobody would do anything while a GPU works."""
    events: list[tuple[str, int]] = []
    original = VectorisedEngine.launch

    def launch(self: VectorisedEngine, requests: list[Request]) -> Any:
        first = requests[0].party.samples.streams.seed
        events.append(("begun", first))
        finished = original(self, requests)

        def noted() -> Any:
            events.append(("waited for", first))
            return finished()

        return noted

    monkeypatch.setattr(VectorisedEngine, "launch", launch)
    group = [toy_experiment("fedavg", seed=seed, rounds=2, eval_every=2) for seed in range(4)]
    assert together(group) == [None] * 4
    begun, waited = "begun", "waited for"
    assert events == [
        (begun, 0), (begun, 2), (waited, 0), (begun, 0), (waited, 2), (begun, 2), (waited, 0), (waited, 2)
    ]  # fmt: skip


@pytest.mark.usefixtures("sides")
def test_what_fails_late_finds_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU may tell of an error when somebody waits for it."""
    original = VectorisedEngine.launch

    def launch(self: VectorisedEngine, requests: list[Request]) -> Any:
        finished = original(self, requests)
        bad = any(one.party.samples.streams.seed == 1 and one.party.round == 2 for one in requests)

        def late() -> Any:
            if bad:
                raise ValueError("seed 1 cannot")
            return finished()

        return late

    monkeypatch.setattr(VectorisedEngine, "launch", launch)
    group = [toy_experiment("fedavg", seed=seed, rounds=3) for seed in range(3)]
    assert [str(error) for error in together(group)] == ["None", "seed 1 cannot", "None"]
    alone = toy_experiment("fedavg", seed=0, rounds=3)
    run_experiment(alone)
    assert group[0].engine.gradient_evaluations == alone.engine.gradient_evaluations  # not those of the failed call


@pytest.mark.usefixtures("sides")
@pytest.mark.parametrize("method", ["fedavg", "fedavg_ft"])
def test_the_next_cohort_is_drawn_once_and_while_another_trains(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where evaluations train."""
    drawn: list[int] = []
    asked: list[int] = []
    draw, ask = Experiment._drawn, Experiment.cohort

    def counted(self: Experiment, round: int) -> Any:
        drawn.append(round)
        return draw(self, round)

    def noted(self: Experiment, round: int) -> Any:
        before = len(drawn)
        found = ask(self, round)
        asked.extend([round] * (len(drawn) - before))
        return found

    monkeypatch.setattr(Experiment, "_drawn", counted)
    monkeypatch.setattr(Experiment, "cohort", noted)
    group = [toy_experiment(method, seed=seed, rounds=4, eval_every=1) for seed in range(2)]
    assert together(group) == [None, None]
    assert asked == [1, 1]  # the first had to be waited for
    assert [drawn.count(round) for round in range(1, 5)] == [2, 2, 2, 2]


@pytest.mark.usefixtures("sides")
def test_what_fails_ahead_of_time_costs_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = Experiment._drawn

    def failing(self: Experiment, round: int) -> Any:
        if self.config.seed == 1 and round == 3:
            raise ValueError("no memory for this cohort")
        return draw(self, round)

    monkeypatch.setattr(Experiment, "_drawn", failing)
    group = [toy_experiment("fedavg", seed=seed, rounds=4) for seed in range(3)]
    assert [str(error) for error in together(group)] == ["None", "no memory for this cohort", "None"]


def test_on_a_cpu_there_is_one_side(calls: list[int]) -> None:
    assert together([toy_experiment("fedavg", seed=seed, rounds=2) for seed in range(8)]) == [None] * 8
    assert calls == [8, 8]


def test_gradients_are_on_whatever_the_caller_does() -> None:
    for mode in (torch.no_grad(), torch.inference_mode()):
        group = [toy_experiment("fedavg", seed=seed, rounds=1) for seed in range(2)]
        with mode:
            assert together(group) == [None, None]


def test_runs_of_different_length_and_steps() -> None:
    """Who ends first leaves; rows with fewer steps stand still."""
    keys = [{"rounds": 2}, {"rounds": 5, "local_steps": 7, "seed": 3}]
    group = [toy_experiment("ditto", **own) for own in keys]
    assert together(group) == [None, None]
    for own, experiment in zip(keys, group, strict=True):
        alone = toy_experiment("ditto", **own)
        run_experiment(alone)
        assert same_run(alone, experiment)


def test_one_that_diverges_is_retired_alone() -> None:
    keys = [{"seed": 0}, {"seed": 1, "lr": 1e30}, {"seed": 2}]
    group = [toy_experiment("fedavg", rounds=8, **own) for own in keys]
    errors = together(group)
    assert isinstance(errors[1], RunFailure)
    assert errors[0] is None
    assert errors[2] is None
    for place in (0, 2):
        alone = toy_experiment("fedavg", rounds=8, **keys[place])
        run_experiment(alone)
        assert same_run(alone, group[place])


def test_an_error_in_a_shared_call_finds_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    original = VectorisedEngine._launch_rows

    def failing(self: VectorisedEngine, pieces: list[Request]) -> Any:
        if any(piece.party.samples.streams.seed == 1 and piece.party.round == 3 for piece in pieces):
            raise ValueError("seed 1 cannot")
        return original(self, pieces)

    monkeypatch.setattr(VectorisedEngine, "_launch_rows", failing)
    errors = together([toy_experiment("fedavg", seed=seed) for seed in range(3)])
    assert [str(error) for error in errors] == ["None", "seed 1 cannot", "None"]


def test_whoever_comes_first_the_rows_are_in_one_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Last bits may depend on a row's place, and a GPU has captured the steps of one engine."""
    orders: set[tuple[int, ...]] = set()
    original = VectorisedEngine.launch

    def noted(self: VectorisedEngine, requests: list[Request]) -> Any:
        orders.add(tuple(request.party.samples.streams.seed for request in requests))
        return original(self, requests)

    monkeypatch.setattr(VectorisedEngine, "launch", noted)
    assert together([toy_experiment("fedavg", seed=seed, rounds=12) for seed in range(4)]) == [None] * 4
    assert orders == {(0, 1, 2, 3)}


def test_what_no_run_expects_is_raised_where_it_is_heard() -> None:
    done: list[int] = []

    def run(number: int, meeting: Meeting, asked: Callable[[], bool]) -> None:
        if number == 1:
            raise SystemExit("a user's network gave up")
        meeting.join(number, toy_experiment("fedavg"))
        done.append(number)

    with pytest.raises(SystemExit, match="gave up"):
        run_together(range(3), run)
    assert sorted(done) == [0, 2]


class Tied(Method):
    """A programme that holds something of its own run."""

    def __init__(self, make: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.make = make


def test_what_runs_may_share() -> None:
    def scaled(factor: Tensor) -> Callable[[Tensor], Tensor]:
        return lambda value: value * factor

    one, two = torch.ones(1), torch.ones(1)
    assert same_programme(Tied(scaled(one)), Tied(scaled(one)))
    assert not same_programme(Tied(scaled(one)), Tied(scaled(two)))
    assert not same_programme(make_method("ditto", {"lam": 0.1}), make_method("ditto", {"lam": 0.2}))
    assert not same_programme(make_method("fedavg", {}), make_method("fedprox", {}))
    assert same_programme(make_method("panacea", {"lambda_d": 0.1}), make_method("panacea", {"lambda_d": 0.2}))
    assert not same_programme(make_method("panacea", {"scope": "all"}), make_method("panacea", {"scope": "last"}))


def test_hyperparameters_of_the_server_advance_together(calls: list[int]) -> None:
    keys = [{"lambda_d": 0.0}, {"lambda_d": 1.0, "optimiser": "sgd"}]
    group = [toy_experiment("panacea", own) for own in keys]
    assert together(group) == [None, None]
    assert set(calls) == {2}
    for own, experiment in zip(keys, group, strict=True):
        alone = toy_experiment("panacea", own)
        run_experiment(alone)
        assert same_run(alone, experiment)


def test_newcomers_fitted_by_their_own_hypernetwork_are_not_mixed_up() -> None:
    keys = {"novel": "fit_embedding", "fit_steps": 3}
    group = [toy_experiment("pfedhn", keys, seed=seed) for seed in (0, 1)]
    assert together(group) == [None, None]
    for seed, experiment in enumerate(group):
        alone = toy_experiment("pfedhn", keys, seed=seed)
        run_experiment(alone)
        assert same_run(alone, experiment)


def _config(**keys: Any) -> Any:
    return build_config({"data": "fl60", "method": "fedavg", "rounds": 4, **keys})


def test_groups() -> None:
    seeds = [_config(seed=seed) for seed in range(5)]
    assert grouped(seeds, 1) == [[0, 1, 2, 3, 4]]
    assert sorted(map(len, grouped(seeds, 2))) == [2, 3]
    assert grouped(seeds, 5) == [[0], [1], [2], [3], [4]]
    mixed = [_config(seed=0), _config(seed=0, method="ditto"), _config(seed=1, lr=0.3), _config(seed=2, momentum=0.5)]
    assert grouped(mixed, 1) == [[0, 2], [1], [3]]
    for alone in ({"engine": "sequential"}, {"engine.together": False}):
        assert grouped([_config(seed=seed, **alone) for seed in (0, 1)], 1) == [[0], [1]]
    assert max(map(len, grouped([_config(seed=seed) for seed in range(25)], 1))) <= 10


def test_a_batch_together_and_apart(tmp_path: Path) -> None:
    """Through run directories: the same summaries, and a wrong request stops everything as before."""
    found = []
    for side in (True, False):
        keys = {"rounds": 12, "out": str(tmp_path / str(side)), "engine.together": side}
        jobs = [Job(_config(seed=seed, **keys)) for seed in range(3)]
        results = run_batch(jobs, workers=1, pages=False)
        assert [result.error for result in results] == [None] * 3
        found.append([result.summary for result in results])
    for a, b in zip(*found, strict=True):
        assert a is not None
        assert b is not None
        assert math.isclose(a["mean"], b["mean"], abs_tol=0.2)
        assert a["selected_round"] == b["selected_round"]
        assert a["bytes_up"] == b["bytes_up"]


def test_a_run_that_waits_outside_does_not_hold_up_the_others(calls: list[int]) -> None:
    """Number 1 waits while 0 trains to its end, and then goes on."""
    order: list[str] = []
    group = [toy_experiment("fedavg", seed=seed, rounds=3) for seed in range(2)]

    def run(number: int, meeting: Meeting, asked: Callable[[], bool]) -> None:
        meeting.join(number, group[number])
        if number == 1:
            meeting.pause(number, 2.0)
        run_experiment(group[number])
        order.append(f"{number} done")
        if number == 0:
            started = time.monotonic()
            meeting.pause(number, 0.05)
            assert time.monotonic() >= started + 0.05
            order.append("0 back")

    run_together(range(2), run)
    assert order == ["0 done", "0 back", "1 done"]
    assert set(calls) == {1}
    for seed, experiment in enumerate(group):
        alone = toy_experiment("fedavg", seed=seed, rounds=3)
        run_experiment(alone)
        assert same_run(alone, experiment)


def test_who_comes_back_is_trained_with_the_others_again(calls: list[int]) -> None:
    group = [toy_experiment("fedavg", seed=seed, rounds=40) for seed in range(3)]

    def run(number: int, meeting: Meeting, asked: Callable[[], bool]) -> None:
        meeting.join(number, group[number])
        if number == 0:
            meeting.pause(number, 0.01)
        run_experiment(group[number])

    run_together(range(3), run)
    assert 3 in calls


def test_a_second_interrupt_ends_all_of_them_at_once() -> None:
    """What they hold is let go: nobody else waits for their locks."""
    closed, rounds = list[int](), [0, 0]

    def run(number: int, meeting: Meeting, asked: Callable[[], bool]) -> None:
        experiment = toy_experiment("fedavg", seed=number)
        meeting.join(number, experiment)
        try:
            for round in range(1, 6):
                run_round(experiment.method, experiment.state, experiment.cohort(round), experiment.engine)
                rounds[number] += 1
                if number == 0 and round == 2:
                    os.kill(os.getpid(), signal.SIGINT)
                    assert asked()
                    os.kill(os.getpid(), signal.SIGINT)
        finally:
            closed.append(number)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        run_together(range(2), run)
    assert sorted(closed) == [0, 1]
    assert rounds == [2, 1]
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupter_inside_another_leaves_the_signals_alone() -> None:
    """Runs begin and end in any order; the first to end must not take the others' Ctrl-C away."""
    with Interrupter() as outer:
        first, second = Interrupter(), Interrupter()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        os.kill(os.getpid(), signal.SIGINT)
        second.__exit__(None, None, None)
        assert outer.requested
        assert second.requested  # who is inside hears it, too


def test_threads_of_a_run_that_ends_first_stay_the_others() -> None:
    before = torch.get_num_threads()

    def run(number: int, meeting: Meeting, asked: Callable[[], bool]) -> None:
        experiment = toy_experiment("fedavg", seed=number, rounds=2 + 2 * number, threads=before + 1)
        meeting.join(number, experiment)
        run_experiment(experiment)

    def counted(self: VectorisedEngine, requests: list[Request]) -> Any:
        assert torch.get_num_threads() == before + 1
        return original(self, requests)

    original = VectorisedEngine.launch
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(VectorisedEngine, "launch", counted)
        run_together(range(2), run)
    assert torch.get_num_threads() == before


def test_adaptations_are_programmes_too() -> None:
    one, two = (make_method("fedavg_ft", {"tune_steps": 3}).adapt() for _ in range(2))
    assert isinstance(one, Adaptation)
    assert isinstance(two, Adaptation)
    assert same_programme(one.method, two.method)
