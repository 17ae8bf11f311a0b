"""A client's supervisor: keeps a SuperNode and a worker running, and starts them again when one of them dies."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from panacea.core.files import write_atomically
from panacea.deploy.deployment import read_connection
from panacea.deploy.flower_control import end_session, why_unreachable
from panacea.deploy.processes import Child, flower_environment, free_port, hold, program, stop_all
from panacea.deploy.security import check_credentials
from panacea.deploy.site import open_site

__all__ = ["NodeKeeper"]

_LONGEST = 30.0  # seconds between two attempts to connect
_STEADY = 60.0  # seconds after which a connection counts as good, and waits are short again
_PATIENCE = 60  # seconds after which a SuperNode gives up on a server that does not answer; it is then started anew
_SILENT = 8.0  # seconds without a word from the SuperNode after which the server is asked what is wrong
_CONNECTED = re.compile(r"SuperNode ID: (\d+)")
_REFUSED = re.compile(r"Failed to initialize the connection to the SuperLink\.\s*(.*)")


class NodeKeeper:
    """Use as a context: inside, call `tick` every second or so; on leaving, everything it started is ended.

    Attributes:
        name: the client's.
        state: `starting`, `connected` or `waiting`, and why.
        worker: the module that answers, and what it is given before an address and a process number.
    """

    worker: tuple[str, ...] = ("panacea.deploy.flower_worker",)

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.site = open_site(self.folder)
        self.name = self.site.name
        self.connection = read_connection(self.folder)
        self.home = self.folder / "flower"
        self.state = "starting"
        self._children: list[Child] = []
        self._wait, self._not_before, self._started, self._asked, self._read = 1.0, 0.0, 0.0, 0.0, 0

    def __enter__(self) -> NodeKeeper:
        if not self.connection.insecure:
            check_credentials(self.folder / "key", self.folder / "ca.crt")
        self.home.mkdir(exist_ok=True)
        self._lock = hold(self.home, f"{self.folder}: this client")
        self._end_old_session()
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.ask()
        self.finish()

    def ask(self) -> None:
        """Ask the processes to end; several clients end faster if all are asked first."""
        for child in self._children:
            child.ask()

    def finish(self) -> None:
        """End them."""
        clean = bool(self._children) and self._children[0].alive
        stop_all(self._children)
        if clean and self._children[0].process.returncode == 0:
            self._session.unlink(missing_ok=True)  # it said good-bye itself
        with contextlib.suppress(OSError):
            os.close(self._lock)

    @property
    def _session(self) -> Path:
        return self.home / "node-id"

    def _note(self, state: str) -> None:
        if state != self.state:
            self.state = state
            with (self.home / "client.log").open("a", encoding="utf-8") as file:
                file.write(f"{datetime.now(UTC).isoformat(timespec='seconds')} {self.name}: {state}\n")

    def _start(self) -> None:
        address = f"127.0.0.1:{free_port()}"
        environment = flower_environment(self.home, PANACEA_SITE=str(self.folder))
        host, _, port = address.partition(":")
        node = [
            program("flower-supernode"), "--superlink", self.connection.server, "--host", host, "--port", port,
            "--isolation", "process", "--max-wait-time", str(_PATIENCE),
        ]  # fmt: skip
        if self.connection.insecure:
            node.append("--insecure")
        else:
            node += ["--root-certificates", str(self.folder / "ca.crt")]
            node += ["--auth-supernode-private-key", str(self.folder / "key")]
        worker = [sys.executable, "-m", *self.worker, address, str(os.getpid())]
        log = self.home / "supernode.log"
        self._read = log.stat().st_size if log.exists() else 0
        self._children = [
            Child("SuperNode", node, environment, log),
            Child("worker", worker, environment, self.home / "worker.log"),
        ]
        self._started = self._asked = time.monotonic()
        if not self.state.startswith("starting"):
            self._note("starting")

    def _end_old_session(self) -> None:
        """A SuperNode that was killed is still believed to be online: say that it is not, or its successor waits."""
        if self.connection.insecure or not self._session.exists():
            return
        words = self._session.read_text(encoding="ascii").strip()
        if words.isdigit():
            end_session(self.connection.server, self.folder / "ca.crt", self.folder / "key", int(words))
        self._session.unlink(missing_ok=True)

    def tick(self) -> None:
        """Read what the SuperNode says, and see to what died."""
        if time.monotonic() < self._not_before:
            return
        if not self._children:
            self._end_old_session()
            self._start()
            return
        why = self._listen()
        dead = next((child for child in self._children if not child.alive), None)
        if dead is not None:
            if time.monotonic() - self._started > _STEADY:
                self._wait = 1.0
            self._note(f"waiting {self._wait:.0f} s: the {dead.name} ended{': ' + why if why else ''}")
            stop_all(self._children)
            self._children = []
            self._not_before = time.monotonic() + self._wait
            self._wait = min(_LONGEST, 2 * self._wait)
        elif self._session.exists():
            self._note("connected")
        elif time.monotonic() > self._asked + _SILENT:
            self._asked = time.monotonic() + _PATIENCE
            root = None if self.connection.insecure else self.folder / "ca.crt"
            if why := why_unreachable(self.connection.server, root):
                self._note(f"starting: {why}")

    def _listen(self) -> str:
        """New lines of the SuperNode's output: its node id, or why it was refused."""
        with self._children[0].log.open("rb") as file:
            file.seek(self._read)
            text = file.read().decode(errors="replace")
        connected = _CONNECTED.search(text)
        if connected and not self._session.exists():
            write_atomically(self._session, connected[1] + "\n")
        refused = _REFUSED.search(text)
        return " ".join(refused[1].split()) if refused else ""
