"""What a run keeps for its page: embeddings over rounds, the same after a stop; places; how alike models are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from panacea.experiment.config import build_config
from panacea.experiment.experiment import Experiment
from panacea.experiment.interrupt import Interrupted
from panacea.experiment.rundir import RunDirectory
from panacea.experiment.runner import Callback, run_experiment
from panacea.experiment.views import _chosen, model_similarity, project
from panacea.graphs.client_graph import npz_arrays

SMALL = {"data": "fl60", "data.clients": 12, "local_steps": 3, "eval_every": 2, "checkpoint_every": 4, "rounds": 10}


class _StopAfter(Callback):
    """As Ctrl-C does, after a round."""

    def __init__(self, round: int) -> None:
        self.round = round

    def on_round(self, experiment: Experiment, report: Any) -> None:
        self.stopping = experiment.state.round == self.round


def _views(out: Path, stops: tuple[int, ...] = (), **keys: Any) -> dict[str, Any]:
    for stop in (*stops, None):
        experiment = Experiment(build_config({**SMALL, **keys, "out": str(out)}))
        directory = RunDirectory.of(experiment.config, experiment.method.name)
        if stop is None:
            run_experiment(experiment, directory)
        else:
            with pytest.raises(Interrupted):
                run_experiment(experiment, directory, [_StopAfter(stop)])
    return npz_arrays(directory.views)


@pytest.mark.parametrize("method", ["panacea", "pfedhn"])
def test_embeddings_are_kept_at_evaluated_rounds(method: str, tmp_path: Path) -> None:
    views = _views(tmp_path, method=method)
    assert views["embedding_rounds"].tolist() == [2, 4, 6, 8, 10]
    assert views["embeddings"].shape == (5, len(views["embedding_clients"]), 2)
    assert not np.array_equal(views["embeddings"][0], views["embeddings"][-1])
    similar = views["similarity"].astype(float)
    np.testing.assert_allclose(np.diag(similar), 1, atol=2e-3)
    np.testing.assert_allclose(similar, similar.T, atol=2e-3)


def test_a_stopped_run_keeps_the_same(tmp_path: Path) -> None:
    straight = _views(tmp_path / "straight", method="panacea")
    stopped = _views(tmp_path / "stopped", stops=(3, 7), method="panacea")
    assert straight.keys() == stopped.keys()
    for name, values in straight.items():
        np.testing.assert_array_equal(values, stopped[name], err_msg=name)


def test_a_checkpoint_of_an_earlier_version_still_opens(tmp_path: Path) -> None:
    experiment = Experiment(build_config({**SMALL, "method": "panacea", "out": str(tmp_path)}))
    checkpoint = experiment.to_checkpoint()
    assert not [name for name in checkpoint.tensors if name.startswith("snapshots")]
    experiment.restore(checkpoint)
    assert experiment.snapshots.rounds == []


def test_methods_without_embeddings_have_none(tmp_path: Path) -> None:
    views = _views(tmp_path, method="fedavg")
    assert "embeddings" not in views
    assert "similarity" not in views  # all have one model
    assert views["positions"].shape == (12, 2)
    assert len(views["property"]) == 12


def test_one_model_for_all_is_no_likeness() -> None:
    experiment = Experiment(build_config({"data": "digits", "method": "fedavg"}))
    assert model_similarity(experiment) is None  # although a mean of twenty equal models is not quite that model


@pytest.mark.parametrize(
    ("rounds", "every"), [(800, 1), (800, 10), (1000, 7), (41, 1), (40, 1), (5, 2), (1, 1), (3, 50)]
)
def test_at_most_forty_snapshots_the_last_one_among_them(rounds: int, every: int) -> None:
    evaluated = [round for round in range(1, rounds + 1) if round % every == 0 or round == rounds]
    kept = [round for round in evaluated if _chosen(round, rounds, every)]
    assert len(kept) <= 41  # the odd one out is a last round that is no multiple
    assert kept[-1] == rounds
    assert len(kept) >= min(len(evaluated), 20)


def test_directions_are_those_of_the_last_snapshot() -> None:
    draw = np.random.default_rng(0)
    last = draw.standard_normal((30, 5)) * [9, 1, 4, 0.1, 0.1] + 100
    found = project(np.stack([last[:, ::-1], last]))
    np.testing.assert_allclose(np.abs(found[1]), np.abs(last - last.mean(0))[:, [0, 2]], rtol=0.3, atol=1.5)
    assert found[1][:, 0].var() > 100 * found[0][:, 0].var()  # the directions do not follow the first one


def test_similarity_is_the_cosine_of_what_sets_models_apart(tmp_path: Path) -> None:
    experiment = Experiment(build_config({**SMALL, "method": "separate", "out": str(tmp_path)}))
    assert model_similarity(experiment) is None  # nobody has trained: one model
    run_experiment(experiment)
    alike = model_similarity(experiment)
    assert alike is not None
    ids, cosine = alike
    models = torch.stack([experiment.method.personal(experiment.state.server, experiment.state.clients, cohort)[0]
                          for cohort in _cohorts(experiment)]).double()  # fmt: skip
    expected = np.corrcoef((models - models.mean(0)).numpy())  # rows of mean nearly zero
    assert len(ids) == len(models)
    assert np.abs(cosine - expected).max() < 0.05


def _cohorts(experiment: Experiment) -> list[Any]:
    from panacea.core.types import Cohort

    counts = experiment.federation.counts("train")
    ids = experiment.federation.train_ids
    return [Cohort.of(ids[i : i + 1], counts, 0, experiment.target.initial) for i in range(len(ids))]
