"""The service that lets processes share a GPU, played by a script: begun where it helps, and never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from panacea.experiment import batch, gpu_service
from panacea.experiment.batch import Job, Listener, run_batch
from panacea.experiment.config import build_config
from panacea.experiment.gpu_service import gpu_shared_by_processes

PIPES = "CUDA_MPS_PIPE_DIRECTORY"

SERVICE = """#!/bin/sh
if [ "$1" = -d ]; then
    {begin}
    echo "begun in $CUDA_MPS_PIPE_DIRECTORY for ${{CUDA_VISIBLE_DEVICES-all}}" >>{calls}
else
    read -r order
    echo "$order in $CUDA_MPS_PIPE_DIRECTORY" >>{calls}
fi
"""


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Callable[[], list[str]]]:
    """Puts the script on the path; what is returned gives the lines it wrote."""
    monkeypatch.delenv(PIPES, raising=False)
    monkeypatch.setattr(gpu_service, "_USUAL", tmp_path / "usual")

    def put(begin: str = ":", trial: str = "pass") -> Callable[[], list[str]]:
        calls, command = tmp_path / "calls", tmp_path / "bin" / gpu_service._COMMAND
        command.parent.mkdir()
        command.write_text(SERVICE.format(begin=begin, calls=calls))
        command.chmod(0o755)
        monkeypatch.setenv("PATH", f"{command.parent}:{os.environ['PATH']}")
        monkeypatch.setattr(gpu_service, "_TRIAL", trial)
        return lambda: calls.read_text().splitlines() if calls.exists() else []

    return put


def test_it_lasts_as_long_as_it_is_needed(
    service: Callable[..., Callable[[], list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All GPUs are served, whichever the user wants; the trial and our processes want that one."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    calls = service(trial="import os; assert os.environ['CUDA_VISIBLE_DEVICES'] == '1' and os.environ['" + PIPES + "']")
    with gpu_shared_by_processes():
        folder = Path(os.environ[PIPES])
        assert folder.is_dir()
        assert calls() == [f"begun in {folder} for all"]
    assert calls()[1:] == [f"quit in {folder}"]
    assert PIPES not in os.environ
    assert not folder.exists()


def test_it_ends_with_an_error_too(service: Callable[..., Callable[[], list[str]]]) -> None:
    calls = service()
    with pytest.raises(KeyboardInterrupt), gpu_shared_by_processes():
        raise KeyboardInterrupt
    assert calls()[1].startswith("quit")
    assert PIPES not in os.environ


def test_it_ends_when_we_are_killed(service: Callable[..., Callable[[], list[str]]]) -> None:
    calls = service()
    lines = (
        "import time; from panacea.experiment import gpu_service; gpu_service._TRIAL = 'pass'",
        "with gpu_service.gpu_shared_by_processes(): time.sleep(60)",
    )
    ours = subprocess.Popen([sys.executable, "-c", "\n".join(lines)])
    _wait_for(lambda: len(calls()) == 1)
    time.sleep(0.2)
    ours.send_signal(signal.SIGKILL)
    ours.wait()
    _wait_for(lambda: len(calls()) == 2)
    folder = Path(calls()[0].split()[2])
    assert calls()[1] == f"quit in {folder}"
    _wait_for(lambda: not folder.exists())


def _wait_for(there: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not there():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("begin", "trial"),
    [
        ("exit 1", "pass"),
        ("sleep 2; touch late", "pass"),
        (":", "raise SystemExit(1)"),
        (":", "import time; time.sleep(30)"),
    ],
)
def test_one_that_does_not_work_is_ended_and_said(
    begin: str,
    trial: str,
    service: Callable[..., Callable[[], list[str]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It cannot be started, never comes up, refuses, or never answers."""
    monkeypatch.setattr(gpu_service, "_PATIENCE", 0.5)
    monkeypatch.chdir(tmp_path)
    calls = service(begin, trial)
    with pytest.warns(UserWarning, match="does not work here; processes take turns"), gpu_shared_by_processes():
        meanwhile = PIPES in os.environ, len(calls())
    assert meanwhile == (False, 2 if begin == ":" else 0)  # it is ended at once, not after hours of runs
    if begin == ":":
        assert calls()[1:] == [call for call in calls() if call.startswith("quit")]
    elif "late" in begin:
        time.sleep(1.5)
        assert not Path("late").exists()  # what did not come up in time never does


def test_none_is_begun_beside_the_users_own(
    service: Callable[..., Callable[[], list[str]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = service()
    (tmp_path / "usual").touch()
    with gpu_shared_by_processes():
        assert PIPES not in os.environ
    (tmp_path / "usual").unlink()
    monkeypatch.setenv(PIPES, "theirs")
    with gpu_shared_by_processes():
        pass
    assert os.environ[PIPES] == "theirs"
    assert not calls()


@pytest.mark.parametrize(
    ("device", "workers", "visible", "begun"),
    [
        ("auto", 2, "0", True),
        ("auto", 2, "", False),
        ("auto", 2, "-1", False),
        ("auto", 1, "0", False),
        ("cpu", 2, "0", False),
    ],
)
def test_a_batch_begins_it_for_several_processes_on_a_gpu(
    device: str,
    workers: int,
    visible: str,
    begun: bool,
    service: Callable[..., Callable[[], list[str]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The runs find themselves without a GPU here, and train on the CPU all the same."""
    calls, driver = service(), tmp_path / "driver"
    driver.touch()
    monkeypatch.setattr(batch, "_GPU", driver)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    keys = {"data": "fl60", "data.clients": 6, "method": "separate", "rounds": 1, "local_steps": 1, "device": device}
    jobs = [Job(build_config({**keys, "seed": seed, "out": str(tmp_path / "runs")})) for seed in (0, 1)]
    assert all(one.error is None for one in run_batch(jobs, workers=workers, pages=False))
    assert len(calls()) == (2 if begun else 0)


def test_a_batch_says_in_its_own_words_that_there_is_none(
    service: Callable[..., Callable[[], list[str]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service(trial="raise SystemExit(1)")
    (tmp_path / "driver").touch()
    monkeypatch.setattr(batch, "_GPU", tmp_path / "driver")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    notes = []

    class Heard(Listener):
        def on_note(self, number: int, note: str) -> None:
            notes.append(note)

    keys = {"data": "fl60", "data.clients": 6, "method": "separate", "rounds": 1, "local_steps": 1}
    jobs = [Job(build_config({**keys, "seed": seed, "out": str(tmp_path / "runs")})) for seed in (0, 1)]
    run_batch(jobs, workers=2, listener=Heard(), pages=False)
    assert any("processes take turns on the GPU" in note for note in notes)
