"""The key `track`: what it takes, and that it changes nothing but what is kept."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

import panacea as pn
from panacea.cli import main
from panacea.errors import RequestError
from panacea.experiment.config import TRACKER_NAMES, build_config, identity
from panacea.experiment.keys import flatten
from panacea.experiment.rundir import nested
from panacea.experiment.sweep import split_sweep
from panacea.experiment.tracking import trackers_of
from panacea.experiment.tracking.choose import TRACKERS
from tests.experiment.tracking.tracked import KEYS, train


def test_every_name_has_a_tracker() -> None:
    assert tuple(TRACKERS) == TRACKER_NAMES


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (None, ()),
        ([], ()),
        ("mlflow", ("mlflow",)),
        (["wandb", "tensorboard"], ("wandb", "tensorboard")),
        (["mlflow", "mlflow"], ("mlflow",)),
    ],
)
def test_names(given: object, names: tuple[str, ...]) -> None:
    config = build_config({**KEYS, "track": given})
    assert config.track == names
    assert [tracker.key for tracker in trackers_of(config)] == list(names)
    assert identity(config) == identity(build_config(KEYS))
    assert build_config(flatten(nested(config))) == config  # as config.yaml stores it


@pytest.mark.parametrize("given", ["tensorbord", ["mlflow", "tensorbord"]])
def test_an_unknown_name(given: object) -> None:
    with pytest.raises(RequestError, match=r"track=.*unknown tracker 'tensorbord'; did you mean 'tensorboard'\?"):
        build_config({**KEYS, "track": given})


def test_several_trackers_are_not_several_runs() -> None:
    fixed, axes = split_sweep({**KEYS, "track": ["tensorboard", "mlflow"]}, ["fedavg"])
    assert axes == ()
    assert fixed["track"] == ["tensorboard", "mlflow"]


def test_the_numbers_are_the_same_with_a_tracker(tmp_path: Path) -> None:
    config = build_config({**KEYS, "track": "tensorboard"})
    with_one, without = train(tmp_path / "a", *trackers_of(config), track="tensorboard"), train(tmp_path / "b")
    assert with_one.path.name == without.path.name
    assert with_one.metrics.read_bytes() == without.metrics.read_bytes()
    assert with_one.clients.read_bytes() == without.clients.read_bytes()


@pytest.fixture
def without_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_spec(name: str, *given: Any) -> Any:
        return None if name in ("tensorboard", "mlflow", "wandb") else importlib.util.find_spec(name, *given)

    monkeypatch.setattr("panacea.experiment.tracking.tracker.find_spec", find_spec)


@pytest.mark.usefixtures("without_packages")
@pytest.mark.parametrize("name", TRACKER_NAMES)
@pytest.mark.parametrize("command", [["run", "method=fedavg"], ["compare", "methods=fedavg", "seeds=0"]])
def test_a_missing_package_is_said_before_training(
    name: str,
    command: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = ["data=fl60", "rounds=1", f"out={tmp_path}", f"track={name}"]
    monkeypatch.setattr(sys, "argv", ["panacea", *command, *keys])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert error == f"error: track={name} needs {name}, which is not installed: pip install 'panacea-fl[tracking]'\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("without_packages")
def test_a_missing_package_in_python(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="panacea-fl"):
        pn.train("fl60", rounds=1, out=tmp_path, track="wandb")
    assert list(tmp_path.iterdir()) == []


def test_without_a_folder_there_is_nowhere_to_write() -> None:
    with pytest.raises(RequestError, match=r"track=tensorboard: there is no folder to write to; give out=FOLDER"):
        pn.train("fl60", rounds=1, local_steps=1, track="tensorboard")
