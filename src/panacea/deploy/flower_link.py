"""The server's supervisor: keeps a SuperLink running, registers clients, and starts the run again if it died."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from panacea.deploy.deployment import Deployment
from panacea.deploy.deployment_files import folder_name
from panacea.deploy.flower_control import connect, wait_until_ready
from panacea.deploy.joining import ask_to_join
from panacea.deploy.processes import Child, flower_environment, hold, program
from panacea.deploy.roster import Newcomer
from panacea.deploy.security import pem_fingerprint, read_public_key
from panacea.deploy.wire import plain
from panacea.errors import PanaceaError, RunFailure

__all__ = ["LinkKeeper"]

_READY = 120.0  # seconds a SuperLink may take to answer
_LONGEST = 60.0  # seconds between two attempts to start something that keeps failing
_MOST_RESTARTS = 8  # of a run's process without a new round
_WORDS = 240  # characters of a line of the SuperLink's
_REFUSAL = re.compile(r'\[/v1/fleet/\S+\]\[ApiError:\d+\].*|"POST /v1/fleet/\S+ HTTP/[\d.]+" 40[13]\b|Invalid HTTP.*')
_OVER = "ApiError:2007"  # the run is over


class LinkKeeper:
    """Use as a context: inside, call `tick` every second or so; on leaving, everything it started is ended."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.settings = deployment.settings
        self.link: Child | None = None
        self.submitted: int | None = None
        self._wait, self._not_before, self._looked = 1.0, 0.0, 0.0
        self._done, self._restarts, self._read, self._late = -1, 0, 0, 0

    def __enter__(self) -> LinkKeeper:
        """Raises `RequestError` if this deployment has a server already."""
        self.deployment.home.mkdir(parents=True, exist_ok=True)
        self._lock = hold(self.deployment.home, f"{self.deployment.folder}: this server")
        try:
            end_leftover(self.deployment)
            self._start()
        except BaseException:
            os.close(self._lock)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.link is not None:
            self.link.stop()
        end_leftover(self.deployment)
        self.deployment.note("server", "stopped")
        os.close(self._lock)

    def _start(self) -> None:
        """Start the SuperLink, wait for it, and register the clients' keys."""
        deployment, settings = self.deployment, self.settings
        command = [
            program("flower-superlink"), "--host", settings.host, "--port", str(settings.port),
            "--database", str(deployment.database), "--disable-runtime-dependency-installation",
        ]  # fmt: skip
        if settings.insecure:
            command.append("--insecure")
        else:
            command += [
                "--ssl-ca-certfile", str(deployment.authority), "--ssl-certfile", str(deployment.certificate),
                "--ssl-keyfile", str(deployment.certificate_key), "--enable-supernode-auth",
            ]  # fmt: skip
        environment = flower_environment(deployment.home, PANACEA_DEPLOYMENT=str(deployment.folder))
        log = deployment.logs / "superlink.log"
        self._read = log.stat().st_size if log.exists() else 0
        self.link = link = Child("SuperLink", command, environment, log)
        if not wait_until_ready(settings.address, deployment.root, _READY, lambda: link.alive):
            link.stop()
            raise RunFailure(f"the server did not start; {link.log} ends with: {link.last_words()}")
        self._stop_runs()
        if not settings.insecure:
            self.register()
        deployment.note("server", f"listens at {settings.address}")

    def register(self) -> None:
        """Bind every client's name to its key and the node id that goes with the key; other keys are let in no more."""
        deployment = self.deployment
        keys = {name: read_public_key(deployment.public_key(folder_name(name))) for name in deployment.read_nodes()}
        numbers = {}
        with connect(self.settings.address, deployment.root) as control:
            known = {node["public_key"]: node for node in control.nodes() if node["status"] != "unregistered"}
            for name, key in keys.items():
                numbers[name] = int(known.pop(key)["node_id"]) if key in known else control.register(key, name)
            for node in known.values():
                control.unregister(int(node["node_id"]))
                deployment.note("unregistered", f"node {node['node_id']}: its key is nobody's now")
        with deployment.changing_nodes() as nodes:
            for name, number in numbers.items():
                if name in nodes and nodes[name].get("node_id") != number:
                    nodes[name]["node_id"] = number
                    deployment.note("registered", f"'{name}', key {nodes[name]['fingerprint']}, node {number}")

    def tick(self) -> None:
        """See to what died, and to what was asked for meanwhile; what cannot be done now is tried again later."""
        if time.monotonic() < self._not_before:
            return
        try:
            self._look()
        except PanaceaError as error:
            self.deployment.note("server", str(error))
            self._later()

    def _look(self) -> None:
        deployment = self.deployment
        if self.link is None or not self.link.alive:
            if self.link is not None:
                self.link.signal(signal.SIGKILL)  # what it started: the run's process among them
                deployment.note("server", "SuperLink ended; it is started again")
            end_leftover(deployment)
            self._start()
            return
        self._copy_refusals()
        if not self.settings.insecure and any("node_id" not in n for n in deployment.read_nodes().values()):
            self.register()
        run = deployment.read_run()
        if run["state"] == "running" and not _runs(run["pid"]):
            self._restart(run)
        elif run["state"] == "wanted":
            self._submit()
        elif run["state"] == "running" and run["directory"]:
            if _progress(run) != self._done:  # all is well: the next trouble is the first again
                self._done, self._wait, self._restarts = _progress(run), 1.0, 0
            self._admit(Path(run["directory"]))

    def _restart(self, run: dict[str, Any]) -> None:
        """The run's process is gone: another goes on from the checkpoint, unless that never helped."""
        self._restarts += 1
        self._stop_runs()
        if self._restarts > _MOST_RESTARTS:
            detail = f"its process ended {self._restarts} times without a new round; {run['detail'] or 'see the logs'}"
            self.deployment.write_run(state="failed", pid=None, detail=detail)
            self.deployment.note("run", f"failed: {detail}")
            self._restarts = 0
            return
        self.deployment.note("run", "its process ended; it is started again from its checkpoint")
        self.deployment.write_run(state="wanted", pid=None)
        self._later()

    def _stop_runs(self) -> None:
        """Say that the run has ended: Flower would notice 40 s later, and clients that fetch an order wait for that."""
        self.submitted = None
        with suppress(RunFailure), connect(self.settings.address, self.deployment.root) as control:
            control.stop_runs()

    def _copy_refusals(self) -> None:
        """Who was refused by the SuperLink itself, into our own log."""
        assert self.link is not None
        with self.link.log.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.decode(errors="replace").splitlines():
            if not (found := _REFUSAL.search(line)):
                continue
            if _OVER in line:  # a client asks for more of a run that was started again; a line of the request follows
                self._late += 1
            elif self._late and found[0].endswith('" 403'):
                self._late -= 1
            else:
                self.deployment.note("refused", self._why(found[0]))

    def _why(self, line: str) -> str:
        """A refusal in our own words, with the key's fingerprint instead of the key."""
        key = pem_fingerprint(line.replace("\\n", "\n"))
        if "ApiError:2001" in line:
            return "a SuperNode that brings no registered key"
        if "ApiError:2004" not in line or not key:
            return plain(line, _WORDS)
        holder = next((n for n, entry in self.deployment.read_nodes().items() if entry["fingerprint"] == key), None)
        if holder is None:
            return f"a key that nobody registered, {key}"
        return f"the key of '{plain(holder)}' a second time: its first session has not ended ({key})"

    def _admit(self, directory: Path) -> None:
        """Ask the run to take in clients that were added since it began, as soon as they are connected."""
        waiting = {name: entry for name, entry in self.deployment.read_nodes().items() if "joins" in entry}
        if not waiting or time.monotonic() < self._looked + 5:
            return
        self._looked = time.monotonic()
        with connect(self.settings.address, self.deployment.root) as control:
            online = {node["node_id"] for node in control.nodes() if node["status"] == "online"}
        for name, entry in waiting.items():
            if entry.get("node_id") in online:
                ask_to_join(directory, Newcomer.model_validate(entry["joins"]))
                with self.deployment.changing_nodes() as nodes:
                    nodes[name].pop("joins", None)
                self.deployment.note("run", f"'{name}' asks to join")

    def _later(self) -> None:
        self._not_before = time.monotonic() + self._wait
        self._wait = min(_LONGEST, 2 * self._wait)

    def _submit(self) -> None:
        """Start the run, once; and notice if it never comes to its first line."""
        if self.submitted is not None and time.monotonic() < self._looked + 5:
            return
        self._looked = time.monotonic()
        with connect(self.settings.address, self.deployment.root) as control:
            if self.submitted is None:
                self.submitted = control.submit(self.deployment.app)
                self.deployment.note("run", f"submitted, Flower's number {self.submitted}")
                return
            status = control.status(self.submitted)
        if status.startswith("finished") and self.deployment.read_run()["state"] == "wanted":
            self.deployment.write_run(state="failed", detail=f"Flower could not start it ({status})")


def _runs(pid: int | None) -> bool:
    """Whether a process runs and is the run's: numbers are used again."""
    if pid is None:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return False
    if sys.platform != "linux":
        return True
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return b"serverapp" in words and state != "Z"


def _progress(run: dict[str, Any]) -> int:
    """Grows with every round that is done."""
    with suppress(OSError):
        return (Path(run["directory"] or "nowhere") / "timings.jsonl").stat().st_size
    return 0


def end_leftover(deployment: Deployment) -> None:
    """End the run's process of a server that is gone: every round is on disk, and its successor goes on from there."""
    run = deployment.read_run()
    if run["state"] != "running":
        return
    if _runs(run["pid"]):
        os.kill(run["pid"], signal.SIGKILL)
        deployment.note("run", f"process {run['pid']} ended")
    deployment.write_run(state="wanted", pid=None)
