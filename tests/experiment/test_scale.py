"""Twenty thousand clients: a round's work and memory are those of its cohort, and a stop in between changes nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from panacea.core.records import leaves
from panacea.core.round import run_round
from panacea.evaluation import evaluate
from panacea.experiment.config import build_config
from panacea.experiment.experiment import Experiment

MANY = 20_000


def experiment(clients: int, **keys: Any) -> Experiment:
    flat = {
        "data": "fl60", "data.clients": clients, "method": "panacea", "rounds": 6, "local_steps": 3, "server_steps": 3,
        "device": "cpu",
    }  # fmt: skip
    return Experiment(build_config(flat | keys))


def play(made: Experiment, rounds: int) -> None:
    for _ in range(rounds):
        cohort = made.cohort(made.state.round + 1)
        made.state, _ = run_round(made.method, made.state, cohort, made.engine)


@pytest.fixture(scope="module")
def many() -> Experiment:
    return experiment(MANY)


def work(made: Experiment, round: int) -> int:
    """Multiplications of a server's step in the encoder: two matrices of 100 x 100 a row, and 100 numbers an arc."""
    plan = made.method.plan(made.cohort(round))  # type: ignore[attr-defined]
    return sum(2 * 100**2 * block.n_out + 100 * len(block.sources) for block in plan.blocks)


def test_the_work_of_a_round_is_that_of_its_cohort(many: Experiment) -> None:
    """Counted, not timed: within three times that with a thousand clients, whose graph is as dense; ten rounds each."""
    few = experiment(1_000, **{"graph.drop": 0.94})
    for round in range(1, 11):
        assert work(many, round) < 3 * work(few, round)


def test_a_round_touches_few_rows_and_writes_them_where_they_are(many: Experiment) -> None:
    """The table is not copied: it stays at its address, and only rows that the plan names are other than before."""
    method, server = many.method, many.state.server
    cohort = many.cohort(many.state.round + 1)
    before, place = server.table.clone(), server.table.data_ptr()
    named = method.plan(cohort).rows  # type: ignore[attr-defined]
    assert len(named) < MANY // 3
    play(many, 1)
    assert many.state.server.table.data_ptr() == place
    moved = (many.state.server.table != before).any(dim=1).nonzero().squeeze(-1)
    assert 0 < len(moved) <= len(named)
    assert np.isin(moved.numpy(), named.numpy()).all()


def test_a_stop_changes_nothing(many: Experiment) -> None:
    """Two rounds after a checkpoint are the same bits, though the table that was saved has been written to since."""
    saved = many.to_checkpoint()
    kept = {name: value.clone() for name, value in saved.tensors.items()}
    play(many, 2)
    again = experiment(MANY)
    again.restore(type(saved)(saved.round, kept, saved.info))
    play(again, 2)
    for one, other in zip(leaves(many.state.server), leaves(again.state.server), strict=True):
        assert torch.equal(one, other)


def test_a_round_that_goes_astray_is_taken_back() -> None:
    """Rows that were written are written back, all of them."""
    made = experiment(MANY, server_lr=1e9)
    before = made.state.server.table.clone()
    play(made, 1)
    assert int(made.state.server.undone) == 1
    assert torch.equal(made.state.server.table, before)
    assert all(not memory.any() for memory in made.state.server.moments)


def test_a_sample_of_many_clients_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many clients some are trained for `gen+local`, evenly spaced; the others have no number."""
    monkeypatch.setattr(evaluate, "_TRIED", 7)
    made = experiment(60)
    found = evaluate.evaluate_alternatives(made.method, made.state, made.engine, made.federation)["local"]
    tried = np.flatnonzero(np.isfinite(found))
    assert len(tried) == 14
    assert np.isin(tried, made.federation.novel_ids).sum() == 7
    trained = np.searchsorted(made.federation.train_ids, np.setdiff1d(tried, made.federation.novel_ids))
    assert set(np.diff(trained)) <= {6, 7}
