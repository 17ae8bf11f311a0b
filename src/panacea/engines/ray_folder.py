"""The folder of a private Ray: its logs and sockets.

It is locked as long as the process lives that asked for it. One that was killed leaves its folder behind, unlocked, and
the next private Ray of this machine removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

__all__ = ["PrivateFolder", "in_turn"]

_BASE = Path("/tmp")  # noqa: S108  (sockets have short names, so not in a long $TMPDIR)
_PREFIX = "panacea-ray-"


class PrivateFolder:
    """A new folder, locked.

    Attributes:
        path: where it is.
    """

    def __init__(self) -> None:
        _remove_abandoned()
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_BASE))
        self._lock = os.open(self.path, os.O_RDONLY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def evict(self) -> None:
        """End the processes that name it, of a Ray that did not start: Ray itself knows of none of them."""
        for command in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):  # it has just ended, or is another user's
                if os.fsencode(self.path) in command.read_bytes():
                    os.kill(int(command.parent.name), signal.SIGKILL)

    def remove(self) -> None:
        """Remove it; Ray's processes may still write their last lines."""
        for _ in range(20):
            shutil.rmtree(self.path, ignore_errors=True)
            if not self.path.exists():
                break
            time.sleep(0.05)
        os.close(self._lock)


@contextlib.contextmanager
def in_turn(patience: float) -> Iterator[None]:
    """One private Ray of this machine starts at a time; whoever has waited for so many seconds does so anyway."""
    handle, deadline = os.open(_BASE, os.O_RDONLY), time.monotonic() + patience
    try:
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            time.sleep(0.1)
        yield
    finally:
        os.close(handle)


def _remove_abandoned() -> None:
    """What nobody locks; an empty one may be about to be locked."""
    for path in _BASE.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # somebody lives there, or it is another user's
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if any(path.iterdir()):
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(handle)
