"""fl60 and tpt48 under the published protocol: 800 rounds, five clients a round, 50 steps, batch 64, a fifth novel."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import pytest

import panacea as pn

pytestmark = pytest.mark.paper


def _runs(method: str, data: str = "fl60", **keys: Any) -> list[dict[str, Any]]:
    return [pn.train(data, method, rounds=800, seed=seed, **keys).summary for seed in range(3)]


def test_fedavg_reaches_what_the_papers_print() -> None:
    """The papers print 97.9 % for FedAvg; a global network can separate both spirals, and dips from round to round.

    Ours is above what the papers print, so this is a lower bound only: it would not notice a run that is too good.
    """
    means = [run["final_mean"] for run in _runs("fedavg")]
    assert statistics.fmean(means) > 93


def test_scaffold_is_a_global_model_that_dips_as_well() -> None:
    """The same seeds ended at 100, 100, 100 on one CPU and at 98.9, 100, 100 on another."""
    means = [run["final_mean"] for run in _runs("scaffold")]
    assert statistics.fmean(means) > 98


def test_fine_tuning_is_perfect() -> None:
    for run in _runs("fedavg_ft"):
        assert run["final_mean"] == 100
        assert run["novel_mean"] == 100


@pytest.mark.parametrize(
    ("method", "novel"),
    [("ditto", 85), ("apfl", 85), ("pfedme", 99), ("perfedavg", 99), ("fedamp", 99), ("fedrep", 99)],
)
def test_personal_methods_are_perfect_on_main(method: str, novel: float) -> None:
    """The papers print 100 % and 95 +- 10 % on newcomers for Ditto; they have the global model, as APFL's do."""
    runs = _runs(method)
    assert [run["final_mean"] for run in runs] == [100, 100, 100]
    assert statistics.fmean(run["final_novel_mean"] for run in runs) >= novel


@pytest.mark.parametrize("preset", ["paper", "default"])
@pytest.mark.parametrize(("method", "novel"), [("panacea", 99), ("panacea_gn", 93)])
def test_a_graph_hypernetwork_serves_everyone(method: str, novel: float, preset: str) -> None:
    runs = _runs(method, parameters={"preset": preset})
    assert statistics.fmean(run["final_mean"] for run in runs) >= 99.5
    assert statistics.fmean(run["final_novel_mean"] for run in runs) >= novel


def test_without_a_graph_newcomers_are_not_served() -> None:
    runs = _runs("panacea_mlp")
    assert statistics.fmean(run["final_mean"] for run in runs) >= 99
    assert statistics.fmean(run["final_novel_mean"] for run in runs) < 85


def test_tpt48(real_data: Path) -> None:
    """A prototype had FedAvg 2.59, Panacea as printed 2.43 and 2.50 for newcomers (MSE x1e-3)."""
    if not (real_data / "tpt48").is_dir():
        pytest.skip("the files of tpt48 are not here")
    keys = {"data.root": str(real_data)}
    runs = {
        name: _runs(method, "tpt48", parameters=parameters, **keys)
        for name, method, parameters in (
            ("fedavg", "fedavg", {}),
            ("paper", "panacea", {"preset": "paper"}),
            ("default", "panacea", {}),
        )
    }
    found = {
        name: [1e3 * statistics.fmean(run[key] for run in summaries) for key in ("final_mean", "final_novel_mean")]
        for name, summaries in runs.items()
    }
    assert found["fedavg"][0] == pytest.approx(2.59, abs=0.15)
    assert found["paper"][0] < 2.43 + 0.15
    assert found["paper"][1] < 2.50 + 0.15
    assert found["default"][0] < found["paper"][0]
    assert found["default"][1] < found["paper"][1] + 0.02


def test_the_reference_engine_reports_the_same() -> None:
    a, b = (pn.train("fl60", "fedavg", rounds=200, seed=0, engine=engine) for engine in ("sequential", "vectorised"))
    for x, y in zip(a.metrics, b.metrics, strict=True):
        for key in ("mean", "val_mean", "novel_mean", "worst_decile"):
            assert x[key] == pytest.approx(y[key], abs=0.2), (x["round"], key)
