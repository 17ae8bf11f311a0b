"""A federation for tests: in its own thread, with everything in reach of a kill."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from panacea.cli.federating_setup import deploy_plan, federated_config
from panacea.core.files import read_lines
from panacea.deploy.deployment import Deployment, ServerSettings
from panacea.deploy.deployment_files import folder_name
from panacea.deploy.flower_link import LinkKeeper
from panacea.deploy.flower_node import NodeKeeper
from panacea.deploy.plan import plan_from_data
from panacea.deploy.processes import free_port

KEYS = ["data=fl60", "method=fedavg", "local_steps=2", "seed=0", "novel=0", "eval_every=100"]


def request(*keys: str) -> list[str]:
    """The usual request with some keys of its own."""
    return [f"{key}={value}" for key, value in dict(word.split("=", 1) for word in (*KEYS, *keys)).items()]


def write_deployment(folder: Path, *keys: str, clients: int = 6, **settings: Any) -> Deployment:
    """A deployment on this machine whose server has a port of its own."""
    port = free_port()
    given = {"public": f"127.0.0.1:{port}", "port": port, "deadline": 40.0, "pause": 1.0, **settings}
    config = federated_config(request(f"out={folder / 'runs'}", *keys), clients)
    return deploy_plan(folder / "deployment", plan_from_data(config), ServerSettings(**given))


@contextmanager
def proxied(deployment: Deployment) -> Iterator[None]:
    """A real nginx with the deployment's own configuration; skips the test where there is none."""
    nginx = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
    if nginx is None:
        pytest.skip("nginx is not installed")
    process = subprocess.Popen([nginx, "-c", str(deployment.proxy), "-g", "daemon off;"])
    try:
        yield
    finally:
        process.terminate()
        process.wait(10)


def row(text: str) -> None:
    """Shown with `pytest -s`, whatever else a test captures."""
    assert sys.__stdout__ is not None
    sys.__stdout__.write(f"\n{text}\n")
    sys.__stdout__.flush()


def cost(stage: Stage, what: str) -> None:
    """A row of the table in the docs: what a quiet round takes, and what the whole run lost."""
    usual = min(stage.seconds)  # a liar may be asked in most rounds, and then the middle one is not a quiet one
    lost = sum(stage.seconds) - usual * len(stage.seconds)
    row(f"| {what} | {usual:.1f} s a round | {lost:.0f} s lost | {max(stage.seconds):.1f} s the longest |")


def processes_of(folder: Path) -> list[int]:
    """Every process that was started for a folder: its name is among the words or the environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
                dead = (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
            except OSError:
                continue
            if str(folder).encode() in words and not dead:
                found.append(int(entry.name))
    return found


class Stage:
    """Keeps server and clients going until it is left; the test does its harm meanwhile."""

    def __init__(self, deployment: Deployment, only: tuple[str, ...] | None = None) -> None:
        self.deployment = deployment
        self.names = list(deployment.read_nodes()) if only is None else list(only)
        self.nodes: dict[str, NodeKeeper] = {}
        self.workers: dict[str, tuple[str, ...]] = {}
        self._stop, self._lock = threading.Event(), threading.Lock()
        self.error: BaseException | None = None

    def __enter__(self) -> Stage:
        self.link = LinkKeeper(self.deployment)
        self.link.__enter__()
        for name in self.names:
            self.start(name)
        self._thread = threading.Thread(target=self._tick, daemon=True)
        self._thread.start()
        return self

    def start(self, name: str) -> NodeKeeper:
        node = NodeKeeper(self.deployment.client(folder_name(name)))
        node.worker = self.workers.get(name, node.worker)
        node.__enter__()
        self.nodes[name] = node
        return node

    def _tick(self) -> None:
        while not self._stop.wait(0.2):
            with self._lock:
                try:
                    self.link.tick()
                    for node in self.nodes.values():
                        node.tick()
                except BaseException as error:
                    self.error = error
                    return

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        for node in self.nodes.values():
            node.ask()
        for node in self.nodes.values():
            node.finish()
        self.link.__exit__(None, None, None)

    # --- what a test does and asks ------------------------------------------------------------------------------

    def submit(self) -> None:
        self.deployment.write_run(state="wanted")

    def wait(self, ready: Callable[[], Any], seconds: float = 240.0) -> Any:
        """Wait until something is true; fails with everything that is known."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.error is not None:
                raise self.error
            if value := ready():
                return value
            time.sleep(0.2)
        raise AssertionError(f"not in {seconds} s: {self.state}; {[n.state for n in self.nodes.values()]}; {self.log}")

    @property
    def state(self) -> dict[str, Any]:
        return self.deployment.read_run()

    def finished(self) -> bool:
        assert self.state["state"] != "failed", self.state["detail"]
        return bool(self.state["state"] == "finished")

    def round(self) -> int:
        """The last round that is done."""
        lines = read_lines(Path(self.state["directory"] or "nowhere") / "timings.jsonl")
        return int(lines[-1]["round"]) if lines else 0

    @property
    def seconds(self) -> list[float]:
        """Of every round's training."""
        return [line["train"] for line in read_lines(Path(self.state["directory"]) / "timings.jsonl")]

    @property
    def log(self) -> list[dict[str, Any]]:
        """`federation.jsonl`."""
        return read_lines(Path(self.state["directory"] or "nowhere") / "federation.jsonl")

    def said(self, client: str, words: str) -> bool:
        """Whether the log has a line about a client with these words."""
        return any(line["client"] == client and words in f"{line['event']} {line['detail']}" for line in self.log)

    def kill(self, name: str) -> None:
        """kill -9 of everything a client runs."""
        with self._lock:
            for child in self.nodes[name]._children:
                child.signal(signal.SIGKILL)
