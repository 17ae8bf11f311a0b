"""`compare --tune`: the same number of trials for every method, whatever keys it has, chosen on validation data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from panacea.errors import RequestError, RunFailure
from panacea.experiment.config import ExperimentConfig
from panacea.experiment.search.space import Choice, Integer, Range
from panacea.experiment.search.tuning import plan_tuning, tune_methods, tuning_key
from panacea.methods import find_method, method_names
from tests.experiment.search.pretended import Pretended

BASE: dict[str, Any] = {"data": "fl60", "data.clients": 6, "rounds": 40, "eval_every": 5}
ALL = sorted(method_names())


def test_every_method_has_nine_settings() -> None:
    request = plan_tuning(ALL, BASE, [0], 9)
    assert {method: space.size for method, space in request.spaces.items()} == dict.fromkeys(ALL, 9)
    assert request.stop is None


@pytest.mark.parametrize("method", ALL)
def test_the_named_key_has_the_default_among_its_values(method: str) -> None:
    """Otherwise a tuned method could do worse than an untuned one for want of its own default."""
    own = tuning_key(method)
    if own is None:
        return
    key, values = own
    assert len(values) == 3
    default = 0.01 if key == "server_lr" else find_method(method).parameter_model.model_fields[key[7:]].default
    assert (50 if key == "method.tune_steps" else default) in values  # tune_steps: a visit's local steps


def test_the_grid_by_hand() -> None:
    request = plan_tuning(["fedavg", "ditto"], BASE, [3], 9)  # fl60: lr 0.1
    assert request.spaces["ditto"].dimensions == {
        "lr": Choice((0.03333, 0.1, 0.3)), "method.lam": Choice((0.05, 0.5, 2)),
    }  # fmt: skip
    rates = request.spaces["fedavg"].dimensions["lr"].corners
    assert rates == (0.03333, 0.04387, 0.05774, 0.07598, 0.1, 0.1316, 0.1732, 0.228, 0.3)
    assert request.seeds == (3,)


def test_what_the_user_fixes_is_not_tuned() -> None:
    request = plan_tuning(["ditto"], {**BASE, "method.lam": 1, "lr": 0.3}, [0], 9)
    assert list(request.spaces["ditto"].dimensions) == ["lr"]
    assert request.spaces["ditto"].size == 9
    assert request.spaces["ditto"].dimensions["lr"].corners[4] == 0.3  # the centre
    assert request.base["method.lam"] == 1


def test_another_budget_is_drawn_between_the_same_bounds() -> None:
    request = plan_tuning(["fedavg", "fedprox", "fedcg"], {**BASE, "data": "digits"}, [0], 4)
    assert (request.search, request.trials) == ("random", 4)
    assert request.spaces["fedprox"].dimensions == {
        "lr": Range(0.01667, 0.15, log=True), "method.mu": Range(0.01, 1, log=True),
    }  # fmt: skip
    assert request.spaces["fedcg"].dimensions["method.domains"] == Integer(2, 8)


@pytest.mark.parametrize(
    ("changes", "trials", "words"),
    [
        ({"lr": 0}, 9, "lr=0"),
        ({"lr": [0.1, 1]}, 9, "one number"),
        ({}, 1, "--tune 1"),
        ({"data": None}, 9, "data is missing"),
    ],
)
def test_what_cannot_be_tuned_is_said(changes: dict[str, Any], trials: int, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        plan_tuning(["fedavg"], {**BASE, **changes}, [0], trials)


def test_the_choice_and_its_caption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def value(config: ExperimentConfig, round: int) -> float:
        return (config.lr or 0) + config.method.keys.get("lam", 0)

    Pretended(value).install(monkeypatch)
    tuned = tune_methods(plan_tuning(["fedavg", "ditto"], {**BASE, "out": str(tmp_path)}, [0, 1], 9))
    assert tuned.chosen == {"fedavg": {"lr": 0.3}, "ditto": {"lr": 0.3, "method.lam": 2}}
    for word in (
        "9 settings each", "40 rounds", "tuning seeds 0, 1", "on validation data",
        "fedavg lr=0.3; ditto lr=0.3 method.lam=2", "lr from 0.03333 to 0.3 (9 values)", "method.lam in {0.05, 0.5, 2}",
    ):  # fmt: skip
        assert word in tuned.caption


def test_a_method_that_never_ends_well_ends_the_tuning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Pretended(lambda config, round: None if config.method.name == "ditto" else 1.0).install(monkeypatch)
    with pytest.raises(RunFailure, match="no setting of ditto came to its end; the first: training diverged"):
        tune_methods(plan_tuning(["fedavg", "ditto"], {**BASE, "out": str(tmp_path)}, [0], 9))
