"""`federation.jsonl`: what happened between the server and its clients, a line each."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from panacea.core.files import append_line
from panacea.deploy.wire import plain

__all__ = ["FederationLog"]

_LONGEST = 300  # characters of a detail; some of them are a stranger's


class FederationLog:
    """Lines of ``{"time", "round", "client", "event", "detail"}``; without a file they are only kept in memory.

    Attributes:
        round: the round at hand.
        lines: those of this process.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path, self.round = path, 0
        self.lines: list[dict[str, object]] = []

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
