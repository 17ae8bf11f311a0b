from __future__ import annotations

import json
import pickle
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from panacea.errors import RequestError, RunFailure
from panacea.experiment.checkpoint import Checkpoint, CheckpointStore
from panacea.experiment.rundir import RunDirectory
from panacea.experiment.runner import Callback, run_experiment
from tests.toy import toy_experiment


def _checkpoint(round: int) -> Checkpoint:
    return Checkpoint(round, {"a": torch.arange(5.0) + round, "b": torch.zeros(0)}, {"x": round})


def test_the_last_two_are_kept(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    for round in (1, 5, 9, 12):
        store.save(_checkpoint(round))
    assert store.rounds() == [9, 12]
    found, notes = store.load()
    assert found is not None
    assert found.round == 12
    assert torch.equal(found.tensors["a"], torch.arange(5.0) + 12)
    assert found.info == {"x": 12}
    assert notes == []


@pytest.mark.parametrize("name", ["state.safetensors", "state.json", "manifest.json"])
@pytest.mark.parametrize("damage", ["cut", "flip", "gone", "pickle"])
def test_damage_falls_back_to_the_previous_one(name: str, damage: str, tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    store.save(_checkpoint(1))
    store.save(_checkpoint(2))
    path = tmp_path / "round-00000002" / name
    data = path.read_bytes()
    if damage == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif damage == "flip":
        middle = len(data) // 2
        path.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
    elif damage == "gone":
        path.unlink()
    else:
        path.write_bytes(pickle.dumps({"a": 1}))
    found, notes = store.load()
    assert found is not None
    assert found.round == 1
    assert len(notes) == 1
    assert "round-00000002" in notes[0]


def test_shared_memory_is_no_obstacle(tmp_path: Path) -> None:
    tensor = torch.ones(3)
    CheckpointStore(tmp_path).save(Checkpoint(1, {"a": tensor, "b": tensor, "c": tensor.expand(2, 3)}, {}))
    found, _ = CheckpointStore(tmp_path).load()
    assert found is not None
    assert found.tensors["c"].shape == (2, 3)


_FULL = """
import resource, sys
from pathlib import Path
import torch
from panacea.errors import RunFailure
from panacea.experiment.checkpoint import Checkpoint, CheckpointStore
store = CheckpointStore(Path(sys.argv[1]))
store.save(Checkpoint(1, {"a": torch.ones(10)}, {}))
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))  # the kernel refuses to write more, as a full disk does
try:
    store.save(Checkpoint(2, {"a": torch.ones(100_000)}, {}))
except RunFailure as error:
    print(error)
    sys.exit(0)
sys.exit("saved?")
"""


def test_a_full_disk_leaves_the_previous_checkpoint(tmp_path: Path) -> None:
    assert hasattr(resource, "RLIMIT_FSIZE")
    done = subprocess.run([sys.executable, "-c", _FULL, tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "cannot save the checkpoint of round 2" in done.stdout
    assert "the checkpoint of round 1 is intact" in done.stdout
    store = CheckpointStore(tmp_path)
    assert store.rounds() == [1]
    assert [path.name for path in tmp_path.iterdir()] == ["round-00000001"]  # and no half-written one


class _StopAfter(Callback):
    def __init__(self, round: int) -> None:
        self.round = round
        self.notes: list[str] = []

    def on_round(self, experiment: object, report: object) -> None:
        if experiment.state.round == self.round:  # type: ignore[attr-defined]
            raise ZeroDivisionError

    def on_note(self, note: str) -> None:
        self.notes.append(note)


def _crashed_run(tmp_path: Path) -> RunDirectory:
    experiment = toy_experiment("separate", rounds=8, eval_every=1, checkpoint_every=2)
    directory = RunDirectory(tmp_path / "run")
    with pytest.raises(ZeroDivisionError):
        run_experiment(experiment, directory, [_StopAfter(7)])
    return directory


def _finish(directory: RunDirectory) -> tuple[bytes, list[str]]:
    experiment = toy_experiment("separate", rounds=8, eval_every=1, checkpoint_every=2)
    listener = _StopAfter(-1)
    run_experiment(experiment, directory, [listener])
    return directory.metrics.read_bytes(), listener.notes


def test_a_damaged_checkpoint_costs_some_rounds_but_not_the_run(tmp_path: Path) -> None:
    straight = RunDirectory(tmp_path / "straight")
    expected, _ = _finish(straight)
    directory = _crashed_run(tmp_path)
    (directory.path / "checkpoint" / "round-00000006" / "state.safetensors").write_bytes(b"nonsense")
    found, notes = _finish(directory)
    assert found == expected
    assert any("round-00000006 is damaged" in note for note in notes)
    assert any("going on from the checkpoint of round 4" in note for note in notes)


def test_all_checkpoints_damaged_is_refused(tmp_path: Path) -> None:
    directory = _crashed_run(tmp_path)
    for path in (directory.path / "checkpoint").iterdir():
        (path / "state.json").write_text("{}")
    with pytest.raises(RequestError, match=r"damaged.*no earlier one"):
        _finish(directory)


def test_metrics_that_were_edited_are_refused(tmp_path: Path) -> None:
    directory = _crashed_run(tmp_path)
    directory.metrics.write_text(directory.metrics.read_text().replace('"round": 2', '"round": 3'))
    with pytest.raises(RequestError, match="was changed since"):
        _finish(directory)


def test_a_checkpoint_of_another_configuration_is_refused(tmp_path: Path) -> None:
    directory = _crashed_run(tmp_path)
    other = toy_experiment("separate", rounds=8, eval_every=1, lr=0.2)
    checkpoint, _ = directory.checkpoints.load()
    assert checkpoint is not None
    with pytest.raises(RequestError, match="another configuration"):
        other.restore(checkpoint)


def test_divergence_is_one_sentence(tmp_path: Path) -> None:
    experiment = toy_experiment("fedavg", lr=1e200, rounds=30)
    with pytest.raises(RunFailure, match=r"diverged in round .* smaller lr"):
        run_experiment(experiment, RunDirectory(tmp_path / "run"))
    json.dumps(experiment.history.numbers, allow_nan=False)
