"""A private Ray's folder, a cluster that the user has started, and the speed of `engine=ray`."""

from __future__ import annotations

import dataclasses
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from panacea.cli import run_command_line
from panacea.engines import ray_folder, ray_session
from panacea.engines.ray_folder import PrivateFolder
from panacea.engines.ray_session import RaySession
from panacea.errors import RequestError
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
