"""`kill -9` and Ctrl-C at the command line with all trackers at once, then `panacea resume`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from panacea.experiment.rundir import RunDirectory
from tests.experiment.tracking import test_mlflow, test_tensorboard, test_wandb
from tests.experiment.tracking.tracked import KEYS

_PANACEA = [sys.executable, "-m", "panacea"]


@pytest.mark.paper
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_every_tracker_after_a_stop(how: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds, every = 400, 5
    keys = {**KEYS, "rounds": rounds, "eval_every": every, "checkpoint_every": 20, "local_steps": 40, "out": tmp_path}
    asked = [f"{key}={value}" for key, value in keys.items()] + ["track=tensorboard,mlflow,wandb"]
    process = subprocess.Popen([*_PANACEA, "run", *asked], stderr=subprocess.PIPE, text=True, start_new_session=True)
    while not (found := list(tmp_path.glob("fl60-*/metrics.jsonl"))) or found[0].read_text().count("\n") < 8:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    os.killpg(process.pid, how)
    error = process.communicate(timeout=60)[1]
    assert process.returncode == (130 if how == signal.SIGINT else -how)
    assert "Traceback" not in error
    directory = RunDirectory(found[0].parent)
    assert not directory.finished
    done = subprocess.run([*_PANACEA, "resume", str(directory.path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "failed" not in done.stderr
    steps = list(range(every, rounds + 1, every))
    for module in (test_tensorboard, test_mlflow, test_wandb):
        monkeypatch.setattr(module, "ROUNDS", steps)
    test_tensorboard._check(directory, test_tensorboard._read(directory.path / "tensorboard"))
    test_mlflow._check(directory, tmp_path)
    test_wandb._check(directory)
