"""A private Ray's folder, a cluster that the user has started, and the speed of `engine=ray`."""

from __future__ import annotations

import dataclasses
import importlib.util
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from panacea.cli import run_command_line
from panacea.engines import ray_folder, ray_pool, ray_session
from panacea.engines.ray_folder import PrivateFolder, in_turn
from panacea.engines.ray_pool import Cluster, RayPool
from panacea.engines.ray_session import RaySession
from panacea.errors import RequestError, RunFailure
from panacea.experiment.speed import workloads
from tests.cli.printed import said

pytestmark = pytest.mark.network


class TestFolder:
    @pytest.fixture(autouse=True)
    def _elsewhere(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ray_folder, "_BASE", tmp_path)

    def test_what_a_killed_process_left_is_removed_by_the_next(self, tmp_path: Path) -> None:
        left, empty, other = (tmp_path / name for name in ("panacea-ray-a", "panacea-ray-b", "ray"))
        for folder in (left, other):
            (folder / "logs").mkdir(parents=True)
        empty.mkdir()
        PrivateFolder().remove()
        assert not left.exists()
        assert empty.exists(), "its owner may be about to lock it"
        assert other.exists()

    def test_folders_of_the_living_stay(self) -> None:
        first = PrivateFolder()
        (first.path / "logs").mkdir()
        second = PrivateFolder()
        assert (first.path / "logs").exists()
        for one in (first, second):
            one.remove()
            assert not one.path.exists()


class _Busy:
    """Stands for Ray on a machine where the first tries to start it fail; each leaves a process behind."""

    def __init__(self, failures: int, error: type[BaseException] = Exception) -> None:
        self.failures, self.error, self.folders, self.left = failures, error, list[Path](), list[Any]()

    def init(self, _temp_dir: str, **options: Any) -> None:
        self.folders.append(Path(_temp_dir))
        if len(self.folders) <= self.failures:
            words = [sys.executable, "-c", "import time; print(flush=True); time.sleep(60)", _temp_dir]
            self.left.append(subprocess.Popen(words, stdout=subprocess.PIPE))
            self.left[-1].stdout.readline()  # it is there
            raise self.error("The node timed out. This could be anything.")

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 2}

    def shutdown(self) -> None:
        pass


class TestStart:
    @pytest.fixture(autouse=True)
    def _elsewhere(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ray_folder, "_BASE", tmp_path)

    def test_a_start_that_failed_is_tried_again_with_a_note_and_leaves_nothing(self, tmp_path: Path) -> None:
        busy, notes = _Busy(2), list[str]()
        folder = ray_session._started(busy, 2, notes.append)
        assert notes == [
            f"Ray did not start (The node timed out), often because the machine is busy; try {number} of 3"
            for number in (2, 3)
        ]
        assert list(tmp_path.iterdir()) == [folder.path] == busy.folders[2:]
        assert [process.wait(timeout=10) for process in busy.left] == [-9, -9]
        folder.remove()

    def test_after_three_tries_it_is_one_line(self, tmp_path: Path) -> None:
        busy = _Busy(99)
        with pytest.raises(RunFailure, match=r"^Ray does not start here \(The node timed out\); 3 tries$"):
            ray_session._started(busy, 2, lambda note: None)
        assert len(busy.folders) == 3
        assert [process.wait(timeout=10) for process in busy.left] == [-9, -9, -9]
        assert not list(tmp_path.iterdir())

    def test_ctrl_c_is_not_tried_again(self, tmp_path: Path) -> None:
        busy = _Busy(1, KeyboardInterrupt)
        with pytest.raises(KeyboardInterrupt):
            ray_session._started(busy, 2, lambda note: None)
        assert [process.wait(timeout=10) for process in busy.left] == [-9]
        assert not list(tmp_path.iterdir())

    def test_one_starts_at_a_time_but_nobody_waits_for_ever(self) -> None:
        inside, leave = threading.Event(), threading.Event()

        def start() -> None:
            with in_turn(60):
                inside.set()
                leave.wait(30)

        threading.Thread(target=start, daemon=True).start()
        assert inside.wait(30)
        began = time.monotonic()
        with in_turn(0.3):
            assert time.monotonic() - began >= 0.3
        threading.Timer(0.3, leave.set).start()
        with in_turn(60):
            assert leave.is_set()


def test_two_private_rays_start_at_the_same_time() -> None:
    """As two commands do that are typed at once; each has its own."""
    words = "from panacea.engines.ray_session import connect; s = connect(None, 'here', 1); print(s.cpus); s.release()"
    both = [subprocess.Popen([sys.executable, "-c", words], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [one.communicate(timeout=240)[0] for one in both] == ["1\n", "1\n"]
    assert [one.returncode for one in both] == [0, 0]


class _Full:
    """Stands for a cluster whose other machine has died: an actor that asks for a CPU never begins."""

    def __init__(self) -> None:
        self.asked, self.killed = list[int](), list[int]()
        self.exceptions = SimpleNamespace(**dict.fromkeys(_FATAL, KeyError))

    def remote(self, kind: type) -> Any:
        def options(num_cpus: int, max_restarts: int) -> Any:
            return SimpleNamespace(remote=lambda: self.actor(num_cpus))

        return SimpleNamespace(options=options)

    def actor(self, cpus: int) -> Any:
        self.asked.append(cpus)
        return SimpleNamespace(cpus=cpus, process=SimpleNamespace(remote=lambda: cpus))

    def wait(self, answers: list[int], **options: Any) -> tuple[list[int], list[int]]:
        return [one for one in answers if not one], [one for one in answers if one]

    def get(self, answer: int) -> int:
        assert answer == 0, "it would wait for ever"
        return 4711

    def kill(self, actor: Any) -> None:
        self.killed.append(actor.cpus)


_FATAL = ("RayActorError", "NodeDiedError", "WorkerCrashedError", "ObjectLostError")


def test_where_a_machine_has_died_with_its_room_the_new_worker_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    full, notes = _Full(), list[str]()
    session = SimpleNamespace(ray=full, private=False, cpus=2, workers={})
    monkeypatch.setattr(ray_pool, "connect", lambda *arguments: session)
    worker = RayPool(Cluster(workers=2, address="auto"), notes.append)._successor(notes.append)
    assert worker.process == 4711
    assert (full.asked, full.killed) == ([1, 0], [1])
    assert notes == ["the cluster has no room for a new Ray worker; it shares the CPUs of the others"]


def test_an_address_where_nobody_listens_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ray_session, "_current", None)  # of other tests
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens there, and nobody else can begin to
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for words in (
            ["run", "method=fedavg", "engine=ray", f"engine.address={address}"],
            ["compare", "methods=fedavg", "seeds=0", "--cluster", address],
        ):
            assert run_command_line([*words, "data=fl60", "rounds=1"]) == 2
            (line,) = capsys.readouterr().err.splitlines()
            assert f"={address}: nobody answers there" in line


@pytest.mark.parametrize(
    "words",
    [
        ["compare", "data=fl60", "methods=fedavg", "seeds=0", "--cluster", "local"],
        ["sweep", "quick", "--cluster", "local"],
        ["reproduce", "panacea-table2", "--quick", "data=fl60", "methods=fedavg", "--cluster", "local", "--quiet"],
        ["run", "data=fl60", "method=fedavg", "engine=ray"],
        ["bench", "--quick", "--ray"],
    ],
    ids=lambda words: words[0],
)
def test_without_the_extra_it_is_one_line(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "ray" else real(name, *more))
    monkeypatch.chdir(tmp_path)
    assert run_command_line(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("needs Ray: pip install 'panacea-fl[cluster]'")


@pytest.mark.parametrize("address", ["", "nonsense", "127.0.0.1:"])
def test_what_is_no_address_is_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty one, too: it is a variable of a script that was not set, and no wish for a private Ray."""
    monkeypatch.setattr(ray_session, "_current", None)  # of other tests
    with pytest.raises(RequestError, match="give auto, local or host:port"):
        ray_session.connect(address, "--cluster")


def test_bench_measures_it_beside_the_others(
    ray_here: RaySession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tuple(dataclasses.replace(work, steps=2) for work in workloads._WORKLOADS)
    monkeypatch.setattr(workloads, "_WORKLOADS", made)
    users = ray_here.users
    words = ["bench", "--quick", "--only", "W1", "--repeats", "1", "--ray", "--device", "cpu", "--out", str(tmp_path)]
    found = said(words, capsys)["workloads"][0]["engines"]
    assert found["ray"]["agrees"] is True
    assert found["ray"]["ms"] > 0
    assert (tmp_path / "bench.png").exists()
    assert ray_here.users == users, "it lets go of the workers"


def test_who_is_not_ray_is_found_out_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_session, "_current", None)  # of other tests
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(RequestError, match="is not Ray"):
            ray_session.connect(f"127.0.0.1:{server.server_port}", "--cluster")
        server.shutdown()
