"""The server's supervisor: keeps a SuperLink running, registers clients, and starts the run again if it died."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from types import TracebackType

from panacea.deploy.deployment import Deployment
from panacea.deploy.deployment_files import folder_name
from panacea.deploy.flower_control import connect, wait_until_ready
from panacea.deploy.joining import ask_to_join
from panacea.deploy.processes import Child, flower_environment, program
from panacea.deploy.roster import Newcomer
from panacea.deploy.security import read_public_key
from panacea.errors import RunFailure

__all__ = ["LinkKeeper"]

_READY = 120.0  # seconds a SuperLink may take to answer
_LONGEST = 60.0  # seconds between two attempts to start something that keeps failing


class LinkKeeper:
    """Use as a context: inside, call `tick` every second or so; on leaving, everything it started is ended."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.settings = deployment.settings
        self.link: Child | None = None
        self.submitted: int | None = None
        self._wait, self._not_before, self._looked = 1.0, 0.0, 0.0

    def __enter__(self) -> LinkKeeper:
        end_leftover(self.deployment)
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.link is not None:
            self.link.stop()
        end_leftover(self.deployment)
        self.deployment.note("server", "stopped")

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
        self.link = link = Child("SuperLink", command, environment, deployment.logs / "superlink.log")
        self.submitted = None
        if not wait_until_ready(settings.address, deployment.root, _READY, lambda: link.alive):
            link.stop()
            raise RunFailure(f"the server did not start; {link.log} ends with: {link.last_words()}")
        if not settings.insecure:
            self.register()
        deployment.note("server", f"listens at {settings.address}")

    def register(self) -> None:
        """Bind every client's name to its key and the node id that goes with the key."""
        deployment = self.deployment
        nodes = deployment.read_nodes()
        with connect(self.settings.address, deployment.root) as control:
            known = {node["public_key"]: int(node["node_id"]) for node in control.nodes()}
            for name, entry in nodes.items():
                key = read_public_key(deployment.public_key(folder_name(name)))
                number = known.get(key)
                if number is None:
                    number = control.register(key, name)
                    deployment.note("registered", f"'{name}', key {entry['fingerprint']}, node {number}")
                entry["node_id"] = number
        deployment.write_nodes(nodes)

    def tick(self) -> None:
        """See to what died, and to what was asked for meanwhile."""
        deployment = self.deployment
        if time.monotonic() < self._not_before:
            return
        if self.link is None or not self.link.alive:
            if self.link is not None:
                self.link.signal(signal.SIGKILL)  # what it started: the run's process among them
                deployment.note("server", "SuperLink ended; it is started again")
            end_leftover(deployment)
            self._start_again()
            return
        if not self.settings.insecure and any("node_id" not in n for n in deployment.read_nodes().values()):
            self.register()
        run = deployment.read_run()
        if run["state"] == "running" and not _runs(run["pid"]):
            deployment.note("run", "its process ended; it is started again from its checkpoint")
            deployment.write_run(state="wanted", pid=None)
            self.submitted = None
            self._later()
        elif run["state"] == "wanted":
            self._submit()
        elif run["state"] == "running" and run["directory"]:
            self._admit(Path(run["directory"]))

    def _admit(self, directory: Path) -> None:
        """Ask the run to take in clients that were added since it began, as soon as they are connected."""
        nodes = self.deployment.read_nodes()
        waiting = {name: entry for name, entry in nodes.items() if "joins" in entry}
        if not waiting or time.monotonic() < self._looked + 5:
            return
        self._looked = time.monotonic()
        with connect(self.settings.address, self.deployment.root) as control:
            online = {node["node_id"] for node in control.nodes() if node["status"] == "online"}
        for name, entry in waiting.items():
            if entry.get("node_id") in online:
                ask_to_join(directory, Newcomer.model_validate(entry.pop("joins")))
                self.deployment.write_nodes(nodes)
                self.deployment.note("run", f"'{name}' asks to join")

    def _start_again(self) -> None:
        run = self.deployment.read_run()
        if run["state"] == "running":
            self.deployment.write_run(state="wanted", pid=None)
        try:
            self._start()
        except RunFailure as error:
            self.deployment.note("server", str(error))
            self._later()

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


def end_leftover(deployment: Deployment) -> None:
    """End the run's process of a server that is gone: every round is on disk, and its successor goes on from there."""
    run = deployment.read_run()
    if run["state"] != "running":
        return
    if _runs(run["pid"]):
        os.kill(run["pid"], signal.SIGKILL)
        deployment.note("run", f"process {run['pid']} ended")
    deployment.write_run(state="wanted", pid=None)
