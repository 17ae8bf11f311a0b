"""`kill -9` at any moment, then resume: the same bits as a run that was never stopped."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

from panacea.experiment import experiment as experiment_module
from panacea.experiment.config import build_config
from panacea.experiment.experiment import Experiment
from panacea.experiment.rundir import RunDirectory
from panacea.experiment.runner import run_experiment

KEYS = {"data": "fl60", "data.clients": 12, "rounds": 40, "eval_every": 3, "checkpoint_every": 4, "local_steps": 20}
_fork = multiprocessing.get_context("fork")  # the child starts with torch imported, so kills fall inside the run


def _work(method: str, out: Path, store: str) -> None:
    experiment_module._TRACE_FROM = 0  # as in a long run, the gradient is recorded and replayed
    experiment = Experiment(build_config({**KEYS, "method": method, "out": str(out), "store": store}))
    run_experiment(experiment, RunDirectory.of(experiment.config, experiment.method.name))


def _directory(out: Path) -> Path:
    (found,) = out.iterdir()
    return found


def _start(method: str, out: Path, store: str = "auto") -> multiprocessing.process.BaseProcess:
    process = _fork.Process(target=_work, args=(method, out, store))
    process.start()
    return process


def _same(a: Path, b: Path) -> None:
    for name in ("metrics.jsonl", "clients.csv"):
        assert (a / name).read_bytes() == (b / name).read_bytes(), name
    last = f"checkpoint/round-{KEYS['rounds']:08d}/state.safetensors"
    x, y = load_file(a / last), load_file(b / last)
    assert x.keys() == y.keys()
    assert all((x[key].numpy().tobytes() == y[key].numpy().tobytes()) for key in x)


def _kill_until_done(method: str, out: Path, seconds: float, kills: int, seed: int, store: str = "auto") -> int:
    """Start again and again, each time killed at a random moment; then let it finish. Returns kills that hit."""
    draw = random.Random(seed)
    hit = 0
    for _ in range(kills):
        process = _start(method, out, store)
        time.sleep(draw.uniform(0.05, seconds))
        if process.is_alive():
            assert process.pid is not None
            os.kill(process.pid, signal.SIGKILL)
            hit += 1
        process.join()
    final = _start(method, out, store)
    final.join()
    assert final.exitcode == 0
    return hit


def _uninterrupted(method: str, out: Path) -> float:
    started = time.perf_counter()
    process = _start(method, out)
    process.join()
    assert process.exitcode == 0
    return time.perf_counter() - started


@pytest.mark.parametrize("method", ["separate"])
def test_killed_and_resumed_is_the_same_run(method: str, tmp_path: Path) -> None:
    """The one that is killed keeps its clients' states in a mapped file, which is lost with it."""
    seconds = _uninterrupted(method, tmp_path / "straight")
    hit = _kill_until_done(method, tmp_path / "killed", 0.8 * seconds, kills=5, seed=1, store="disk")
    assert hit >= 1
    _same(_directory(tmp_path / "straight"), _directory(tmp_path / "killed"))


@pytest.mark.paper
@pytest.mark.parametrize("method", ["separate", "fedavg", "fedavg_ft", "fedprox"])
def test_twenty_kills(method: str, tmp_path: Path) -> None:
    """Twenty runs, each killed once at a random moment and resumed. A run that was faster than its kill is not one."""
    seconds = _uninterrupted(method, tmp_path / "straight")
    hit = 0
    for number in range(60):
        out = tmp_path / f"killed-{number}"
        hit += _kill_until_done(method, out, 0.9 * seconds, kills=1, seed=number)
        _same(_directory(tmp_path / "straight"), _directory(out))
        if hit == 20:
            return
    pytest.fail(f"only {hit} of 60 kills met a running process")


def test_no_trace_of_a_killed_writer_stays(tmp_path: Path) -> None:
    _uninterrupted("fedavg", tmp_path)
    run = _directory(tmp_path)
    assert sorted(path.name for path in (run / "checkpoint").iterdir()) == ["round-00000036", "round-00000040"]
    assert not list(run.glob(".*"))
