"""How long a server waits, and for how many."""

from __future__ import annotations

from dataclasses import dataclass

from panacea.errors import RequestError

__all__ = ["Patience"]


@dataclass(frozen=True)
class Patience:
    """How long a server waits, and for how many.

    Attributes:
        deadline: seconds from sending a round's orders until those who did not answer are left out.
        quorum: share of a round's cohort whose replies must be sound; at least one must be.
        attempts: how often a round or an evaluation below the quorum is tried again: the same cohort, of which those
            are asked again whose replies are missing, back-off or not. Another cohort would be another run.
        pause: seconds before it is.
        longest_backoff: most rounds in a row for which a client that failed is not asked.
        start: seconds to wait for clients at the start (`hello`), trying again; and below the quorum for those that
            are not connected, before anything counts as an attempt.
        left_out: most rounds in a row that are left out, since they stay below the quorum: nothing is averaged, and
            the next round begins. After one more the run fails, and can be resumed.
    """

    deadline: float = 60.0
    quorum: float = 0.5
    attempts: int = 5
    pause: float = 10.0
    longest_backoff: int = 16
    start: float = 120.0
    left_out: int = 3

    def __post_init__(self) -> None:
        for name, low, high in (
            ("deadline", 0.001, 1e6), ("quorum", 0, 1), ("attempts", 0, 1e6), ("pause", 0, 1e6),
            ("longest_backoff", 0, 1e6), ("start", 0, 1e6), ("left_out", 0, 1e6),
        ):  # fmt: skip
            value = getattr(self, name)
            if not low <= value <= high:
                raise RequestError(f"{name}={value}: must be between {low:g} and {high:g}")
