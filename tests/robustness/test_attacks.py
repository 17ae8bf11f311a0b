"""Attacks against numbers worked out by hand; who attacks, when, and what stays untouched."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from panacea.core.random import Streams
from panacea.core.records import record, unsent
from panacea.data.federation import Federation
from panacea.data.storage import window_views
from panacea.data.task import Task
from panacea.engines.base import Samples
from panacea.errors import RequestError
from panacea.experiment.config import build_config
from panacea.experiment.experiment import Experiment
from panacea.robustness import ATTACKS, choose_attackers, make_attack
from panacea.robustness.updates import applied, updates_of
from tests.robustness.playing import fight
from tests.toy import play, toy_experiment, toy_federation, trajectory

UPDATES = torch.tensor([[1.0, 0.0, 2.0], [3.0, 0.0, -2.0], [2.0, 3.0, 0.0], [9.0, 9.0, 9.0]], dtype=torch.float64)
ATTACKERS = torch.tensor([False, False, False, True])


def attacked(name: str, updates: Tensor = UPDATES, who: Tensor = ATTACKERS, **keys: Any) -> Tensor:
    made = make_attack(name, keys).updates(updates, who, Streams(0), 1)
    assert made is not None
    return made


# --- updates, by hand -----------------------------------------------------------------------------------------------


def test_poisoning_and_flipping_by_hand() -> None:
    assert attacked("model_poisoning")[3].tolist() == [-4.5, -4.5, -4.5]
    assert attacked("model_poisoning", factor=2)[0].tolist() == [-2.0, 0.0, -4.0]
    assert attacked("sign_flip")[1].tolist() == [-3.0, 0.0, 2.0]
    assert attacked("absent").tolist() == [[0.0] * 3] * 4


def test_noise_has_the_size_of_the_update() -> None:
    wide = torch.full((2, 40_000), 3.0, dtype=torch.float64)
    noise = attacked("gaussian", wide, torch.tensor([False, True]), scale=0.5)
    assert noise.std(dim=1).tolist() == pytest.approx([1.5, 1.5], rel=0.02)
    assert noise.mean(dim=1).abs().max() < 0.03
    again = make_attack("gaussian", {"scale": 0.5})
    assert torch.equal(noise, again.updates(wide, ATTACKERS[:2], Streams(0), 1))  # type: ignore[arg-type]
    for streams, round in ((Streams(1), 1), (Streams(0), 2)):
        assert not torch.equal(noise, again.updates(wide, ATTACKERS[:2], streams, round))  # type: ignore[arg-type]


def test_a_little_is_enough_by_hand() -> None:
    """4 clients, 1 attacks: 2 of 3 honest ones must side with it, share 1/3, z = 0 at least: the mean itself.

    10 clients, 4 attack: 10 // 2 + 1 - 4 = 2 of 6 must, share 4/6, z = 0.4307.
    """
    assert attacked("alie")[3].tolist() == pytest.approx([2.0, 1.0, 0.0])
    honest = torch.tensor([[0.0, 6.0], [2.0, 6.0]] * 3, dtype=torch.float64)  # mean (1, 6), deviation (1, 0)
    rows = torch.cat([honest, torch.zeros(4, 2, dtype=torch.float64)])
    who = torch.arange(10) >= 6
    z = NormalDist().inv_cdf(4 / 6)
    assert z == pytest.approx(0.4307, abs=1e-4)
    assert attacked("alie", rows, who)[9].tolist() == pytest.approx([1 - z, 6.0])


def test_minmax_is_as_far_as_it_may_be() -> None:
    """The largest distance to an honest update is that of the two farthest honest ones, no less and no more."""
    generator = torch.Generator().manual_seed(3)
    for rows in (UPDATES, torch.randn(12, 3, generator=generator, dtype=torch.float64)):
        who = torch.arange(len(rows)) >= len(rows) - len(rows) // 4
        honest = rows[~who]
        lie = attacked("minmax", rows, who)[-1]
        widest = torch.pdist(honest).max()
        assert float((honest - lie).norm(dim=1).max()) == pytest.approx(float(widest), rel=1e-12)
        direction = lie - honest.mean(dim=0)
        against = -honest.std(dim=0, unbiased=False)
        assert torch.nn.functional.cosine_similarity(direction, against, dim=0) == pytest.approx(1.0)
    # honest 0 and 2 on a line: mean 1, deviation 1, widest 2: the lie is at 0
    line = torch.tensor([[0.0], [2.0], [5.0]], dtype=torch.float64)
    assert float(attacked("minmax", line, torch.tensor([False, False, True]))[2]) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("name", ["alie", "minmax"])
def test_colluders_alone_behave(name: str) -> None:
    assert make_attack(name, {}).updates(UPDATES, torch.ones(4, dtype=torch.bool), Streams(0), 1) is None


@record
class Message:
    a: Tensor
    made: Tensor = unsent()
    b: Tensor | None = None


def test_updates_are_of_what_travels() -> None:
    """Every tensor that is sent, in its place; what is not sent is neither counted (noise would thin out) nor moved."""
    old = Message(torch.ones(2, 2), torch.full((2, 4), 7.0), torch.full((2, 1, 3), 5.0))
    new = Message(2 * old.a, old.made, old.b + torch.arange(3.0))
    updates = updates_of(old, new)
    assert updates.tolist() == [[1.0, 1.0, 0.0, 1.0, 2.0]] * 2
    back = applied(old, 2 * updates)
    assert back.a.tolist() == [[3.0, 3.0]] * 2
    assert back.b.tolist() == [[[5.0, 7.0, 9.0]]] * 2
    assert back.made is old.made


# --- labels and targets -----------------------------------------------------------------------------------------------


def test_the_law_of_flipped_labels() -> None:
    y = np.repeat(np.arange(5), 8000)
    for flip in ("uniform", "other"):
        attack = make_attack("label_flip", {"flip": flip})
        new = attack.labels(y, 5, Streams(0).numpy("x"))
        assert new is not None
        table = np.array([[np.mean(new[y == old] == label) for label in range(5)] for old in range(5)])
        if flip == "uniform":
            np.testing.assert_allclose(table, 0.2, atol=0.02)
        else:
            assert not np.any(new == y)
            np.testing.assert_allclose(table, (1 - np.eye(5)) / 4, atol=0.02)
    mirrored = make_attack("label_flip", {"flip": "invert"}).labels(y, 5, Streams(0).numpy("x"))
    assert mirrored is not None
    assert (mirrored + y == 4).all()


def poisoned(**keys: Any) -> Experiment:
    experiment = toy_experiment(
        "fedavg", **{"attack": "label_flip", "attack.flip": "invert", "attack.ratio": 0.5, **keys}
    )
    fight(experiment, 1)
    return experiment


def test_only_train_labels_of_attackers_change() -> None:
    experiment = poisoned()
    samples, clean = experiment.engine.samples, toy_federation()
    assert experiment.malicious.sum() == 3
    for client, (first, end, _, last) in enumerate(clean.bounds):
        train = samples.y[first:end]
        expected = 1 - clean.y[first:end] if experiment.malicious[client] else clean.y[first:end]
        assert torch.equal(train, expected)
        assert torch.equal(samples.y[end:last], clean.y[end:last])  # validation and test
    assert torch.equal(experiment.federation.y, clean.y)
    again = samples.y.clone()
    fight(experiment, 2)
    assert torch.equal(samples.y, again)  # once only


def test_labels_follow_the_seed() -> None:
    flipped = [poisoned(**{"attack.flip": "uniform", "attack.clients": [3, 5], "seed": seed}) for seed in (0, 0, 1)]
    ys = [experiment.engine.samples.y for experiment in flipped]
    assert torch.equal(ys[0], ys[1])
    assert not torch.equal(ys[0], ys[2])


def series(horizon: int, missing: bool = False) -> Federation:
    """Two clients of 20 steps with windows of 3 + horizon, as views of one series."""
    values = torch.arange(40.0)
    if missing:
        values[[2, 7, 25]] = torch.nan
    x, y = window_views(values.nan_to_num()[:, None].contiguous(), values, 3, horizon)
    windows = 20 - 3 - horizon + 1
    bounds = np.array([[0, 8, 11, windows], [20, 28, 31, 20 + windows]], np.int64)
    return Federation("series", Task("forecasting", (3, 1), (horizon,), missing=missing), x, y, bounds, ("a", "b"))


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("horizon", [1, 4])
@pytest.mark.parametrize("mode", ["shift", "invert"])
def test_targets_of_windows(mode: str, horizon: int, missing: bool) -> None:
    federation = series(horizon, missing)
    before = federation.y.clone()
    samples = Samples(federation, Streams(0), torch.device("cpu"), torch.float32)
    attack = make_attack("target_shift", {"clients": [1], "mode": mode, "amount": 2.0})
    attackers = choose_attackers(attack, federation, Streams(0))
    assert attackers is not None
    attackers.poison(samples, 1)
    assert torch.equal(federation.y.nan_to_num(-1), before.nan_to_num(-1))
    assert samples.y.untyped_storage().nbytes() < 5 * 40 * 4  # still views
    old, new = before[20:28], samples.y[20:28]
    known = old[~old.isnan()]
    expected = old + 2 * known.std(unbiased=False) if mode == "shift" else known.min() + known.max() - old
    own = torch.arange(8)[:, None] + torch.arange(horizon) < 8  # steps before the first validation target
    torch.testing.assert_close(new[own], expected[own], equal_nan=True)
    assert not torch.equal(new[own].nan_to_num(-1), old[own].nan_to_num(-1))
    rest = torch.ones(len(before), dtype=torch.bool)
    rest[20:28] = False
    rest[17 - horizon + 1 : 20] = False  # windows from one client's series into the next belong to nobody
    assert torch.equal(samples.y[rest].nan_to_num(-1), before[rest].nan_to_num(-1))
    again = samples.y.clone()
    attackers.poison(samples, 2)
    assert torch.equal(samples.y.nan_to_num(-1), again.nan_to_num(-1))


def test_targets_without_any_value_stay() -> None:
    nothing = torch.full((4, 2), torch.nan)
    for mode in ("shift", "invert"):
        made = make_attack("target_shift", {"mode": mode}).targets(nothing)
        assert made is not None
        assert made.isnan().all()


def test_targets_that_are_columns_of_something() -> None:
    """Neither contiguous nor overlapping."""
    y = torch.arange(40.0).reshape(20, 2)[:, :1]
    bounds = np.array([[0, 6, 8, 10], [10, 16, 18, 20]], np.int64)
    federation = Federation("columns", Task("regression", (1,), (1,)), y.clone(), y, bounds, ("a", "b"))
    samples = Samples(federation, Streams(0), torch.device("cpu"), torch.float32)
    samples.replace_targets(10, torch.full((6, 1), -1.0))
    assert samples.y[:, 0].tolist() == [*range(0, 20, 2), *[-1] * 6, 32, 34, 36, 38]
    assert y[10:16, 0].tolist() == [20, 22, 24, 26, 28, 30]


# --- who and when -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", sorted({*ATTACKS} - {"none", "target_shift"} - {n for n in ATTACKS if "backdoor" in n})
)
def test_before_its_start_an_attack_is_not_there(name: str) -> None:
    clean, later, now = (
        toy_experiment("scaffold", local_steps=2, cohort=5, **keys)
        for keys in (
            {},
            {"attack": name, "attack.ratio": 0.4, "attack.start": 3},
            {"attack": name, "attack.ratio": 0.4},
        )
    )
    play(clean, 2)
    fight(later, 2)
    fight(now, 2)
    a, b, c = (trajectory(experiment) for experiment in (clean, later, now))
    assert all(torch.equal(a[key], b[key]) for key in a)
    assert any(not torch.equal(a[key], c[key]) for key in a)
    play(clean, 1)
    fight(later, 1)
    a, b = trajectory(clean), trajectory(later)
    assert any(not torch.equal(a[key], b[key]) for key in a)


def test_attackers_by_number_name_and_share() -> None:
    def who(**keys: Any) -> list[int]:
        return np.flatnonzero(toy_experiment("fedavg", attack="sign_flip", **keys).malicious).tolist()

    assert who(**{"attack.clients": [4, "2"]}) == [2, 4]
    assert who(**{"attack.clients": []}) == []
    assert len(who(**{"attack.ratio": 0.5})) == 3  # of six that train
    assert who(**{"attack.ratio": 0}) == []
    assert who(**{"attack.ratio": 1}) == [0, 1, 2, 3, 4, 5]  # not the novel one
    assert who(**{"attack.ratio": 0.5, "seed": 1}) != who(**{"attack.ratio": 0.5, "seed": 2})


def test_a_name_of_digits_is_a_name() -> None:
    bounds = np.array([[0, 2, 3, 4], [4, 6, 7, 8]], np.int64)
    federation = Federation(
        "f", Task("classification", (1,), (), 2), torch.zeros(8, 1), torch.zeros(8).long(), bounds, ("773869", "1")
    )
    for given in (773869, "773869"):
        attackers = choose_attackers(make_attack("sign_flip", {"clients": [given]}), federation, Streams(0))
        assert attackers is not None
        assert attackers.who.tolist() == [True, False]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"attack": "label_flop"}, "unknown attack 'label_flop'; did you mean 'label_flip'"),
        ({"attack": "target_shift"}, "attack=target_shift is for regression and forecasting; toy is a classification"),
        ({"attack": "sign_flip", "attack.clients": [9]}, "attack.clients: no client '9'; there are 7, numbered from 0"),
        ({"attack": "sign_flip", "attack.clients": ["x"]}, "attack.clients: no client 'x'"),
        ({"attack": "sign_flip", "attack.clients": [6]}, "attack.clients: client '6' is novel"),
        ({"attack": "sign_flip", "attack.ratio": 1.5}, "attack.ratio"),
        ({"attack": "sign_flip", "attack.start": 0}, "attack.start"),
        ({"attack": "sign_flip", "attack.flip": "other"}, "unknown key 'attack.flip'"),
        ({"attack": "malformed", "attack.kind": "odd"}, "attack.kind"),
    ],
)
def test_a_wrong_request_is_one_line(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        toy_experiment("fedavg", **keys)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_labels_cannot_be_flipped_where_there_are_none() -> None:
    with pytest.raises(RequestError, match="attack=label_flip is for classification; series is a forecasting task"):
        Experiment(build_config({"data": "series", "method": "fedavg", "attack": "label_flip"}), series(1))
