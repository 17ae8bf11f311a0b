"""The connection to Ray: a private one on this machine, or a cluster that the user has started.

A process has one connection at a time. It is shared by all who ask for it and closed with the last of them; a private
Ray ends with it. Ray is imported here only, and only when somebody asks.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import secrets
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from panacea.engines.ray_folder import PrivateFolder, in_turn
from panacea.errors import RequestError, RunFailure

__all__ = ["RaySession", "connect", "kept_open", "require_ray"]

LOCAL = "local"
_SETTINGS = b"\x04"  # the kind of the first frame that either side of HTTP/2 sends
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0" + _SETTINGS + b"\0\0\0\0\0"
_QUIET = {"logging_level": "error", "log_to_driver": False}
_TRIES = 3  # to start a private Ray
_PATIENCE = 60.0  # seconds until others on this machine have started theirs
_SLOW = {  # Ray gives its parts seconds to find each other, too few where many want the cores
    "RAY_gcs_rpc_server_connect_timeout_s": "60",
    "RAY_gcs_server_port_wait_time_s": "120",
}
_TOKEN = secrets.token_hex(32)  # of this process' private Rays: in no file, and the same for all, for Ray keeps it


def require_ray(asked: str) -> None:
    """Refuse what was asked for where Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise RequestError(f"{asked} needs Ray: pip install 'panacea-fl[cluster]'")


@dataclass
class RaySession:
    """A connection.

    Attributes:
        ray: the module.
        address: as asked for; `local` for a private Ray.
        users: how many hold it.
        folder: of a private Ray's logs and sockets; it is removed with it.
        foreign: somebody else in this process has connected, and will disconnect.
        workers: those that were started, by their threads; the next experiment of this process finds them warm.
    """

    ray: Any
    address: str
    users: int = 0
    folder: PrivateFolder | None = None
    foreign: bool = False
    workers: dict[int, list[Any]] = field(default_factory=dict)

    @property
    def private(self) -> bool:
        """Whether it ends with us, so that nobody else's work must be considered."""
        return self.folder is not None

    @property
    def cpus(self) -> int:
        """Of all nodes."""
        return max(1, int(self.ray.cluster_resources().get("CPU", 1)))

    def forget(self) -> None:
        """One user less, found out by the garbage collector: it may run within Ray, so nothing is closed now."""
        self.users -= 1

    def release(self) -> None:
        """One user less; the last one closes."""
        self.forget()
        if self.users <= 0 and not _keepers:
            self.close()

    def close(self) -> None:
        """End the workers, and Ray if it is private."""
        global _current  # noqa: PLW0603
        if _current is not self:
            return
        _current = None
        if not self.foreign:
            self.ray.shutdown()  # workers end with it
        elif self.ray.is_initialized():
            for worker in (one for several in self.workers.values() for one in several):
                self.ray.kill(worker.actor)
        self.workers.clear()
        if self.folder is not None:
            self.folder.remove()


_current: RaySession | None = None
_imported_by_us = False
_keepers = 0


def connect(
    address: str | None, key: str, cpus: int | None = None, note: Callable[[str], None] = warnings.warn
) -> RaySession:
    """The connection; call `release` when done.

    Args:
        address: None or `local` for a private Ray on loopback, `auto` for the cluster this machine is part of, or
            ``host:port``.
        key: what a user called it, for errors.
        cpus: workers that a private Ray is to have room for.
        note: told what a user should know.

    Raises:
        RequestError: nobody answers, or this process is connected elsewhere.
        RunFailure: a private Ray does not start.
    """
    global _current  # noqa: PLW0603
    require_ray(key)
    wanted = LOCAL if address is None else address
    if wanted.startswith("ray://"):
        raise RequestError(f"{key}={wanted}: run the command on a node of the cluster, and give auto or host:port")
    if _current is None:
        _current = _opened(wanted, key, cpus, note)
    elif _current.address != wanted and not _current.foreign:
        raise RequestError(f"{key}={wanted}: this process is connected to the Ray '{_current.address}' already")
    _current.users += 1
    return _current


@contextlib.contextmanager
def kept_open() -> Iterator[None]:
    """What is connected inside stays so until the end, from run to run."""
    global _keepers  # noqa: PLW0603
    _keepers += 1
    try:
        yield
    finally:
        _keepers -= 1
        if not _keepers and _current is not None and _current.users <= 0:
            _current.close()


def _opened(wanted: str, key: str, cpus: int | None, note: Callable[[str], None]) -> RaySession:
    global _imported_by_us  # noqa: PLW0603
    names = {"RAY_USAGE_STATS_ENABLED": "0"}
    chosen = {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys()
    if wanted == LOCAL:
        names |= _SLOW
        if "ray" not in sys.modules:
            _imported_by_us = True
        if _imported_by_us:  # Ray reads these when it is imported; whoever did so before us has chosen otherwise
            names |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # loopback only; named after those who asked for it
            if not chosen:
                names |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": _TOKEN}
    else:
        _refuse_silence(wanted, key)
        if not chosen and (Path.home() / ".ray" / "auth_token").exists():
            names |= {"RAY_AUTH_MODE": "token"}  # as `ray start` does, and Ray itself where the address is auto
    with _environment(names), _handlers_kept():
        import ray  # noqa: PLC0415  (heavy, and it reads the environment when it is imported)

        if ray.is_initialized():
            return RaySession(ray, wanted, foreign=True)
        if wanted == LOCAL:
            session = RaySession(ray, wanted, folder=_started(ray, cpus, note))
        else:
            _joined(ray, wanted, key)
            session = RaySession(ray, wanted)
    atexit.register(session.close)  # before Ray's own, which was registered before
    return session


def _started(ray: Any, cpus: int | None, note: Callable[[str], None]) -> PrivateFolder:
    """Start a private Ray; on a busy machine it may need more than one try. Returns its folder."""
    for number in range(1, _TRIES + 1):
        folder = PrivateFolder()
        options = {"num_cpus": cpus, "include_dashboard": False, "_temp_dir": str(folder.path)}
        try:
            with in_turn(_PATIENCE):
                ray.init(address=LOCAL, **options, **_QUIET)
                ray.cluster_resources()  # connects a part that would otherwise do so later, and may fail
        except BaseException as error:
            with contextlib.suppress(Exception):
                ray.shutdown()
            folder.evict()
            folder.remove()
            if not isinstance(error, Exception):  # Ctrl-C
                raise
            if number == _TRIES:
                raise RunFailure(f"Ray does not start here ({_why(error)}); {_TRIES} tries") from error
            note(f"Ray did not start ({_why(error)}), often because the machine is busy; try {number + 1} of {_TRIES}")
        else:
            return folder
    raise AssertionError("a try succeeds or the last one raises")


def _joined(ray: Any, address: str, key: str) -> None:
    """Connect to a cluster."""
    try:
        with _stderr_silenced():
            ray.init(address=address, **_QUIET)
            ray.cluster_resources()
    except Exception as error:  # Ray raises exceptions of that very class, too
        with contextlib.suppress(Exception):
            ray.shutdown()
        raise RequestError(
            f"{key}={address}: no connection to Ray ({_why(error)}); `ray start --head` starts a cluster; "
            "one with tokens needs RAY_AUTH_MODE=token"
        ) from error


def _why(error: Exception) -> str:
    """The first sentence of what Ray says."""
    said = (str(error).splitlines() or [type(error).__name__])[0]
    return said.partition(". ")[0].rstrip(".")


def _refuse_silence(address: str, key: str) -> None:
    """Ray tries for minutes where nobody listens, or somebody who does not speak gRPC (HTTP/2), as it does."""
    host, colon, port = address.rpartition(":")
    if address == "auto":
        return
    if not colon or not port.isdigit():
        raise RequestError(f"{key}={address}: give auto, local or host:port")
    try:
        with socket.create_connection((host, int(port)), timeout=10) as there:
            there.sendall(_GREETING)
            settings = there.recv(9)
    except (OSError, OverflowError) as error:
        raise RequestError(
            f"{key}={address}: nobody answers there ({error}); `ray start --head` starts a cluster"
        ) from error
    if settings[3:4] != _SETTINGS:
        raise RequestError(f"{key}={address}: who answers there is not Ray; `ray start --head` prints the address")


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Variables that Ray's processes start with; a user's own choice wins."""
    added = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


@contextlib.contextmanager
def _stderr_silenced() -> Iterator[None]:
    """Ray's C++ code writes a line a second there while it tries to connect; one line of ours says it in the end."""
    sys.stderr.flush()
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)


@contextlib.contextmanager
def _handlers_kept() -> Iterator[None]:
    """Ray takes SIGTERM for itself; a run that is asked to stop must hear it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
