"""A deployment's folders: what `panacea federate init` writes and the server and clients read. Needs no Flower."""

from __future__ import annotations

import fcntl
import ipaddress
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from panacea.core.files import write_json
from panacea.deploy.serve import Patience
from panacea.deploy.yaml_file import read_keys
from panacea.errors import RequestError

__all__ = ["Connection", "Deployment", "ServerSettings", "is_loopback", "read_connection", "read_settings"]


def is_loopback(host: str) -> bool:
    """Whether a host is this machine itself.

    >>> is_loopback("localhost"), is_loopback("127.0.0.1"), is_loopback("10.0.0.1"), is_loopback("example.org")
    (True, True, False, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ServerSettings(_Settings):
    """`server.yaml`."""

    host: str = Field("127.0.0.1", description="address the SuperLink listens on; clients reach it through a proxy")
    port: int = Field(9092, ge=1, le=65535, description="its port")
    public: str = Field(description="host:port that clients connect to")
    insecure: bool = Field(False, description="no TLS and no authentication: a try on the loopback interface only")
    deadline: float = Field(60.0, gt=0, description="seconds a round waits for its clients")
    quorum: float = Field(0.5, ge=0, le=1, description="share of a round's clients that must answer")
    attempts: int = Field(5, ge=1, description="how often a round below the quorum is tried")
    pause: float = Field(10.0, ge=0, description="seconds before it is tried again")
    longest_backoff: int = Field(16, ge=1, description="most rounds for which a client that failed is not asked")
    start: float = Field(120.0, gt=0, description="seconds to wait for clients at the start")
    left_out: int = Field(3, ge=0, description="most rounds in a row that may stay below the quorum")
    largest_reply: int = Field(2**30, ge=2**16, description="most bytes of one reply; what is larger is not fetched")
    open_control: bool = Field(False, description="host may be reachable: whoever reaches it controls the server")

    @model_validator(mode="after")
    def _stays_here(self) -> ServerSettings:
        if not is_loopback(self.host) and not (self.open_control or self.insecure):
            raise ValueError(
                f"host={self.host}: whoever reaches it can register keys and start runs; keep it on 127.0.0.1 behind "
                "the proxy, or say open_control: true"
            )
        for host in (self.host, self.public.rpartition(":")[0]):
            if self.insecure and not is_loopback(host):
                raise ValueError(f"insecure is for the loopback interface only, not for {host}")
        return self

    @property
    def address(self) -> str:
        """Where the SuperLink listens."""
        return f"{self.host}:{self.port}"

    @property
    def patience(self) -> Patience:
        """The same waits, as the server's loop wants them."""
        return Patience(
            deadline=self.deadline, quorum=self.quorum, attempts=self.attempts, pause=self.pause,
            longest_backoff=self.longest_backoff, start=self.start, left_out=self.left_out,
        )  # fmt: skip


class Connection(_Settings):
    """`connection.yaml` of a client: beside it lie `key` and `ca.crt`."""

    server: str = Field(description="host:port of the server")
    insecure: bool = Field(False, description="no TLS and no authentication; loopback only")

    @model_validator(mode="after")
    def _insecure_stays_here(self) -> Connection:
        host, colon, port = self.server.rpartition(":")
        if not colon or not port.isdigit():
            raise ValueError(f"server: '{self.server}' is not host:port")
        if self.insecure and not is_loopback(host):
            raise ValueError(f"insecure is for the loopback interface only, not for {host}")
        return self


_Model = TypeVar("_Model", bound=_Settings)


def read_settings(path: Path, model: type[_Model]) -> _Model:
    """A YAML file as settings.

    Raises:
        RequestError: there is none, or a key is wrong.
    """
    return read_keys(path, model, "is this a folder that `panacea federate init` wrote?")


def read_connection(folder: Path) -> Connection:
    """How the client of a folder reaches its server."""
    return read_settings(folder / "connection.yaml", Connection)


class Deployment:
    """The server's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server_file = folder / "server.yaml"
        self.experiment = folder / "experiment.yaml"
        self.roster = folder / "roster"
        self.nodes = folder / "nodes.json"
        self.authority = folder / "ca" / "ca.crt"
        self.authority_key = folder / "ca" / "ca.key"
        self.tls = folder / "tls"  # a link: certificate and key are changed at once
        self.certificate = self.tls / "server.crt"
        self.certificate_key = self.tls / "server.key"
        self.keys = folder / "keys"
        self.clients = folder / "clients"
        self.app = folder / "app"
        self.proxy = folder / "nginx.conf"
        self.units = folder / "systemd"
        self.readme = folder / "README.md"
        self.home = folder / "flower"
        self.database = self.home / "state.db"
        self.run = self.home / "run.json"
        self.log = self.home / "server.log"
        self.logs = self.home / "logs"

    @property
    def settings(self) -> ServerSettings:
        """`server.yaml`."""
        return read_settings(self.server_file, ServerSettings)

    @property
    def root(self) -> Path | None:
        """The authority's certificate; None without TLS."""
        return None if self.settings.insecure else self.authority

    def client(self, name: str) -> Path:
        """The folder that is given to a client."""
        return self.clients / name

    def public_key(self, name: str) -> Path:
        """A client's public key."""
        return self.keys / f"{name}.pub"

    def read_nodes(self) -> dict[str, dict[str, Any]]:
        """By client: `fingerprint` of its key and, once registered, `node_id`."""
        nodes: dict[str, dict[str, Any]] = _read_json(self.nodes).get("clients", {})
        return nodes

    @contextmanager
    def changing_nodes(self) -> Iterator[dict[str, dict[str, Any]]]:
        """The table that says who is who, to be changed; kept on leaving. No other process changes it meanwhile."""
        with self._alone():
            nodes = self.read_nodes()
            yield nodes
            write_json(self.nodes, {"clients": nodes})

    def read_run(self) -> dict[str, Any]:
        """What became of the run: `state` (none, wanted, running, finished, failed), `detail`, `directory`, `pid`."""
        return {"state": "none", "detail": "", "directory": None, "pid": None, **_read_json(self.run)}

    def write_run(self, **changes: Any) -> None:
        """Change what is known of the run."""
        with self._alone():
            write_json(self.run, {**self.read_run(), **changes})

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Supervisor, run and the operator's commands change the same files."""
        self.home.mkdir(parents=True, exist_ok=True)
        with (self.home / "change.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def note(self, event: str, detail: str = "") -> None:
        """Add a line to the deployment's own log (`flower/server.log`)."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("a", encoding="utf-8") as file:
            file.write(f"{datetime.now(UTC).isoformat(timespec='seconds')} [{os.getpid()}] {event}: {detail}\n")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise RequestError(f"{path} cannot be read") from error
    return content
