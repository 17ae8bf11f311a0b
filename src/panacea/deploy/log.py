"""`federation.jsonl`: what happened between the server and its clients, a line each."""

from __future__ import annotations

import os
from collections import deque
from datetime import UTC, datetime
from pathlib import Path

from panacea.core.files import append_line
from panacea.deploy.wire import plain

__all__ = ["FederationLog"]

_KEPT = 1000  # lines
_LONGEST = 300  # characters of a detail; some of them are a stranger's


class FederationLog:
    """Lines of ``{"time", "round", "client", "event", "detail"}``; without a file they are only kept in memory.

    Attributes:
        round: the round at hand.
        lines: the newest of this process.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path, self.round = path, 0
        self.lines: deque[dict[str, object]] = deque(maxlen=_KEPT)

    def open(self, path: Path) -> None:
        """Go on in a file; half a line that a kill left there is cut off."""
        self.path = path
        if path.exists():
            data = path.read_bytes()
            if data and not data.endswith(b"\n"):
                os.truncate(path, data.rfind(b"\n") + 1)

    def note(self, event: str, detail: str = "", client: str | None = None, round: int | None = None) -> None:
        """Add a line with the time; the round is that at hand unless one is given."""
        line: dict[str, object] = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "round": self.round if round is None else round,
            "client": client,
            "event": event,
            "detail": plain(detail, _LONGEST),
        }
        self.lines.append(line)
        if self.path is not None:
            append_line(self.path, line)
