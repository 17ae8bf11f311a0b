"""Timing that survives a busy machine: everything takes turns in one run, and medians are compared."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch

from panacea.errors import RunFailure

__all__ = ["WARM_UP", "Runner", "Timing", "interleave", "one_thread", "settle"]

WARM_UP = 2
"""Rounds before the timed ones: code is recorded, compiled or captured in them, and caches are filled."""

Tell = Callable[[str], None]
"""Called with the name of what was just done."""


class Runner(Protocol):
    """Something that trains round after round."""

    def round(self, number: int) -> float:
        """Do round `number` (from 1) and return the seconds it took."""
        ...

    def score(self) -> float | None:
        """Mean test metric of the training clients with what was learnt so far; None where it cannot be compared."""
        ...


@dataclass(frozen=True)
class Timing:
    """What was seen of one runner.

    Attributes:
        seconds: of each timed round.
        first: seconds of the very first round, which is not timed.
        score: the mean test metric after the last round.
    """

    seconds: tuple[float, ...]
    first: float
    score: float | None = None

    @property
    def median(self) -> float:
        """Seconds of a round."""
        return statistics.median(self.seconds)

    @property
    def wait(self) -> float:
        """How much longer the first round took than the others: the price of recording, compiling and capturing."""
        return max(0.0, self.first - self.median)

    def scaled(self, factor: float) -> Timing:
        """The time of so many times as much work."""
        return Timing(tuple(factor * s for s in self.seconds), factor * self.first)


def interleave(
    runners: Mapping[str, Runner], repeats: int, tell: Tell | None = None
) -> tuple[dict[str, Timing], list[str]]:
    """Let runners take turns, a round each, `WARM_UP` untimed and `repeats` timed times.

    Returns:
        The timings by name, and a note for each runner that failed; the others go on without it.
    """
    seconds: dict[str, list[float]] = {name: [] for name in runners}
    notes: list[str] = []
    for number in range(1, WARM_UP + repeats + 1):
        for name in list(seconds):
            try:
                seconds[name].append(runners[name].round(number))
            except RunFailure as error:
                del seconds[name]
                notes.append(f"{name}: {error}")
            if tell is not None:
                tell(name)
    return {
        name: Timing(tuple(found[WARM_UP:]), found[0], runners[name].score()) for name, found in seconds.items()
    }, notes


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread of this process for as long as something is measured."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def settle(device: str) -> None:
    """Wait until the device has done what it was given."""
    if device == "cuda":
        torch.cuda.synchronize()
