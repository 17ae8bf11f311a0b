"""Processes that must not be left behind: started in a group of their own, watched, and ended with all they started."""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from panacea.errors import RequestError

__all__ = ["Child", "end_with_parent", "flower_environment", "free_port", "hold", "program", "stop_all"]

_KINDNESS = 4.0  # seconds between asking a process to end and making it
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def end_with_parent() -> None:
    """End this process at once when its parent is gone: for one that waits for an answer which will never come.

    Asking the kernel for a signal is no way: it comes when the *thread* ends that started this process.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="parent").start()


def hold(path: Path, what: str) -> int:
    """Lock a file or folder until the returned handle is closed or the process is gone.

    Raises:
        RequestError: another process holds it.
    """
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise RequestError(f"{what} is running already") from error
    return handle


def program(name: str) -> str:
    """A command that was installed beside this Python."""
    return str(Path(sys.executable).parent / name)


def flower_environment(home: Path, **extra: str) -> dict[str, str]:
    """The environment of Flower's processes: nothing is reported, looked up or installed, and files stay in `home`."""
    here = str(Path(sys.executable).parent)
    return {
        **os.environ,
        "PATH": here + os.pathsep + os.environ.get("PATH", ""),  # SuperLink starts its helpers by name
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        "PYTHONUNBUFFERED": "1",
        **extra,
    }


def _bind_to_parent() -> Callable[[], None] | None:
    """What a child does before it becomes another program: ask to be ended when its parent is gone (Linux)."""
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None)  # found before the fork: a child of a threaded process may not import anything
    return lambda: library.prctl(_DEATH_SIGNAL, signal.SIGTERM)


class Child:
    """One process and everything it starts; its output goes to a file.

    Attributes:
        name: what people call it.
        log: the file.
    """

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.name, self.log = name, log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            self.process = subprocess.Popen(  # noqa: S603
                list(command), env=dict(environment), stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True, preexec_fn=_bind_to_parent(),  # noqa: PLW1509
            )  # fmt: skip

    @property
    def alive(self) -> bool:
        """Whether the process itself still runs."""
        return self.process.poll() is None

    def signal(self, number: int) -> None:
        """Send a signal to the process and all it started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)  # its group's number is its own: it leads a session

    def stop(self) -> None:
        """Ask it to end, wait a little, then end whatever is left of the group."""
        self.ask()
        self.finish(time.monotonic() + _KINDNESS)

    def ask(self) -> None:
        """Ask the process itself to end; it tells its children."""
        if self.alive:
            self.process.terminate()

    def finish(self, end: float) -> None:
        """Wait until a moment of `time.monotonic`, then end whatever is left of the group."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(max(0.0, end - time.monotonic()))
        self.signal(signal.SIGKILL)
        self.process.wait()

    def last_words(self, count: int = 3) -> str:
        """The end of its output, on one line."""
        try:
            lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return ""
        return " | ".join(line.strip() for line in lines[-count:] if line.strip())


def stop_all(children: Sequence[Child]) -> None:
    """End several at once: those that use others first in the list, all asked before any is waited for."""
    for child in children:
        child.ask()
    end = time.monotonic() + _KINDNESS
    for child in children:
        child.finish(end)
