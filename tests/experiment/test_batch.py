"""Many runs at once: the same numbers in any number of processes, and nothing trained twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from panacea.errors import RequestError
from panacea.experiment.batch import STOPPED_EARLY, Finished, Job, Listener, run_batch
from panacea.experiment.config import build_config
from panacea.experiment.interrupt import Interrupted
from panacea.experiment.rundir import RunDirectory

KEYS: dict[str, Any] = {"data": "fl60", "data.clients": 12, "rounds": 6, "eval_every": 2, "local_steps": 2}
LONG = {"rounds": 100_000, "eval_every": 10, "checkpoint_every": 10}  # never ends within a test


def _job(out: Path, method: str = "fedavg", **keys: Any) -> Job:
    return Job(build_config({**KEYS, "method": method, "out": str(out), **keys}), f"{method} {keys.get('seed', 0)}")


def _jobs(out: Path) -> list[Job]:
    return [_job(out, method, seed=seed) for method in ("fedavg", "separate") for seed in (0, 1)]


class _Heard(Listener):
    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.lines: dict[int, list[int]] = {}
        self.finished: dict[int, Finished] = {}

    def on_start(self, jobs: Sequence[Job]) -> None:
        self.jobs = list(jobs)

    def on_progress(self, number: int, line: Mapping[str, Any]) -> None:
        self.lines.setdefault(number, []).append(line["round"])

    def on_finish(self, number: int, finished: Finished) -> None:
        assert number not in self.finished
        self.finished[number] = finished


def _without_clock(summary: Mapping[str, Any] | None) -> dict[str, Any]:
    assert summary is not None
    return {
        key: value for key, value in summary.items() if key not in ("train_seconds", "rounds_per_second", "peak_memory")
    }


def test_the_same_numbers_in_one_process_and_in_two(tmp_path: Path) -> None:
    heard = _Heard()
    here = run_batch(_jobs(tmp_path / "one"), workers=1, pages=False)
    there = run_batch(_jobs(tmp_path / "two"), workers=2, listener=heard, pages=False)
    for a, b in zip(here, there, strict=True):
        assert a.error is None
        assert b.error is None
        assert (a.reused, b.reused) == (False, False)
        assert _without_clock(a.summary) == _without_clock(b.summary)
        assert a.directory.name == b.directory.name
        assert (a.directory / "metrics.jsonl").read_bytes() == (b.directory / "metrics.jsonl").read_bytes()
        assert not (b.directory / "report.html").exists()
    assert [f.job.label for f in there] == ["fedavg 0", "fedavg 1", "separate 0", "separate 1"]
    assert heard.jobs == [f.job for f in there]
    assert heard.lines == {number: [2, 4, 6] for number in range(4)}
    assert [heard.finished[number] for number in range(4)] == there


def test_a_finished_run_is_read_and_not_trained(tmp_path: Path) -> None:
    jobs = _jobs(tmp_path)
    first = run_batch(jobs[1:2])
    assert (first[0].directory / "report.html").exists()
    heard = _Heard()
    again = run_batch(jobs[:2], workers=1, listener=heard, pages=False)
    assert [f.reused for f in again] == [False, True]
    assert again[1].summary == first[0].summary
    assert 1 not in heard.lines


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_ended_early_goes_on_later(workers: int, tmp_path: Path) -> None:
    jobs = [_job(tmp_path / "a", seed=seed) for seed in (0, 1)]
    asked: list[tuple[int, int]] = []

    def stop(number: int, line: Mapping[str, Any]) -> bool:
        asked.append((number, line["round"]))
        return number == 0 and line["round"] == 4

    halted, whole = run_batch(jobs, workers=workers, stop=stop, pages=False)
    assert (halted.summary, halted.error) == (None, STOPPED_EARLY)
    assert halted.directory.is_dir()
    assert sorted(asked) == [(0, 2), (0, 4), (1, 2), (1, 4), (1, 6)]
    assert whole.summary is not None
    heard = _Heard()
    resumed = run_batch(jobs, workers=1, listener=heard, pages=False)
    assert [f.reused for f in resumed] == [False, True]
    assert heard.lines == {0: [6]}  # rounds 1 to 4 are not run again
    (straight,) = run_batch([_job(tmp_path / "b", seed=0)], pages=False)
    assert _without_clock(resumed[0].summary) == _without_clock(straight.summary)
    for name in ("metrics.jsonl", "clients.csv"):
        assert (straight.directory / name).read_bytes() == (resumed[0].directory / name).read_bytes()


def _failed(finished: Finished) -> None:
    assert finished.summary is None
    assert finished.error is not None
    assert finished.error.startswith("training diverged")
    assert "\n" not in finished.error
    assert (finished.directory / "config.yaml").exists()


def test_a_run_that_fails_costs_itself_only(tmp_path: Path) -> None:
    failed, fine = run_batch([_job(tmp_path, lr=1e30), _job(tmp_path, seed=1)], workers=1, pages=False)
    _failed(failed)
    assert fine.summary is not None


@pytest.mark.parametrize("workers", [1, 2])
def test_a_wrong_request_ends_the_batch_in_one_line(workers: int, tmp_path: Path) -> None:
    jobs = [_job(tmp_path, cohort=99), _job(tmp_path, **LONG)]  # the second would never end by itself
    with pytest.raises(RequestError, match="cohort=99"):
        run_batch(jobs, workers=workers, pages=False)
    with pytest.raises(RequestError, match="workers=0"):
        run_batch([_job(tmp_path)], workers=0)


class _Killer(Listener):
    """Kills the process of a job (the one that holds its directory) at its first line."""

    def __init__(self, job: int) -> None:
        self.job, self.killed = job, 0

    def on_progress(self, number: int, line: Mapping[str, Any]) -> None:
        if number == self.job and not self.killed and line["round"] >= 20:
            for pid in (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()):
                if _child_of(pid) and any("-s7-" in name for name in _open_files(pid)):
                    os.kill(pid, signal.SIGKILL)
                    self.killed = pid


def _child_of(pid: int) -> bool:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) == os.getpid()
    except OSError:
        return False


def _open_files(pid: int) -> list[str]:
    names = []
    for handle in Path(f"/proc/{pid}/fd").iterdir():
        try:
            names.append(str(handle.readlink()))
        except OSError:
            continue
    return names


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="finds the process through /proc")
def test_a_killed_process_costs_its_job_only(tmp_path: Path) -> None:
    jobs = [_job(tmp_path, seed=7, **LONG), _job(tmp_path, lr=1e30), *(_job(tmp_path, seed=s) for s in (1, 2))]
    killer = _Killer(0)
    finished = run_batch(jobs, workers=2, listener=killer, pages=False)
    assert killer.killed
    assert finished[0].summary is None
    assert finished[0].error is not None
    assert "signal 9" in finished[0].error
    assert (finished[0].directory / "metrics.jsonl").exists()
    _failed(finished[1])
    assert all(f.summary is not None for f in finished[2:])


@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_saves_every_run(workers: int, tmp_path: Path) -> None:
    class Interrupting(Listener):
        def on_progress(self, number: int, line: Mapping[str, Any]) -> None:
            started.add(number)
            if len(started) == workers:
                signal.raise_signal(signal.SIGINT) if not sent else None
                sent.append(number)

    started: set[int] = set()
    sent: list[int] = []
    long = {**LONG, "checkpoint_every": 100_000}
    with pytest.raises(Interrupted, match="0 of 2 runs"):
        run_batch([_job(tmp_path, seed=s, **long) for s in (0, 1)], workers=workers, listener=Interrupting())
    stopped = sorted(tmp_path.iterdir())
    assert len(stopped) == 2  # in one process both advance together
    for path in stopped:
        checkpoint, damaged = RunDirectory(path).checkpoints.load()
        assert checkpoint is not None
        assert not damaged
        assert checkpoint.round >= 10


def test_two_batches_share_a_run_without_harm(tmp_path: Path) -> None:
    job = _job(tmp_path, rounds=150)
    found: list[Finished] = []
    other = threading.Thread(target=lambda: found.extend(run_batch([job], workers=1, pages=False)))
    other.start()
    mine = run_batch([job, job], workers=2, pages=False)
    other.join()
    results = [*mine, *found]
    assert len(results) == 3
    assert len({f.directory for f in results}) == 1
    assert sum(not f.reused for f in results) == 1
    assert all(f.summary == results[0].summary for f in results)


_SCRIPT = """
from pathlib import Path
from panacea.experiment.batch import Job, run_batch
from panacea.experiment.config import build_config
keys = {keys!r}
if __name__ == "__main__":
    run_batch([Job(build_config({{**keys, "seed": seed}})) for seed in (0, 1)], workers=2, pages=False)
"""


def test_workers_save_and_leave_when_their_parent_is_killed(tmp_path: Path) -> None:
    keys = {**KEYS, **LONG, "checkpoint_every": 100_000, "method": "fedavg", "out": str(tmp_path / "runs")}
    script = tmp_path / "script.py"
    script.write_text(_SCRIPT.format(keys=keys))
    process = subprocess.Popen([sys.executable, str(script)])
    _until(lambda: len(list((tmp_path / "runs").glob("*/metrics.jsonl"))) == 2)
    process.kill()
    process.wait()
    _until(lambda: len(list((tmp_path / "runs").glob("*/checkpoint/round-*"))) == 2)
    for path in (tmp_path / "runs").iterdir():
        _until(lambda path=path: _free(RunDirectory(path)))  # type: ignore[misc]


def _free(directory: RunDirectory) -> bool:
    try:
        with directory.locked():
            return True
    except RequestError:
        return False


def _until(true: Any, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)
