"""Whom not to ask for a while: a client that missed is left out of 1, 2, 4, ... rounds in which it would be asked."""

from __future__ import annotations

__all__ = ["BackOff"]


class BackOff:
    """Counts misses in a row.

    Rounds are counted as they are asked for, not as they are numbered: a client that is asked in few of them is given
    its pause in those.

    >>> absent = BackOff(longest=2)
    >>> absent.missed(7), absent.missed(7), absent.missed(7)
    (1, 2, 2)
    >>> [absent.skipped(7) for _ in range(3)]
    [True, True, False]
    """

    def __init__(self, longest: int = 16) -> None:
        self.longest = longest
        self._misses: dict[int, int] = {}
        self._left: dict[int, int] = {}

    def missed(self, client: int) -> int:
        """It did not answer (soundly); returns how many rounds it is left out of now."""
        misses = self._misses[client] = self._misses.get(client, 0) + 1
        self._left[client] = min(2 ** min(misses - 1, 30), self.longest)
        return self._left[client]

    def answered(self, client: int) -> bool:
        """It did; returns whether it had been missing."""
        self._left.pop(client, None)
        return self._misses.pop(client, 0) > 0

    def skipped(self, client: int) -> bool:
        """Whether it is left out this time; counts the time."""
        left = self._left.get(client, 0)
        if left:
            self._left[client] = left - 1
        return left > 0
