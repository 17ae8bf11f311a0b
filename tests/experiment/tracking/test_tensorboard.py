"""TensorBoard: what its own reader finds in the files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from panacea.experiment.rundir import RunDirectory
from panacea.experiment.tracking import TensorBoardTracker
from tests.experiment.tracking.tracked import ROUNDS, lines, train


def _read(path: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(str(path), size_guidance={"scalars": 0, "histograms": 0}).Reload()


def _check(directory: RunDirectory, found: Any) -> None:
    """Every number of `metrics.jsonl`, once and in order."""
    for key in ("mean", "val_mean", "train_loss", "bytes_up", "novel_mean"):
        events = found.Scalars(f"metrics/{key}")
        assert [event.step for event in events] == ROUNDS, key
        np.testing.assert_allclose([e.value for e in events], [line[key] for line in lines(directory)], rtol=1e-6)
    assert [event.step for event in found.Scalars("time/train_seconds")] == ROUNDS


def test_scalars_histograms_text_and_summary(tmp_path: Path) -> None:
    directory = train(tmp_path, TensorBoardTracker())
    found = _read(directory.path / "tensorboard")
    _check(directory, found)
    histograms = found.Histograms("clients/metric")
    assert [event.step for event in histograms] == ROUNDS
    last, summary = histograms[-1].histogram_value, directory.read_summary()
    assert last.num == summary["clients"]
    assert last.sum / last.num == pytest.approx(summary["final_mean"])
    (event,) = found.Tensors("configuration/text_summary")
    text = event.tensor_proto.string_val[0].decode()
    assert "| data.clients | `12` |" in text
    assert "| method | `fedavg` |" in text
    assert found.Scalars("summary/mean")[0].value == pytest.approx(summary["mean"], rel=1e-6)
    hparams = found.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    assert b"local_steps" in hparams


@pytest.mark.parametrize("stop", [3, 7, 11])
def test_after_a_kill_nothing_is_missing_and_nothing_is_twice(tmp_path: Path, stop: int) -> None:
    train(tmp_path, TensorBoardTracker(), stop=stop)
    directory = train(tmp_path, TensorBoardTracker())
    found = _read(directory.path / "tensorboard")
    _check(directory, found)
    assert [event.step for event in found.Histograms("clients/metric")] == ROUNDS
    assert len(found.Tensors("configuration/text_summary")) == 1


def test_half_an_event_at_the_end_of_a_file(tmp_path: Path) -> None:
    directory = train(tmp_path, TensorBoardTracker(), stop=7)
    (file,) = (directory.path / "tensorboard").iterdir()
    file.write_bytes(file.read_bytes()[:-11])  # round 6 is not in the checkpoint
    _check(train(tmp_path, TensorBoardTracker()), _read(directory.path / "tensorboard"))


def test_a_tracker_that_comes_late_gets_what_was_before(tmp_path: Path) -> None:
    train(tmp_path, stop=7)
    directory = train(tmp_path, TensorBoardTracker())
    _check(directory, _read(directory.path / "tensorboard"))


def test_a_folder_of_ones_own(tmp_path: Path) -> None:
    directory = train(tmp_path / "runs", TensorBoardTracker(tmp_path / "boards"))
    assert not (directory.path / "tensorboard").exists()
    _check(directory, _read(tmp_path / "boards" / directory.path.name))


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "boards").write_text("not a folder")
    assert train(tmp_path / "runs", TensorBoardTracker(tmp_path / "boards", say=said.append)).finished
    (note,) = said
    assert note.startswith("tensorboard failed and keeps no more of this run, which goes on: ")


def test_a_disk_that_is_full(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []
    tracker = TensorBoardTracker(say=said.append)
    log, full = tracker.log, Path("/dev/full").open("wb")  # noqa: SIM115  (closing it fails, too)

    def then_full(round: int, numbers: dict[str, float]) -> None:
        log(round, numbers)
        if round == 4:
            assert tracker.file is not None
            tracker.file.records._writer = tracker.file.file = full

    tracker.log = then_full  # type: ignore[method-assign]
    directory = train(tmp_path, tracker)
    assert directory.finished
    (note,) = said
    assert "No space left on device" in note
    assert [event.step for event in _read(directory.path / "tensorboard").Scalars("metrics/mean")] == [2, 4]
    assert capfd.readouterr().err == ""


def test_files_of_one_second_are_read_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("panacea.experiment.tracking.tensorboard_tracker.time.time", lambda: 1.7e9)
    for stop in (5, 7, 9):
        train(tmp_path, TensorBoardTracker(), stop=stop)
    directory = train(tmp_path, TensorBoardTracker())
    assert len(list((directory.path / "tensorboard").iterdir())) == 4
    _check(directory, _read(directory.path / "tensorboard"))
