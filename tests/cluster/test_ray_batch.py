"""Whole runs on a Ray cluster: the files of a batch in processes, whatever happens to a worker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from panacea.engines.ray_session import RaySession
from panacea.errors import RequestError
from panacea.experiment import _ray_crew
from panacea.experiment.batch import STOPPED_EARLY, Finished, Job, Listener, run_batch
from panacea.experiment.comparison import run_comparison
from panacea.experiment.config import build_config
from panacea.experiment.interrupt import Interrupted
from panacea.experiment.planning import plan_comparison
from tests.toy import wait_for_first_round

pytestmark = pytest.mark.network

KEYS = {"data": "fl60", "data.clients": 6, "rounds": 4, "eval_every": 2, "local_steps": 5}


@pytest.fixture(autouse=True)
def _one_ray(ray_here: RaySession) -> None:
    """Every test finds it warm."""


def jobs_in(out: Path, methods: Sequence[str] = ("fedavg", "ditto"), **keys: Any) -> list[Job]:
    flat = {**KEYS, "out": str(out), **keys}
    return [Job(build_config({**flat, "method": method}), method) for method in methods]


class _Heard(Listener):
    """Keeps what it is told; kills all workers at the line of a round, once."""

    def __init__(self, kill_in: int = 0) -> None:
        self.kill_in, self.notes, self.lines = kill_in, list[str](), list[Mapping[str, Any]]()
        self.ends = list[Finished]()

    def on_note(self, number: int, note: str) -> None:
        self.notes.append(note)

    def on_progress(self, number: int, line: Mapping[str, Any]) -> None:
        self.lines.append(line)
        if line["round"] == self.kill_in:
            self.kill_in = 0
            for process in _hands():
                os.kill(process, signal.SIGKILL)

    def on_finish(self, number: int, finished: Finished) -> None:
        self.ends.append(finished)


def _hands() -> list[int]:
    """Our actors that do runs, by their processes; others may use Ray on this machine, too."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()]
    parents = {int(row[0]): int(row[1]) for row in rows}
    found = [int(row[0]) for row in rows if row[2].startswith("ray::Hand")]

    def ours(process: int) -> bool:
        return process == os.getpid() or (process in parents and ours(parents[process]))

    return [process for process in found if ours(process)]


def test_compare_on_ray_equals_compare_in_processes(tmp_path: Path) -> None:
    results = []
    for name, cluster in (("here", None), ("there", "local")):
        keys = {**KEYS, "methods": ["fedavg", "ditto"], "seeds": [0], "out": str(tmp_path / name)}
        plan = plan_comparison(keys)
        results.append(run_comparison(plan, workers=1 + (cluster is not None), pages=False, cluster=cluster))
    here, there = (sorted((tmp_path / name).glob("fl60-*")) for name in ("here", "there"))
    assert [one.name for one in here] == [one.name for one in there]
    assert len(here) == 2
    for a, b in zip(here, there, strict=True):
        assert (a / "metrics.jsonl").read_bytes() == (b / "metrics.jsonl").read_bytes()
    for mine, theirs in zip(results[0].table.cells("\n"), results[1].table.cells("\n"), strict=True):
        assert [cell.text for cell in mine[:-1]] == [cell.text for cell in theirs[:-1]]  # the last one is seconds
    assert not list((tmp_path / "there").glob(".cluster-*"))


def test_the_runs_of_a_killed_worker_go_on_and_those_that_are_done_stay_so(tmp_path: Path) -> None:
    heard = _Heard(kill_in=2)
    keys = {"checkpoint_every": 1, "eval_every": 1, "rounds": 4}
    expected = run_batch(jobs_in(tmp_path / "a", ["fedavg"], **keys), workers=1, pages=False)
    found = run_batch(
        jobs_in(tmp_path / "b", ["fedavg"], **keys), workers=1, pages=False, listener=heard, cluster="local",
        stop=lambda number, line: False,  # so that the run waits at each line, and is killed in the middle
    )  # fmt: skip
    assert found[0].error is None
    assert found[0].summary is not None
    assert expected[0].summary is not None
    assert found[0].summary["mean"] == expected[0].summary["mean"]
    here, there = (one[0].directory / "metrics.jsonl" for one in (expected, found))
    assert here.read_bytes() == there.read_bytes()
    assert any("its Ray worker died; it goes on" in note for note in heard.notes)
    assert [line["round"] for line in heard.lines].count(1) == 1, "it began anew"
    kept = there.stat().st_mtime_ns
    jobs = [*jobs_in(tmp_path / "b", ["fedavg"], **keys), *jobs_in(tmp_path / "b", ["ditto"])]
    again, new = run_batch(jobs, workers=1, pages=False, cluster="local", stop=lambda number, line: True)
    assert again.reused
    assert there.stat().st_mtime_ns == kept  # finished runs are read, not repeated
    assert new.error == STOPPED_EARLY


class _Impatient(_Heard):
    """Presses Ctrl-C at the second line of the second job."""

    def on_progress(self, number: int, line: Mapping[str, Any]) -> None:
        super().on_progress(number, line)
        if number == 1 and line["round"] == 2:
            os.kill(os.getpid(), signal.SIGINT)


def test_after_ctrl_c_the_same_batch_repeats_nothing(tmp_path: Path) -> None:
    keys = {"checkpoint_every": 1, "eval_every": 1, "rounds": 6}

    def run(out: Path, listener: Listener | None = None, cluster: str | None = "local") -> list[Finished]:
        jobs = jobs_in(out, **keys)  # `stop`, so that a run waits at each line for its answer
        return run_batch(
            jobs, workers=1, pages=False, listener=listener, cluster=cluster, stop=lambda number, line: False
        )

    with pytest.raises(Interrupted, match="1 of 2 runs are done"):
        run(tmp_path / "a", _Impatient())
    (done,) = (path.parent for path in (tmp_path / "a").glob("*/summary.json"))
    before = {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in done.glob("*.json*")}
    heard = _Heard()
    first, second = run(tmp_path / "a", heard)
    assert first.reused
    assert not second.reused
    assert {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in done.glob("*.json*")} == before
    assert min(line["round"] for line in heard.lines) > 2, "the second one began anew"
    for found, expected in zip((first, second), run(tmp_path / "b", cluster=None), strict=True):
        assert (found.directory / "metrics.jsonl").read_bytes() == (expected.directory / "metrics.jsonl").read_bytes()
        assert len((found.directory / "timings.jsonl").read_text().splitlines()) == 6, "a round was trained twice"


def test_a_wrong_request_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="cohort=99: there are only 5 training clients"):
        run_batch(jobs_in(tmp_path, ["fedavg"], cohort=99), pages=False, cluster="local")
    with pytest.raises(RequestError, match="give one of them"):
        run_batch(jobs_in(tmp_path, ["fedavg"], engine="ray"), pages=False, cluster="local")


def test_a_folder_that_is_not_shared_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The marker lies somewhere else than where the worker looks, as on another node."""
    monkeypatch.setattr(_ray_crew, "_marked", lambda folders: [tmp_path / "elsewhere" / ".cluster-x"])
    with pytest.raises(RequestError, match=r"elsewhere: not the same folder on node .*a file system all nodes share"):
        run_batch(jobs_in(tmp_path, ["fedavg"]), pages=False, cluster="local")


def test_interrupted_it_can_go_on_and_leaves_no_process(tmp_path: Path) -> None:
    words = [
        "compare", "data=fl60", "data.clients=6", "methods=fedavg", "seeds=0", "rounds=100000", f"out={tmp_path}",
        "--cluster", "local", "--workers", "1",
    ]  # fmt: skip
    command = subprocess.Popen(
        [sys.executable, "-m", "panacea", *words], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    wait_for_first_round(tmp_path)
    os.killpg(command.pid, signal.SIGINT)  # as a terminal does
    _, said = command.communicate(timeout=120)
    assert command.returncode == 130
    assert said.splitlines()[-1].startswith("stopped: interrupted; 0 of 1 runs are done")
    assert list(tmp_path.glob("fl60-*/checkpoint/*"))
    deadline = time.monotonic() + 60
    while left := _session_of(command.pid):
        assert time.monotonic() < deadline, left
        time.sleep(0.2)


def _session_of(leader: int) -> list[str]:
    """Commands of the processes that a command started and left."""
    listed = subprocess.run(["ps", "-eo", "sid=,args="], capture_output=True, text=True, check=True).stdout
    rows = (line.split(None, 1) for line in listed.splitlines())
    return [row[1] for row in rows if len(row) == 2 and row[0] == str(leader)]
