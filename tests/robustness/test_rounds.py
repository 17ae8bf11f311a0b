"""Attacks and defences in whole runs: both engines, stop and go on, what is measured on whom."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from panacea.core.round import State
from panacea.evaluation.metrics import fairness
from panacea.experiment.experiment import Experiment
from panacea.experiment.rundir import RunDirectory
from panacea.experiment.runner import Callback, run_experiment
from panacea.robustness import ATTACKS, DEFENCES
from panacea.robustness.measures import detection
from tests.robustness.playing import fight
from tests.toy import largest_difference, toy_experiment, toy_federation, trajectory

ATTACKING = [name for name in ATTACKS if name not in ("none", "target_shift") and "backdoor" not in name]
DEFENDING = [name for name in DEFENCES if name not in ("simple_tuning", "neighbourhood")]


@pytest.mark.parametrize("defence", DEFENDING)
@pytest.mark.parametrize("attack", ATTACKING)
def test_both_engines_agree(attack: str, defence: str) -> None:
    results = []
    for engine in ("sequential", "vectorised"):
        keys = {"attack": attack, "attack.ratio": 0.34, "attack.start": 2, "defence": defence, "engine": engine}
        experiment = toy_experiment("fedavg", cohort=5, local_steps=2, **keys)
        reports = fight(experiment, 3)
        results.append((trajectory(experiment), [report.refused for report in reports]))
    assert results[0][1] == results[1][1]
    known = [{name: value.nan_to_num(-1) for name, value in tensors.items()} for tensors, _ in results]
    assert largest_difference(*known) < 1e-9


@pytest.mark.parametrize("method", ["scaffold", "ditto", "fedper", "fedamp", "panacea", "fedcg"])
def test_both_engines_agree_for_other_methods(method: str) -> None:
    results = []
    for engine in ("sequential", "vectorised"):
        keys = {"attack": "alie", "attack.ratio": 0.34, "defence": "clip", "engine": engine, "model.norm": "batch"}
        experiment = toy_experiment(method, cohort=5, local_steps=2, **keys)
        fight(experiment, 3)
        results.append(trajectory(experiment))
    assert largest_difference(*results) < 1e-9


class StopError(Exception):
    pass


class StopAt(Callback):
    """The power goes off after a round, whatever was saved by then."""

    def __init__(self, round: int) -> None:
        self.round = round

    def on_round(self, experiment: Experiment, report: Any) -> None:
        if experiment.state.round == self.round:
            raise StopError


@pytest.mark.parametrize(
    ("attack", "defence"), [("gaussian", "screen"), ("label_flip", "screen"), ("malformed", "median"), ("alie", "clip")]
)
def test_a_stopped_run_goes_on_to_the_same_bits(attack: str, defence: str, tmp_path: Path) -> None:
    def make(out: str) -> tuple[Experiment, RunDirectory]:
        keys: dict[str, Any] = {
            "attack": attack, "attack.ratio": 0.34, "attack.start": 3, "defence": defence, "rounds": 12,
            "checkpoint_every": 4, "eval_every": 3, "cohort": 4, "local_steps": 2, "out": str(tmp_path / out),
        }  # fmt: skip
        if attack == "gaussian":
            keys |= {"attack.scale": 50, "defence.factor": 2}
        experiment = toy_experiment("scaffold", **keys)
        return experiment, RunDirectory.of(experiment.config, experiment.method.name)

    straight, one = make("straight")
    run_experiment(straight, one)
    for stop in (6, 9):  # in the middle of the attack, some rounds behind the last checkpoint
        with pytest.raises(StopError):
            run_experiment(*make("stopped"), [StopAt(stop)])
    resumed, two = make("stopped")
    run_experiment(resumed, two)
    a, b = straight.to_checkpoint().tensors, resumed.to_checkpoint().tensors
    assert a.keys() == b.keys()
    assert all(a[key].numpy().tobytes() == b[key].numpy().tobytes() for key in a)
    for file in ("metrics.jsonl", "clients.csv", "refused.jsonl"):
        texts = [(folder.path / file).read_text() if (folder.path / file).exists() else None for folder in (one, two)]
        assert texts[0] == texts[1]
    if attack in ("gaussian", "malformed"):
        assert int(straight.refused.sum()) > 0


def test_honest_clients_are_measured_on_clean_samples(tmp_path: Path) -> None:
    keys = {
        "attack": "label_flip",
        "attack.flip": "invert",
        "attack.clients": [1, 3],
        "cohort": 6,
        "out": str(tmp_path),
    }
    experiment = toy_experiment("fedavg", eval_every=4, **keys)
    directory = RunDirectory.of(experiment.config, experiment.method.name)
    summary = run_experiment(experiment, directory)
    clean, honest = toy_federation(), np.array([0, 2, 4, 5])
    module = experiment.target.to_module(experiment.state.server.params, experiment.target.statistics).double().eval()
    found: dict[str, list[float]] = {"val": [], "test": []}
    for client in honest:
        for split, (first, end) in (("val", clean.bounds[client, 1:3]), ("test", clean.bounds[client, 2:4])):
            if end > first:
                said = module(clean.x[first:end].double()).argmax(dim=1)
                found[split].append(100 * float((said == clean.y[first:end]).double().mean()))
    line = json.loads(directory.metrics.read_text().splitlines()[-1])
    assert line["val_mean"] == pytest.approx(np.mean(found["val"]))
    assert line["mean"] == summary["final_mean"] == pytest.approx(np.mean(found["test"]))
    chosen = experiment.history.selected
    assert chosen is not None
    metric = chosen.test.metric
    assert summary["attackers_mean"] == pytest.approx(np.nanmean(metric[[1, 3]]))
    assert summary["all_mean"] == pytest.approx(np.nanmean(metric))
    rows = [row.split(",") for row in directory.clients.read_text().splitlines()]
    assert [row[rows[0].index("malicious")] for row in rows[1:]] == ["0", "1", "0", "1", "0", "0", "0"]
    assert (summary["detection_precision"], summary["detection_recall"]) == (None, 0.0)  # nothing was refused
    assert summary["attackers"] == 2
    text = directory.summary.read_text()
    assert "NaN" not in text
    for key, value in fairness(metric[honest]).items():
        assert summary[key] == pytest.approx(value)


def test_when_everybody_attacks_there_is_nobody_to_measure() -> None:
    summary = run_experiment(toy_experiment("fedavg", eval_every=2, attack="absent", **{"attack.ratio": 1.0}))
    assert summary["mean"] is None
    assert summary["gini"] is None
    assert summary["attackers_mean"] == summary["all_mean"]


def test_fairness_by_hand() -> None:
    equal = fairness(np.array([5.0, 5.0, np.nan, 5.0]))
    assert (equal["gini"], equal["jain"], equal["gap"]) == pytest.approx((0.0, 1.0, 0.0))
    one = fairness(np.array([0.0, 0.0, 0.0, 8.0]))
    assert (one["gini"], one["jain"], one["gap"]) == pytest.approx((0.75, 0.25, 8.0))
    values = np.array([1.0, 4.0, 7.0, 2.0])
    apart = np.abs(values[:, None] - values).mean() / (2 * values.mean())  # Gini's definition
    assert fairness(values)["gini"] == pytest.approx(apart)
    assert all(math.isnan(value) for value in fairness(np.array([np.nan])).values())


def test_detection_by_hand() -> None:
    found = detection(doubted=3, sent=8, caught=2)
    assert found == {"detection_precision": pytest.approx(2 / 3), "detection_recall": 0.25}
    assert all(math.isnan(value) for value in detection(0, 0, 0).values())


def test_an_attacker_that_has_not_begun_sends_no_lies() -> None:
    experiment = toy_experiment("fedavg", attack="model_poisoning", rounds=3, cohort=6, **{"attack.start": 3})
    run_experiment(experiment)
    assert experiment.lies.tolist() == experiment.malicious.astype(int).tolist()  # the third round's only
    assert experiment.malicious.any()


def test_the_loss_is_of_those_whose_uploads_are_used() -> None:
    """A client whose training went to NaN does not end the run: its upload is refused, and so is its loss."""
    experiment = toy_experiment("fedavg", cohort=6)
    train = experiment.engine.train

    def one_diverges(*args: Any, **keys: Any) -> Any:
        import dataclasses

        trained = train(*args, **keys)
        params, loss = trained.uploads.params.clone(), trained.loss.clone()
        params[2], loss[2] = torch.nan, torch.nan
        return dataclasses.replace(trained, uploads=dataclasses.replace(trained.uploads, params=params), loss=loss)

    experiment.engine.train = one_diverges  # type: ignore[method-assign]
    (report,) = fight(experiment, 1)
    assert report.refused == {2: "not finite"}
    assert math.isfinite(report.loss)


def test_a_defence_that_trusts_nobody_leaves_the_server() -> None:
    class Nobody:
        def judge(self, memory: Any, judged: Any, sent: Any, cohort: Any, server: Any) -> Any:
            import dataclasses

            return memory, dataclasses.replace(judged, trust=0 * judged.trust)

    experiment = toy_experiment("fedavg")
    before = experiment.state.server.params.clone()
    experiment.defence = Nobody()  # type: ignore[assignment]
    fight(experiment, 1)
    assert isinstance(experiment.state, State)
    assert torch.equal(before, experiment.state.server.params)
