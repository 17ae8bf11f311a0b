"""Defences: what they make of a cohort, by hand, and what they save of a run that is attacked."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from panacea.core.method import Method, Model
from panacea.core.round import run_round
from panacea.core.screening import Judged, refuse, screen
from panacea.core.types import Cohort
from panacea.data.load import load_keys, resolve_keys
from panacea.errors import RequestError
from panacea.experiment.config import build_config
from panacea.experiment.experiment import Experiment
from panacea.experiment.runner import run_experiment
from panacea.methods import make_method
from panacea.robustness import make_defence
from tests.toy import toy_experiment

NOTHING = torch.zeros(0)


def judged(
    updates: list[list[float]], trust: list[float] | None = None, at: float = 100.0
) -> tuple[Judged, Tensor, Cohort]:
    """Uploads with these updates, from clients that were all sent the same number."""
    moves = torch.tensor(updates, dtype=torch.float64)
    rows = len(moves)
    who = Cohort.of(np.arange(rows), np.ones(rows, np.int64), 1, moves)
    sent = torch.full_like(moves, at)
    mark = torch.tensor(trust or [1.0] * rows, dtype=torch.float64)[:, None]
    return Judged(Model(sent), Model(sent + moves), torch.zeros(rows, 0), mark, {}), torch.zeros(rows, 0), who


def updates_after(
    name: str, cohort: tuple[Judged, Tensor, Cohort], memory: Any = None, **keys: Any
) -> tuple[Any, Judged, list]:
    before, sent, who = cohort
    memory, after = make_defence(name, keys, Method()).judge(memory, before, sent, who)
    return memory, after, (after.uploads.params - after.unchanged.params).tolist()


@pytest.mark.parametrize(
    ("name", "keys", "expected"),
    [
        ("none", {}, None),
        ("median", {}, [2.0, 1.0]),
        ("trimmed_mean", {"share": 0.2}, [2.0, 1.0]),  # of 3 rows ceil(0.6) = 1 goes at each end
        ("trimmed_mean", {"share": 0.0}, [11.0, -8.0]),
        ("krum", {"liars": 1}, [1.0, 1.0]),  # 1 nearest: the first two are 1 apart, the first is named first
        ("multi_krum", {"liars": 1}, [1.5, 1.0]),
        ("multi_krum", {"liars": 7}, [1.0, 1.0]),  # at least one is left
    ],
)
def test_everybody_has_the_robust_mean(name: str, keys: dict[str, Any], expected: list[float] | None) -> None:
    rows = [[1.0, 1.0], [2.0, 1.0], [30.0, -26.0]]
    _, after, updates = updates_after(name, judged(rows), **keys)
    assert after.reasons == {}
    assert after.trust.tolist() == [[1.0]] * 3
    for row, given in zip(updates, rows, strict=True):
        assert row == pytest.approx(given if expected is None else expected)


def test_refused_rows_are_no_part_of_a_robust_mean() -> None:
    rows = [[1.0, 1.0], [2.0, 1.0], [0.0, 0.0], [4.0, 5.0]]
    _, after, updates = updates_after("median", judged(rows, [1, 1, 0, 1]))
    assert updates[0] == pytest.approx([2.0, 1.0])
    assert after.trust.tolist() == [[1.0], [1.0], [0.0], [1.0]]


def test_clipping_by_hand() -> None:
    """Lengths 5, 10, 1: the median is 5; half of it with factor 0.5."""
    rows = [[3.0, 4.0], [6.0, 8.0], [0.0, 1.0]]
    assert updates_after("clip", judged(rows))[2] == [pytest.approx(r) for r in ([3.0, 4.0], [3.0, 4.0], [0.0, 1.0])]
    half = updates_after("clip", judged(rows), factor=0.5)[2]
    assert half == [pytest.approx(r) for r in ([1.5, 2.0], [1.5, 2.0], [0.0, 1.0])]
    assert updates_after("clip", judged([[0.0, 0.0]] * 3))[2] == [[0.0, 0.0]] * 3


def test_screening_remembers_what_it_accepted() -> None:
    """Ten lengths of 1 first; then 5 is let pass with factor 5, and 5.1 is not."""
    memory, after, _ = updates_after("screen", judged([[1.0]] * 9 + [[1000.0]]))
    assert after.reasons == {}  # nothing to compare with yet
    memory, after, updates = updates_after("screen", judged([[5.0], [-5.1], [0.0], [1e9]]), memory)
    assert after.reasons == {1: "too long an update", 3: "too long an update"}
    assert after.trust.tolist() == [[1.0], [0.0], [1.0], [0.0]]
    assert updates == [[5.0], [0.0], [0.0], [0.0]]
    assert sorted(memory.latest[~memory.latest.isnan()].tolist()) == [0.0, *[1.0] * 9, 5.0, 1000.0]
    for _ in range(60):
        memory, after, _ = updates_after("screen", judged([[2.0]] * 4), memory)
    assert after.reasons == {}
    assert memory.latest.tolist() == [2.0] * 200


def test_where_nothing_moved_nothing_is_too_long() -> None:
    """And where there are few: clients that train nothing at first would shut out all others for ever."""
    memory = None
    for _ in range(6):
        memory, after, _ = updates_after("screen", judged([[0.0]] * 10), memory)
        assert after.reasons == {}
    _, after, _ = updates_after("screen", judged([[1.0], [0.0]]), memory)
    assert after.reasons == {}


def test_what_screening_remembers_is_in_a_checkpoint() -> None:
    """Also the largest median: its latest lengths alone would not do."""
    one, two = (toy_experiment("fedavg", defence="screen", rounds=40, cohort=4) for _ in range(2))
    for _ in range(20):
        cohort = one.cohort(one.state.round + 1)
        one.state, _ = run_round(one.method, one.state, cohort, one.engine, None, one.defence)
    two.restore(one.to_checkpoint())
    assert float(one.state.memory.largest) > 0
    for name in ("latest", "largest"):
        assert torch.equal(getattr(two.state.memory, name).nan_to_num(), getattr(one.state.memory, name).nan_to_num())


def test_screening_does_not_shut_out_those_that_still_learn() -> None:
    """Most clients send less and less, down to a thousandth; one goes on as at the start, and is never refused."""
    memory = None
    for round in range(60):
        length = 0.001 ** (max(round - 6, 0) / 53)
        memory, after, _ = updates_after("screen", judged([[1.0], *[[length]] * 9]), memory)
        assert after.reasons == {}
    _, after, _ = updates_after("screen", judged([[5.1], [4.9]]), memory)
    assert after.reasons == {0: "too long an update"}


def test_a_few_lies_at_the_start_do_not_open_the_screen_for_ever() -> None:
    memory, _, _ = updates_after("screen", judged([[1000.0]] * 6 + [[1.0]] * 4))
    for _ in range(20):
        memory, _, _ = updates_after("screen", judged([[1.0]] * 4), memory)
    _, after, _ = updates_after("screen", judged([[1000.0], [1.0]]), memory)
    assert after.reasons == {0: "too long an update"}


@pytest.mark.parametrize("method", ["fedavg", "panacea"])
def test_screening_refuses_no_honest_client(method: str) -> None:
    """When half of the clients are done their updates are a thousandth of those of the others."""
    flat = {"data": "fl60", "method": method, "rounds": 150, "defence": "screen", "eval_every": 150}
    assert run_experiment(Experiment(build_config(flat)))["refused"] == 0


def test_a_refused_row_stays_refused_under_the_other_reason() -> None:
    before, sent, who = judged([[torch.nan], [1e30], [1.0], [-1.0]])
    after = screen(before.unchanged, before.uploads, sent, before.statistics, who)
    assert after.reasons == {0: "not finite", 1: "too large"}
    assert after.uploads.params[:, 0].tolist() == [100.0, 100.0, 101.0, 99.0]
    assert after.trust[:, 0].tolist() == [0, 0, 1, 1]
    assert refuse(after, torch.ones(4, 1, dtype=torch.bool), sent, "x", who) is after


@pytest.mark.parametrize(
    ("found", "reason"), [(torch.nan, "not finite"), (-torch.inf, "not finite"), (1e21, "too large"), (1e19, None)]
)
def test_statistics_are_screened_too(found: float, reason: str | None) -> None:
    before, _, who = judged([[1.0], [2.0]])
    given = torch.ones(2, 3)
    back = given.clone()
    back[1, 2] = found
    after = screen(before.unchanged, before.uploads, given, back, who)
    assert after.reasons == ({} if reason is None else {1: reason})
    assert torch.equal(after.statistics, back if reason is None else given)


def test_a_mean_has_to_be_there_to_be_replaced() -> None:
    with pytest.raises(
        RequestError, match="defence=krum replaces the mean of uploads, and panacea takes none; use none, screen"
    ):
        make_defence("krum", {}, make_method("panacea", {}))
    with pytest.raises(RequestError, match="unknown defence 'medain'; did you mean 'median'"):
        toy_experiment("fedavg", defence="medain")
    with pytest.raises(RequestError, match=r"defence\.factor"):
        toy_experiment("fedavg", defence="screen", **{"defence.factor": 1})


# --- whole runs: 12 clients with digits, all in every round ---------------------------------------------------------


@lru_cache
def digits(attack: str = "none", defence: str = "none", **keys: Any) -> dict[str, float]:
    """Accuracy and loss on honest clients' test samples at the end."""
    flat = {
        "data": "digits", "method": "fedavg", "model": "mlp", "model.hidden": [16], "lr": 0.1, "rounds": 20,
        "cohort": 12, "local_steps": 5, "eval_every": 20, "attack": attack, "defence": defence,
        **{key.replace("_", ".", 1): value for key, value in keys.items()},
    }  # fmt: skip
    experiment = Experiment(build_config(flat), _split())
    summary = run_experiment(experiment)
    assert experiment.history.last is not None
    loss = float(experiment.history.last.test.loss[experiment.history.honest].mean())
    return {"accuracy": summary["final_mean"], "loss": loss}


@lru_cache
def _split() -> Any:
    return load_keys("digits", resolve_keys("digits", {"clients": 12, "split": "iid"}, 0), 0.0)


@pytest.mark.parametrize(
    ("attack", "keys"),
    [
        ("label_flip", {}),
        ("label_flip", {"attack_flip": "other"}),
        ("label_flip", {"attack_flip": "invert"}),
        ("model_poisoning", {}),
        ("sign_flip", {}),
        ("gaussian", {"attack_scale": 20}),
        ("absent", {}),
        ("alie", {"attack_ratio": 0.42}),
        ("minmax", {}),
    ],
)
def test_an_attack_hurts_who_does_not_defend(attack: str, keys: dict[str, Any]) -> None:
    hurt, clean = digits(attack, **{"attack_ratio": 0.25, **keys}), digits()
    assert clean["accuracy"] > 70
    assert hurt["loss"] > 1.05 * clean["loss"]


@pytest.mark.parametrize(
    ("defence", "keys"),
    [
        ("screen", {"attack_factor": 10}),
        ("clip", {"attack_factor": 10, "attack_ratio": 0.17}),  # a bounded lie is still a lie: two of twelve
        ("median", {"attack_factor": 4}),
        ("trimmed_mean", {"attack_factor": 4, "defence_share": 0.25}),
        ("krum", {"attack_factor": 4, "defence_liars": 3}),
        ("multi_krum", {"attack_factor": 4, "defence_liars": 3}),
        ("geometric_median", {"attack_factor": 4}),
    ],
)
def test_a_defence_saves_at_least_half(defence: str, keys: dict[str, Any]) -> None:
    attack = {"attack_ratio": 0.25, **{key: value for key, value in keys.items() if key.startswith("attack")}}
    clean, hurt = digits()["accuracy"], digits("model_poisoning", **attack)["accuracy"]
    saved = digits("model_poisoning", defence, **{**attack, **keys})["accuracy"]
    assert hurt < clean - 25
    assert saved > hurt + (clean - hurt) / 2


@pytest.mark.parametrize("defence", ["screen", "clip", "median", "trimmed_mean", "multi_krum", "geometric_median"])
def test_a_defence_costs_little_without_an_attack(defence: str) -> None:
    assert digits("none", defence)["accuracy"] > digits()["accuracy"] - 12
