"""MLflow: what its own client finds in the local store."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from panacea.experiment.rundir import RunDirectory
from panacea.experiment.tracking import MlflowTracker
from panacea.experiment.tracking.mlflow_tracker import _open_store
from tests.experiment.tracking.tracked import KEYS, ROUNDS, lines, train


@pytest.fixture(scope="module")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Making its tables takes seconds, so they are made once."""
    folder = tmp_path_factory.mktemp("store")
    _open_store(folder).search_experiments()
    return folder / "mlflow.db"


@pytest.fixture
def out(tmp_path: Path, empty_store: Path) -> Path:
    shutil.copy(empty_store, tmp_path / "mlflow.db")
    return tmp_path


def _only_run(out: Path) -> tuple[Any, Any]:
    client = _open_store(out)
    experiment = client.get_experiment_by_name("panacea")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    return client, run


def _check(directory: RunDirectory, out: Path) -> Any:
    """Every number of `metrics.jsonl`, once, in one finished run."""
    client, run = _only_run(out)
    for key in ("mean", "val_mean", "train_loss", "bytes_up", "novel_mean"):
        history = sorted(client.get_metric_history(run.info.run_id, f"metrics/{key}"), key=lambda m: m.step)
        assert [metric.step for metric in history] == ROUNDS, key
        np.testing.assert_allclose([m.value for m in history], [line[key] for line in lines(directory)])
    assert run.info.status == "FINISHED"
    return run


def test_metrics_parameters_tags_and_artefacts(out: Path) -> None:
    directory = train(out, MlflowTracker())
    run, client = _check(directory, out), _only_run(out)[0]
    assert run.info.run_name == directory.path.name
    assert run.data.params["data.clients"] == "12"
    assert run.data.params["method"] == "fedavg"
    assert [run.data.tags[key] for key in ("method", "data", "seed")] == ["fedavg", "fl60", "0"]
    assert run.data.metrics["summary/mean"] == directory.read_summary()["mean"]
    assert {file.path for file in client.list_artifacts(run.info.run_id)} >= {"summary.json", "clients.csv"}
    kept = out / "mlruns" / run.info.run_id / "artifacts" / "clients.csv"
    assert kept.read_bytes() == directory.clients.read_bytes()


@pytest.mark.parametrize("every", [0.0, 60.0], ids=["written at once", "not written yet"])
@pytest.mark.parametrize("stop", [3, 7])
def test_after_a_kill_the_same_run_goes_on(out: Path, stop: int, every: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("panacea.experiment.tracking.mlflow_tracker._EVERY", every)
    train(out, MlflowTracker(), stop=stop)
    assert _only_run(out)[1].info.status == "RUNNING"
    _check(train(out, MlflowTracker()), out)


def test_a_deleted_run_is_made_anew(out: Path) -> None:
    train(out, MlflowTracker(), stop=7)
    client, run = _only_run(out)
    client.delete_run(run.info.run_id)
    assert _check(train(out, MlflowTracker()), out).info.run_id != run.info.run_id


def test_two_runs_share_a_store(out: Path) -> None:
    train(out, MlflowTracker())
    train(out, MlflowTracker(), seed=1)
    client = _open_store(out)
    experiment = client.get_experiment_by_name("panacea")
    assert experiment is not None
    assert {run.data.tags["seed"] for run in client.search_runs([experiment.experiment_id])} == {"0", "1"}


@pytest.mark.paper
def test_processes_that_make_a_store_at_once(tmp_path: Path) -> None:
    """Runs of a comparison start together; MLflow alone leaves a data base that nobody can open."""
    (tmp_path / ".mlflow.db.part").write_text("of a kill")
    keys = [f"{key}={value}" for key, value in KEYS.items()] + [f"out={tmp_path}", "track=mlflow", "--quiet"]
    command = [sys.executable, "-m", "panacea", "run", *keys]
    processes = [subprocess.Popen([*command, f"seed={seed}"]) for seed in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    client = _open_store(tmp_path)
    experiment = client.get_experiment_by_name("panacea")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    assert {run.data.tags["seed"] for run in runs} == {"0", "1", "2"}
    assert all(len(client.get_metric_history(run.info.run_id, "metrics/mean")) == len(ROUNDS) for run in runs)


def test_a_store_that_is_none(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "mlflow.db").write_text("not a data base, but long enough to be read as one " * 10)
    assert train(tmp_path, MlflowTracker(say=said.append)).finished
    (note,) = said
    assert note.startswith("mlflow failed and keeps no more of this run, which goes on: ")


def test_a_server_that_is_gone(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")  # the user's own wish; nobody listens there
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    assert train(out, MlflowTracker(say=said.append)).finished
    assert len(said) == 1


def test_nothing_is_reported_over_the_network(out: Path, called: list[object]) -> None:
    train(out, MlflowTracker())
    assert called == []
