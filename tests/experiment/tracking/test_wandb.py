"""Weights & Biases: what its own reader finds in the offline folder, and that nothing is sent."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from panacea.experiment.rundir import RunDirectory
from panacea.experiment.tracking import WandbTracker
from tests.experiment.tracking.tracked import ROUNDS, lines, train


def _folder(directory: RunDirectory) -> Path:
    """A run has one offline folder, and no other."""
    (found,) = (path for path in (directory.path / "wandb").glob("*run-*") if not path.is_symlink())
    assert found.name.startswith("offline-run-")
    return found


def _records(folder: Path) -> list[Any]:
    """All records; W&B's service may still be writing the last ones when `finish` has returned."""
    for _ in range(200):
        records = _written(folder)
        if records and records[-1].WhichOneof("record_type") == "exit":
            break
        time.sleep(0.05)
    return records


def _written(folder: Path) -> list[Any]:
    from wandb.proto.wandb_internal_pb2 import Record
    from wandb.sdk.internal.datastore import DataStore

    (file,) = folder.glob("*.wandb")
    if file.stat().st_size == 0:
        return []
    store = DataStore()
    store.open_for_scan(str(file))
    records = []
    while (data := store.scan_data()) is not None:
        records.append(Record.FromString(data))
    return records


def _items(entry: Any) -> dict[str, Any]:
    return {(item.nested_key[0] if item.nested_key else item.key): json.loads(item.value_json) for item in entry}


def _check(directory: RunDirectory) -> list[Any]:
    """Every number of `metrics.jsonl`, once and in order."""
    records = _records(_folder(directory))
    history = [_items(record.history.item) for record in records if record.WhichOneof("record_type") == "history"]
    assert [step["_step"] for step in history] == ROUNDS
    for step, line in zip(history, lines(directory), strict=True):
        for key in ("mean", "val_mean", "train_loss", "bytes_up", "novel_mean"):
            assert step[f"metrics/{key}"] == pytest.approx(line[key]), key
    assert records[-1].WhichOneof("record_type") == "exit"
    assert records[-1].exit.exit_code == 0
    return records


def test_history_configuration_tags_and_files(tmp_path: Path, called: list[object]) -> None:
    directory = train(tmp_path, WandbTracker())
    records = _check(directory)
    run = next(record.run for record in records if record.WhichOneof("record_type") == "run")
    config = {item.key: json.loads(item.value_json) for item in run.config.update}
    assert (run.project, run.display_name) == ("panacea", directory.path.name)
    assert config["data.clients"] == 12
    assert {"method=fedavg", "data=fl60", "seed=0"} <= set(run.tags)
    summary: dict[str, Any] = {}
    for record in records:
        if record.WhichOneof("record_type") == "summary":
            summary |= _items(record.summary.update)
    assert summary["summary/mean"] == directory.read_summary()["mean"]
    copy = _folder(directory) / "files" / "clients.csv"
    assert copy.read_bytes() == directory.clients.read_bytes()
    saved = {f.path for r in records if r.WhichOneof("record_type") == "files" for f in r.files.files}
    assert {"clients.csv", "summary.json"} <= saved
    assert [host for host in called if host not in ("127.0.0.1", "localhost")] == []


@pytest.mark.parametrize("stop", [3, 7])
def test_after_a_kill_there_is_one_folder_with_everything(tmp_path: Path, stop: int) -> None:
    directory = train(tmp_path, first := WandbTracker(), stop=stop)
    first.close()  # W&B's service knows who is gone by the process, and this one goes on
    number = _folder(directory).name.rpartition("-")[2]
    directory = train(tmp_path, WandbTracker())
    _check(directory)
    assert _folder(directory).name.rpartition("-")[2] == number


def test_what_was_kept_stays_where_wandb_cannot_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = train(tmp_path, first := WandbTracker(), stop=7)
    first.close()

    def refuse(**_: object) -> None:
        raise OSError("no service")

    with monkeypatch.context() as broken:
        broken.setattr("wandb.init", refuse)
        train(tmp_path, WandbTracker(say=lambda note: None), stop=9)
    (kept,) = (directory.path / "wandb").glob("*offline-run-*")
    assert any(record.WhichOneof("record_type") == "history" for record in _records(kept))
    _check(train(tmp_path, WandbTracker()))


def test_a_mode_of_the_users_own_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "disabled")
    said: list[str] = []
    directory = train(tmp_path, WandbTracker(say=said.append))
    assert said == []
    assert not list(directory.path.glob("wandb/*run-*"))
    assert directory.finished


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "boards").write_text("not a folder")
    assert train(tmp_path / "runs", WandbTracker(tmp_path / "boards", say=said.append)).finished
    (note,) = said
    assert note.startswith("wandb failed and keeps no more of this run, which goes on: ")
