"""Warnings while runs train are notes to the person who waits, and nothing is printed in torch's or Python's manner."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from panacea.cli import run_command_line
from panacea.engines.vectorised import VectorisedEngine
from panacea.experiment.batch import Job, Listener, run_batch
from panacea.experiment.config import build_config
from panacea.experiment.notes import warnings_as_notes

SMALL = ["data=fl60", "data.clients=6", "rounds=4", "local_steps=2", "eval_every=2"]


def test_once_each_and_others_as_before() -> None:
    told: list[str] = []

    def training() -> None:
        with warnings_as_notes(told.append):
            for text in ("less memory", "less memory", "compiled"):
                warnings.warn(text, stacklevel=1)
                assert told[-1] == text  # at once
            warnings.warn("overflow", RuntimeWarning, stacklevel=1)

    with pytest.warns(RuntimeWarning, match="overflow") as caught:
        training()
    assert len(caught) == 1
    assert told == ["less memory", "compiled"]
    with pytest.warns(UserWarning, match="outside"):
        warnings.warn("outside", stacklevel=1)
    assert len(told) == 2


@pytest.fixture
def warning(monkeypatch: pytest.MonkeyPatch) -> None:
    original = VectorisedEngine._launch_rows

    def launch(self: VectorisedEngine, pieces: Any) -> Any:
        warnings.warn("the GPU has too little memory", stacklevel=1)
        return original(self, pieces)

    monkeypatch.setattr(VectorisedEngine, "_launch_rows", launch)


@pytest.mark.usefixtures("warning")
def test_a_run_says_it_as_a_note(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for quiet in ([], ["--quiet"]):
        assert run_command_line(["run", *SMALL, "method=fedavg", "--fresh", *quiet]) == 0
        err = capsys.readouterr().err
        assert err.count("note: the GPU has too little memory\n") == (0 if quiet else 1)
        assert "UserWarning" not in err


class _Notes(Listener):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def on_note(self, number: int, note: str) -> None:
        assert number in (0, 1)
        self.notes.append(note)


@pytest.mark.usefixtures("warning")
@pytest.mark.parametrize("together", [True, False])
def test_a_batch_tells_its_listener(together: bool, tmp_path: Path) -> None:
    keys = {**dict(part.split("=") for part in SMALL), "method": "fedavg", "out": str(tmp_path)}
    keys["engine.together"] = str(together).lower()
    heard = _Notes()
    run_batch([Job(build_config({**keys, "seed": seed})) for seed in (0, 1)], workers=1, listener=heard, pages=False)
    assert set(heard.notes) == {"the GPU has too little memory"}


@pytest.mark.usefixtures("warning")
def test_who_calls_from_python_gets_a_warning(tmp_path: Path) -> None:
    """With nobody else to tell; what is noted while a run is made, too."""
    keys = {**dict(part.split("=") for part in SMALL), "method": "fedavg", "out": str(tmp_path)}
    with pytest.warns(UserWarning, match="the GPU has too little memory"):
        run_batch([Job(build_config(keys))], workers=1, pages=False)
