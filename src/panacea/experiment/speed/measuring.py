"""Timing that survives a busy machine: everything takes turns in one run, and medians are compared."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch

from panacea.errors import RunFailure

__all__ = ["WARM_UP", "Runner", "Timing", "interleave", "one_thread", "settle", "timed"]

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
        computing: seconds that this process computed in each of them; less than `seconds` where others had its core.
    """

    seconds: tuple[float, ...]
    first: float
    score: float | None = None
    computing: tuple[float, ...] = ()

    @property
    def median(self) -> float:
        """Seconds of a round."""
        return statistics.median(self.seconds)

    @property
    def wait(self) -> float:
        """How much longer the first round took than the others: the price of recording, compiling and capturing."""
        return max(0.0, self.first - self.median)

    @property
    def busy(self) -> float:
        """How many times longer a round took than this process computed in it; 1 on a quiet machine."""
        return self.median / max(statistics.median(self.computing or self.seconds), 1e-9)

    def scaled(self, factor: float) -> Timing:
        """The time of so many times as much work."""
        return Timing(tuple(factor * s for s in self.seconds), factor * self.first)


def interleave(
    runners: Mapping[str, Runner], repeats: int, tell: Tell | None = None
) -> tuple[dict[str, Timing], list[str]]:
    """Let runners take turns, a round each, `WARM_UP` untimed and `repeats` timed times.

    Returns:
        The timings by name, and notes: on each runner that failed (the others go on without it), and its warnings.
    """
    seconds: dict[str, list[float]] = {name: [] for name in runners}
    computing: dict[str, list[float]] = {name: [] for name in runners}
    notes: list[str] = []
    for number in range(1, WARM_UP + repeats + 1):
        for name in list(seconds):
            before = time.process_time()
            try:
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always", UserWarning)
                    seconds[name].append(runners[name].round(number))
                computing[name].append(time.process_time() - before)
                notes += [f"{name}: {warning.message}" for warning in caught]
            except RunFailure as error:
                del seconds[name]
                notes.append(f"{name}: {error}")
            if tell is not None:
                tell(name)
    timings = {}
    for name, found in seconds.items():
        try:
            used = tuple(computing[name][WARM_UP:])
            timings[name] = Timing(tuple(found[WARM_UP:]), found[0], runners[name].score(), used)
        except RunFailure as error:
            notes.append(f"{name}: {error}")
    return timings, list(dict.fromkeys(notes))


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread of this process for as long as something is measured."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def timed(device: str, work: Callable[[], object]) -> float:
    """Seconds that some work takes, on a device that has nothing else to do."""
    settle(device)
    started = time.perf_counter()
    work()
    settle(device)
    return time.perf_counter() - started


def settle(device: str) -> None:
    """Wait until the device has done what it was given."""
    if device == "cuda":
        torch.cuda.synchronize()
