"""Rows of several runs in one call; blocks; and what happens when memory is short."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import torch

from panacea.core.local import Local, fold_steps
from panacea.core.types import Cohort
from panacea.engines.capture import StepGraphs
from panacea.engines.gradients import RowGradient
from panacea.engines.requests import Request
from panacea.engines.rows import Party, Rows, largest_divisor
from panacea.engines.vectorised import VectorisedEngine
from panacea.experiment.experiment import Experiment
from tests.toy import largest_difference, outcome, play, toy_experiment


def test_batches_of_two_parties_are_those_of_each() -> None:
    """One of them has smaller clients, so its rows are padded; padding has no weight."""
    small, large = toy_experiment("fedavg", seed=0), toy_experiment("fedavg", seed=1)
    parties = [
        Party(small.engine.samples, np.array([0, 4]), 3, "train"),
        Party(large.engine.samples, np.array([3, 5]), 7, "train"),
    ]
    both = list(Rows(tuple(parties)).batches(5, 2, 7))
    assert len(both) == 5
    for number, party in enumerate(parties):
        rows = slice(2 * number, 2 * number + 2)
        alone = list(Rows((party,)).batches(5, 2, 7))
        for together, own in zip(both, alone, strict=True):
            for a, b in zip(together, own, strict=True):
                width = b.x.shape[1]
                assert torch.equal(a.weight[rows, :width], b.weight)
                assert not a.weight[rows, width:].any()
                real = b.weight > 0
                assert torch.equal(a.x[rows, :width][real], b.x[real])
                assert torch.equal(a.y[rows, :width][real], b.y[real])


def test_stretches_of_equal_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is captured needs one length; the steps are the same."""
    rows = Rows((Party(toy_experiment("fedavg").engine.samples, np.array([1, 2, 3]), 1, "train"),), sloped=True)
    whole = list(rows.batches(12, 1, 7))
    batch = whole[0][0]
    assert batch.slope is not None
    one_step = (batch.x.numel() + batch.slope.numel()) * 8
    monkeypatch.setattr("panacea.engines.rows._GATHER_BYTES", {"cpu": 5 * one_step})
    stretches = list(rows.stretches(12, 1, 7, even=True))
    assert [len(stretch.x) for stretch in stretches] == [4, 4, 4]
    assert [len(stretch.x) for stretch in rows.stretches(12, 1, 7)] == [5, 5, 2]
    cut = [batch for stretch in stretches for batch in stretch.batches()]
    assert all(torch.equal(a[0].x, b[0].x) for a, b in zip(whole, cut, strict=True))


def test_later_stretches_know_the_whole_number_of_steps() -> None:
    """FedRep looks at it in every step."""
    experiment = toy_experiment("fedrep", local_epochs=3, rounds=2)
    engine, cohort = experiment.engine, experiment.cohort(1)
    assert isinstance(engine, VectorisedEngine)
    method, downloads = experiment.method, experiment.method.download(experiment.state.server, cohort)
    kept, statistics = method.init_client(downloads), experiment.state.statistics.send(cohort)
    whole = engine.train(method, downloads, kept, statistics, cohort)
    rows = Rows((Party(engine.samples, cohort.ids, 1, "train"),))
    counts = engine.local.steps_of(cohort.ids, None)
    grad = RowGradient(engine, statistics, rows, counts)
    local = Local(grad, engine.local.sgd(cohort.ids, statistics), rows.steps_of(counts))
    carry, batches = method.start(downloads, kept, local), list(rows.batches(int(counts.max()), 1, 7))
    for first, part in ((0, batches[:2]), (2, batches[2:])):
        carry = fold_steps(method, carry, downloads, kept, grad.follow(iter(part), first), local, first)
    uploads, mine = method.finish(carry, downloads, kept, local.steps)
    assert torch.equal(whole.uploads.params, uploads.params)
    assert torch.equal(whole.kept.params, mine.params)


def test_a_step_takes_what_a_step_takes_and_not_what_the_first_one_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """By it is decided how many steps a captured graph holds; the first of a kind runs on any device."""
    experiment = toy_experiment("fedavg", local_steps=6)
    engine, cohort, steps = experiment.engine, experiment.cohort(1), []
    assert isinstance(engine, VectorisedEngine)
    kernel = engine.kernel

    def slow_at_first(*arguments: Any) -> Any:
        steps.append(1)
        time.sleep(0.3 if len(steps) == 1 else 0)
        return kernel(*arguments)

    expected = engine.train(experiment.method, *_sent(experiment, cohort), cohort)
    engine.graphs = StepGraphs()
    monkeypatch.setattr(engine, "kernel", slow_at_first)
    found = engine.train(experiment.method, *_sent(experiment, cohort), cohort)
    assert torch.equal(expected.uploads.params, found.uploads.params)
    assert torch.equal(expected.loss, found.loss)
    (seconds,) = engine.graphs.seen.values()
    assert seconds < 0.1


def _sent(experiment: Experiment, cohort: Cohort) -> tuple[Any, Any, torch.Tensor]:
    downloads = experiment.method.download(experiment.state.server, cohort)
    return downloads, experiment.method.init_client(downloads), experiment.state.statistics.send(cohort)


def test_largest_divisor() -> None:
    assert [largest_divisor(50, most) for most in (100, 50, 49, 12, 4, 1)] == [50, 50, 25, 10, 2, 1]
    assert largest_divisor(53, 10) == 1


@pytest.mark.parametrize(
    ("fits", "block", "cohort", "said"),
    [(1, 64, 5, "5 .* with 2"), (2, 64, 5, "5 .* with 2"), (1, 2, 6, "2 .* with 1")],
)
def test_too_little_memory_halves_the_block(
    fits: int, block: int, cohort: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The round is trained all the same, and the numbers are those of a small block; no row is lost on the way."""
    original = VectorisedEngine._launch_rows

    def small(self: VectorisedEngine, pieces: list[Request]) -> object:
        if sum(map(len, pieces)) > fits:
            raise torch.cuda.OutOfMemoryError("too little")
        return original(self, pieces)

    expected = toy_experiment("ditto", block=fits, cohort=cohort)
    play(expected, 2)
    monkeypatch.setattr(VectorisedEngine, "_launch_rows", small)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    tried = toy_experiment("ditto", block=block, cohort=cohort)
    with pytest.warns(UserWarning, match=f"too little memory for {said}"):
        play(tried, 2)
    assert isinstance(tried.engine, VectorisedEngine)
    assert tried.engine.block == fits
    assert largest_difference(outcome(expected), outcome(tried)) < 1e-12


def test_one_client_that_does_not_fit_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(self: VectorisedEngine, pieces: list[Request]) -> object:
        raise torch.cuda.OutOfMemoryError("too little")

    monkeypatch.setattr(VectorisedEngine, "_launch_rows", never)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    with pytest.warns(UserWarning, match="too little memory"), pytest.raises(torch.cuda.OutOfMemoryError):
        play(toy_experiment("fedavg"), 1)


def test_rows_that_are_better_taken_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Local training only, whatever the block is."""
    original, sizes = VectorisedEngine._launch_rows, list[int]()

    def noted(self: VectorisedEngine, pieces: list[Request]) -> object:
        sizes.append(sum(map(len, pieces)))
        return original(self, pieces)

    expected = toy_experiment("ditto", block=1, cohort=5)
    play(expected, 2)
    monkeypatch.setattr(VectorisedEngine, "_launch_rows", noted)
    tried = toy_experiment("ditto", block=64, cohort=5)
    assert isinstance(tried.engine, VectorisedEngine)
    tried.engine.most = 1
    play(tried, 2)
    assert set(sizes) == {1}
    assert largest_difference(outcome(expected), outcome(tried)) < 1e-12
