"""fl60 under the published protocol: 800 rounds, five clients a round, 50 steps, batch 64, rate 0.1, a fifth novel."""

from __future__ import annotations

import statistics
from typing import Any

import pytest

import panacea as pn

pytestmark = pytest.mark.paper


def _runs(method: str, **keys: Any) -> list[dict[str, Any]]:
    return [pn.train("fl60", method, rounds=800, seed=seed, **keys).summary for seed in range(3)]


def test_fedavg_reaches_what_the_papers_print() -> None:
    """The papers print 97.9 % for FedAvg; a global network can separate both spirals, and dips from round to round.

    Ours is above what the papers print, so this is a lower bound only: it would not notice a run that is too good.
    """
    means = [run["final_mean"] for run in _runs("fedavg")]
    assert statistics.fmean(means) > 93


def test_fine_tuning_is_perfect() -> None:
    for run in _runs("fedavg_ft"):
        assert run["final_mean"] == 100
        assert run["novel_mean"] == 100


def test_the_reference_engine_reports_the_same() -> None:
    a, b = (pn.train("fl60", "fedavg", rounds=200, seed=0, engine=engine) for engine in ("sequential", "vectorised"))
    for x, y in zip(a.metrics, b.metrics, strict=True):
        for key in ("mean", "val_mean", "novel_mean", "worst_decile"):
            assert x[key] == pytest.approx(y[key], abs=0.2), (x["round"], key)
