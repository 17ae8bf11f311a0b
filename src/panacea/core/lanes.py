"""Lanes: queues of work on a GPU (CUDA streams) that need not wait for each other.

Runs that advance together share some calls and do the rest alone. On one queue the second run's work would begin when
the first one's is done, small as it is. With a lane each, the GPU does all of them at a time. A shared call begins when
all lanes have done what was queued before it, and every lane goes on when the call is done; with that order nobody
reads or writes memory that another lane still uses. On a CPU there are no lanes, and nothing here does anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch

__all__ = ["Lane", "Mark", "mark", "wait_for"]

Mark = torch.cuda.Event | None
"""A place in a lane; None without a GPU."""


class Lane:
    """A lane of its own, made when it is first used."""

    def __init__(self) -> None:
        self._stream: torch.cuda.Stream | None = None

    @contextmanager
    def entered(self) -> Iterator[None]:
        """What this thread queues inside goes into this lane."""
        if not torch.cuda.is_available():
            yield
            return
        if self._stream is None:
            self._stream = torch.cuda.Stream()
        with torch.cuda.stream(self._stream):
            yield


def mark() -> Mark:
    """The place behind all that this thread's lane has to do."""
    return torch.cuda.current_stream().record_event() if torch.cuda.is_available() else None


def wait_for(marks: Iterable[Mark]) -> None:
    """What this thread queues from now on begins when these places are reached; the thread itself does not wait."""
    for one in marks:
        if one is not None:
            torch.cuda.current_stream().wait_event(one)
