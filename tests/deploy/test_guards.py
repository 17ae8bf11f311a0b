"""What is switched on when Flower's processes are started, and what the worker does with what it is sent."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs the extra federation")

from flwr.supercore.constant import TaskType
from flwr.supercore.superexec import run_superexec as superexec
from flwr.supercore.superexec.executor.types import ExecutionSpec
from flwr.supernode.runtime import run_clientapp as clientapp

from panacea.cli import run_command_line
from panacea.deploy import flower_link, flower_node, flower_worker
from panacea.deploy.deployment import Deployment
from panacea.deploy.flower_client import app
from panacea.deploy.flower_control import Control
from panacea.deploy.flower_link import LinkKeeper, end_leftover
from panacea.deploy.flower_node import NodeKeeper
from panacea.deploy.flower_worker import ForkingExecutor


def init(folder: Path, *words: str) -> Deployment:
    keys = ["data=fl60", "method=fedavg", "rounds=2", "novel=0", "--clients", "2", "--quiet"]
    assert run_command_line(["federate", "init", str(folder), *keys, *words]) == 0
    return Deployment(folder)


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    return init(tmp_path / "fed")


class Started:
    """In place of processes: what was asked for, by name."""

    def __init__(self) -> None:
        self.commands: dict[str, list[str]] = {}
        self.environments: dict[str, dict[str, str]] = {}

    def __call__(self, name: str, command: list[str], environment: dict[str, str], log: Path) -> Any:
        self.commands[name], self.environments[name] = command, environment
        log.parent.mkdir(parents=True, exist_ok=True)
        log.touch()
        process = SimpleNamespace(returncode=0, pid=0)
        nothing = lambda *_: None  # noqa: E731
        return SimpleNamespace(
            name=name, log=log, alive=True, ask=nothing, finish=nothing, stop=nothing, signal=nothing, process=process
        )

    def stop_runs(self) -> None:
        self.commands["stopped"] = []

    def pairs(self, name: str) -> set[tuple[str, str]]:
        """Words with those behind them: options and their values."""
        return set(zip(self.commands[name], self.commands[name][1:], strict=False))


QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}


@contextmanager
def a_server(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> Any:
    started = Started()
    monkeypatch.setattr(flower_link, "Child", started)
    monkeypatch.setattr(flower_link, "wait_until_ready", lambda *_: True)
    monkeypatch.setattr(LinkKeeper, "register", lambda self: started.commands.setdefault("registered", []))
    monkeypatch.setattr(flower_link, "connect", lambda *_: nullcontext(started))
    with LinkKeeper(deployment):
        yield started


def test_a_server_is_started_with_its_locks_on(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    with a_server(deployment, monkeypatch) as started:
        command = started.commands["SuperLink"]
        assert {"--enable-supernode-auth", "--disable-runtime-dependency-installation"} <= set(command)
        assert "--insecure" not in command
        assert started.pairs("SuperLink") >= {
            ("--host", "127.0.0.1"), ("--ssl-certfile", str(deployment.certificate)),
            ("--ssl-keyfile", str(deployment.certificate_key)), ("--ssl-ca-certfile", str(deployment.authority)),
        }  # fmt: skip
        assert QUIET.items() <= started.environments["SuperLink"].items()
        assert started.environments["SuperLink"]["FLWR_HOME"] == str(deployment.home)
        assert "registered" in started.commands
        assert "stopped" in started.commands  # what a SuperLink that was killed believes to be running


def test_an_insecure_server_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with a_server(init(tmp_path / "fed", "--insecure"), monkeypatch) as started:
        assert "--insecure" in started.commands["SuperLink"]
        assert not [word for word in started.commands["SuperLink"] if "ssl" in word or "auth" in word]
        assert "registered" not in started.commands


def test_a_client_is_started_with_its_papers(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    started, ended = Started(), list[Any]()
    monkeypatch.setattr(flower_node, "Child", started)
    monkeypatch.setattr(flower_node, "end_session", lambda *given: ended.append(given))
    folder = deployment.client("0").resolve()
    (folder / "flower").mkdir()
    (folder / "flower" / "node-id").write_text("77\n")  # of a session that was never closed
    with NodeKeeper(folder):
        assert ended == [("localhost:9443", folder / "ca.crt", folder / "key", 77)]
        assert not (folder / "flower" / "node-id").exists()
        assert "--insecure" not in started.commands["SuperNode"]
        assert started.pairs("SuperNode") >= {
            ("--root-certificates", str(folder / "ca.crt")), ("--auth-supernode-private-key", str(folder / "key")),
            ("--isolation", "process"), ("--host", "127.0.0.1"), ("--superlink", "localhost:9443"),
        }  # fmt: skip
        for name in ("SuperNode", "worker"):
            assert QUIET.items() <= started.environments[name].items()
            assert started.environments[name]["PANACEA_SITE"] == str(folder)
    assert len(ended) == 1


def test_the_worker_answers_with_what_is_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever archive the server sends, it is neither unpacked nor imported."""
    for name in ("install_from_fab", "get_project_dir", "get_load_client_app_fn"):
        monkeypatch.setattr(clientapp, name, getattr(clientapp, name))  # put back at the end
    monkeypatch.setattr(superexec, "get_executor", superexec.get_executor)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    flower_worker._use_installed_app()
    assert clientapp.install_from_fab(b"not even an archive", skip_prompt=True) == Path()
    assert clientapp.get_project_dir("evil/app", "1.0.0", "hash") == Path()
    load = clientapp.get_load_client_app_fn(default_app_ref="evil:app", app_path=str(tmp_path), multi_app=True)
    assert load("evil/app", "1.0.0", "hash") is app
    assert list(tmp_path.iterdir()) == []
    assert isinstance(superexec.get_executor("subprocess"), ForkingExecutor)


def test_the_worker_does_nothing_but_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fork", lambda: pytest.fail("it must not start anything"))
    executor = ForkingExecutor()
    assert executor.get_eligible_capacity(set(TaskType)) == ({TaskType.CLIENT_APP}, set())
    for kind in set(TaskType) - {TaskType.CLIENT_APP}:
        spec = ExecutionSpec(kind, "127.0.0.1:1", "token", True, None, False, None, False, 1)
        assert "is not for this client" in str(executor.launch(spec))


def test_the_run_that_was_left_is_ended_and_nobody_else(deployment: Deployment) -> None:
    """A process number in a file may be anybody's by now."""
    wait = "import time; time.sleep(60)"
    ours, anybody = (subprocess.Popen([sys.executable, "-c", wait, word]) for word in ("serverapp", "other"))
    try:
        time.sleep(0.3)
        for process in (ours, anybody):
            deployment.write_run(state="running", pid=process.pid)
            end_leftover(deployment)
            assert deployment.read_run()["state"] == "wanted"
        assert ours.wait(10) == -9
        assert anybody.poll() is None
    finally:
        for process in (ours, anybody):
            process.kill()
            process.wait()


def test_the_proxy_knows_whom_it_speaks_to(deployment: Deployment) -> None:
    text = deployment.proxy.read_text()
    assert "proxy_ssl_verify on;" in text
    assert f'proxy_ssl_trusted_certificate "{deployment.authority.resolve()}";' in text
    assert "ssl_protocols TLSv1.2 TLSv1.3;" in text
    assert text.count("proxy_pass") == text.count("location /v1/fleet/") == 1


def test_only_runs_that_are_not_over_are_ended() -> None:
    runs = {
        n: SimpleNamespace(status=SimpleNamespace(status=s)) for n, s in enumerate(("finished", "running", "pending"))
    }
    ended: list[int] = []
    client = SimpleNamespace(
        ListRuns=lambda request: SimpleNamespace(run_dict=runs),
        StopRun=lambda request: ended.append(request.run_id),
    )
    Control(client).stop_runs()
    assert ended == [1, 2]
