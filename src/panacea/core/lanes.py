"""Lanes: queues of work on a GPU (CUDA streams) that need not wait for each other.

Runs that advance together share some calls and do the rest alone. On one queue the second run's work would begin when
the first one's is done, small as it is. With a lane each, the GPU does all of them at a time. A shared call begins when
the lanes of those that share it have done what was queued before, and these lanes go on when the call is done; with
that order nobody reads or writes memory that another lane still uses. On a CPU there are no lanes, and nothing here
does anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache

import torch

__all__ = ["Lane", "Mark", "mark"]

Mark = torch.cuda.Event | None
"""A place in a lane; None without a GPU."""


@cache
def _gpu() -> bool:
    return torch.cuda.is_available()


def mark() -> Mark:
    """The place behind all that was queued where this is called."""
    return torch.cuda.current_stream().record_event() if _gpu() else None


class Lane:
    """A lane of its own, made when it is first used; it begins behind what was queued where it is made.

    Attributes:
        used: False for a run that has next to nothing to do on a GPU by itself: that little is queued where everybody's
            is, and nobody need wait for it in particular.
    """

    def __init__(self) -> None:
        self.used = _gpu()
        self._stream: torch.cuda.Stream | None = None

    @contextmanager
    def entered(self) -> Iterator[None]:
        """What is queued inside goes into this lane."""
        if not self.used:
            yield
            return
        if self._stream is None:
            self._stream = torch.cuda.Stream()
            self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            yield

    def mark(self) -> Mark:
        """The place behind all that this lane has to do; inside `entered`."""
        return mark() if self.used else None

    def wait_for(self, marks: Iterable[Mark]) -> None:
        """What is queued from now on begins when these places are reached; nobody waits here. Inside `entered`."""
        if self.used:
            for one in marks:
                if one is not None:
                    torch.cuda.current_stream().wait_event(one)
