from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from panacea.evaluation.evaluate import evaluate_clients
from panacea.experiment.config import build_config
from panacea.experiment.experiment import Experiment
from panacea.experiment.results import client_columns, client_table
from panacea.experiment.rundir import RunDirectory
from panacea.experiment.runner import Callback, run_experiment
from panacea.robustness import make_attack, triggered_tests
from tests.robustness.images import experiment_of, labelled, samples_of

LABELS = [[0, 1, 2, 0], [1, 1, 1], [2, 2, 1], [0, 2], [0, 0, 0]]  # the last one is novel


class Detector(nn.Module):
    """Answers 1 where the lower right pixel is bright, else 0; its weights are not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        bright = (x[:, 0, -1, -1] > 0.9).to(x.dtype)
        return torch.stack([1 - bright, bright, 0 * bright], dim=1) + self.unused


class Always(nn.Module):
    """Always the same answer."""

    def __init__(self, answer: int) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.eye(3)[answer])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scores.expand(len(x), -1) + 0 * x.flatten(1).sum(dim=1, keepdim=True)


def judged(module: nn.Module, **keys: Any) -> Experiment:
    flat = {"data": "squares", "method": "fedavg", "attack": "backdoor_patch", "lr": 0.0, "rounds": 1, "cohort": 2}
    return Experiment(build_config(flat | keys), labelled(LABELS, novel=1), module)


def column(experiment: Experiment, name: str) -> list[float]:
    place = client_columns(experiment).index(name)
    return [row[place] for row in client_table(experiment)]


def test_triggered_tests_are_those_of_another_label_and_carry_the_mark() -> None:
    fed = labelled(LABELS)
    samples = samples_of(fed)
    triggered = triggered_tests(make_attack("backdoor_patch", {"size": 2}), samples)
    assert triggered is not None
    assert triggered.counts("test", np.arange(5)).tolist() == [3, 0, 2, 2, 3]
    assert triggered.counts("train", np.arange(5)).tolist() == [0] * 5
    x, y = triggered.gather(torch.arange(10))
    assert y.tolist() == [1] * 10
    assert bool((x[:, :, -2:, -2:] == 1).all())
    clean = torch.cat([fed.client(i, "test")[0][fed.client(i, "test")[1] != 1] for i in range(5)])
    assert torch.equal(x[:, :, :2], clean[:, :, :2])
    assert triggered_tests(make_attack("label_flip", {}), samples) is None


@pytest.mark.parametrize("engine", ["vectorised", "sequential"])
def test_a_model_that_always_answers_the_target(engine: str) -> None:
    experiment = judged(Always(1), engine=engine, **{"attack.clients": [2]})
    summary = run_experiment(experiment)
    assert summary["asr_mean"] == summary["final_asr_mean"] == summary["asr_novel_mean"] == 100.0
    expected = [100.0, np.nan, 100.0, 100.0, 100.0]  # the second client has no other label than the target
    assert np.array_equal(column(experiment, "asr"), expected, equal_nan=True)


@pytest.mark.parametrize("engine", ["vectorised", "sequential"])
def test_a_model_that_never_answers_the_target_and_one_that_sees_the_mark(engine: str) -> None:
    assert run_experiment(judged(Always(2), engine=engine))["asr_mean"] == 0.0
    summary = run_experiment(judged(Detector(), engine=engine))
    assert summary["asr_mean"] == 100.0
    assert summary["mean"] < 60  # unmarked images are never taken for the target
    faint = judged(Detector(), engine=engine, attack="backdoor_blended")  # no pixel gets brighter than 0.68
    assert run_experiment(faint)["asr_mean"] == 0.0


def test_means_are_over_honest_clients_and_novel_ones_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = judged(Always(1), **{"attack.clients": [0]})
    rates = np.array([60.0, np.nan, 20.0, 40.0, 90.0])
    real = experiment.engine.evaluate

    def fake(params: torch.Tensor, statistics: torch.Tensor, ids: Any, split: str, samples: Any = None) -> Any:
        scores = real(params, statistics, ids, split, samples)
        if samples is not None:
            assert samples is experiment.triggered
            scores.metric[:] = rates[ids]
        return scores

    monkeypatch.setattr(experiment.engine, "evaluate", fake)
    lines: list[dict[str, Any]] = []
    listener = Callback()
    monkeypatch.setattr(listener, "on_evaluation", lambda _, line: lines.append(line))
    summary = run_experiment(experiment, callbacks=[listener])
    assert [(line["asr_mean"], line["asr_novel_mean"]) for line in lines] == [(30.0, 90.0)]
    assert summary["asr_mean"] == summary["final_asr_mean"] == 30.0  # without client 0, who attacks
    assert summary["asr_novel_mean"] == summary["final_asr_novel_mean"] == 90.0
    assert np.array_equal(column(experiment, "final_asr"), rates, equal_nan=True)


@pytest.mark.parametrize("keys", [{"attack.ratio": 0}, {"attack.clients": []}])
def test_without_attackers_success_is_measured_and_training_is_that_without_an_attack(keys: dict[str, Any]) -> None:
    fed = labelled([[0, 1, 2, 0, 2, 1]] * 4)
    nobody = experiment_of(fed, attack="backdoor_patch", **keys)
    summary = run_experiment(nobody)
    clean = run_experiment(other := experiment_of(fed))
    assert summary["asr_mean"] is not None
    assert "attackers" not in summary
    assert summary["mean"] == clean["mean"]
    assert not {key for key in clean if "asr" in key}
    assert "asr" not in client_columns(other)
    assert torch.equal(nobody.state.server.params, other.state.server.params)


def test_no_test_image_of_another_label_anywhere() -> None:
    summary = run_experiment(experiment_of(labelled([[1, 1, 1]] * 3), attack="backdoor_patch", method="separate"))
    assert summary["asr_mean"] is None


def test_engines_agree() -> None:
    fed = labelled([[0, 1, 2, 0, 2, 1, 0], [0, 1, 2], [2, 2, 0, 0, 1]], val=0.2)
    found = []
    for engine in ("vectorised", "sequential"):
        experiment = experiment_of(fed, "fedavg_ft", attack="backdoor_blended", engine=engine)
        run_experiment(experiment)
        found.append(
            (
                evaluate_clients(experiment.method, experiment.state, experiment.engine, fed, experiment.triggered).asr,
                experiment.state.server.params,
            )
        )
    assert np.array_equal(found[0][0], found[1][0])
    assert torch.allclose(found[0][1], found[1][1], atol=1e-12)


def test_files_and_a_resume(tmp_path: Path) -> None:
    keys = {
        "data": "digits", "data.clients": 6, "method": "fedavg", "model": "mlp", "attack": "backdoor_patch",
        "defence": "simple_tuning", "rounds": 4, "local_steps": 4, "eval_every": 2, "checkpoint_every": 2,
        "novel": 0.2, "out": str(tmp_path),
    }  # fmt: skip
    experiment = Experiment(build_config(keys))
    directory = RunDirectory.of(experiment.config, "fedavg")
    summary = run_experiment(experiment, directory)
    lines = [json.loads(line) for line in directory.metrics.read_text().splitlines()]
    assert [line["round"] for line in lines] == [2, 4]
    assert lines[-1]["asr_mean"] == summary["final_asr_mean"]
    assert lines[-1]["asr_novel_mean"] == summary["final_asr_novel_mean"]
    text = directory.clients.read_text()
    rows = list(csv.DictReader(text.splitlines()))
    honest = [float(r["final_asr"]) for r in rows if r["novel"] == "0" and r["malicious"] == "0" and r["final_asr"]]
    assert summary["final_asr_mean"] == pytest.approx(np.nanmean(honest))
    tuned = [float(r["final_tuned"]) for r in rows if r["novel"] == "0" and r["malicious"] == "0"]
    assert summary["final_tuned_mean"] == pytest.approx(np.nanmean(tuned))
    again = Experiment(directory.read_config())
    assert run_experiment(again, directory)["final_tuned_asr_mean"] == summary["final_tuned_asr_mean"]
    assert directory.clients.read_text() == text  # attackers' rows too: their data are poisoned again
