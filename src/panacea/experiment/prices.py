"""What a result costs: bytes until a target is reached, rounds until a run is nearly as good as it gets."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from panacea.experiment.outcome import Outcome

__all__ = ["SHARE", "Prices", "baseline_of", "bytes_to", "rounds_to_share", "target_text"]

SHARE = 0.9
_NEARLY = 0.99
Lines = Iterable[Mapping[str, Any]]


def _first(lines: Lines, wanted: float, higher_is_better: bool) -> Mapping[str, Any] | None:
    """The first evaluation whose validation metric is as good as wanted."""
    for line in lines:
        value = line.get("val_mean")
        if value is not None and (value >= wanted if higher_is_better else value <= wanted):
            return line
    return None


def _part(value: float, share: float, higher_is_better: bool) -> float:
    """A share of an accuracy; of an error, what is worse by that share."""
    return share * value if higher_is_better else value / share


def bytes_to(lines: Lines, target: float, higher_is_better: bool) -> int | None:
    """Bytes sent in both directions until the validation metric first reaches the target; None if it never does.

    >>> lines = [{"val_mean": 50.0, "bytes_down": 5, "bytes_up": 4}, {"val_mean": 80.0, "bytes_down": 9, "bytes_up": 8}]
    >>> bytes_to(lines, 70, True), bytes_to(lines, 90, True)
    (17, None)
    """
    line = _first(lines, target, higher_is_better)
    return None if line is None else int(line["bytes_down"] + line["bytes_up"])


def rounds_to_share(lines: Sequence[Mapping[str, Any]], higher_is_better: bool) -> int | None:
    """The first evaluated round whose validation metric is 90 % of the last one's (of an error: within 1/0.9 of it)."""
    known = [line for line in lines if line.get("val_mean") is not None]
    if not known:
        return None
    line = _first(known, _part(known[-1]["val_mean"], SHARE, higher_is_better), higher_is_better)
    return None if line is None else int(line["round"])


def baseline_of(methods: Sequence[str]) -> str:
    """The method whose result is the default target: FedAvg where it takes part, else the first."""
    return "fedavg" if "fedavg" in methods else methods[0]


def target_text(target: float | None, methods: Sequence[str]) -> str:
    """The target in words, for a caption."""
    if target is not None:
        return f"a validation metric of {target:g}"
    return f"{_NEARLY:.0%} of the best validation metric of {baseline_of(methods)} with the same seed".replace(
        "%", " %"
    )


class Prices:
    """Bytes and rounds of the runs of a comparison.

    Args:
        outcomes: all runs.
        target: the validation metric to be reached; None: 99 % of what the baseline reaches at its best with the same
            seed and varied keys, so that a number is a price for the same thing.
        higher_is_better: direction of the metric.
    """

    def __init__(self, outcomes: Sequence[Outcome], target: float | None, higher_is_better: bool) -> None:
        self.target, self.higher = target, higher_is_better
        self.reference: dict[tuple[Any, ...], float] = {}
        base = baseline_of([outcome.method for outcome in outcomes])
        for outcome in outcomes if target is None else ():
            known = [line["val_mean"] for line in outcome.lines if line.get("val_mean") is not None]
            if outcome.method == base and known:
                best = max(known) if higher_is_better else min(known)
                self.reference[outcome.values, outcome.seed] = _part(best, _NEARLY, higher_is_better)

    def of(self, runs: Sequence[Outcome]) -> dict[str, float | int | None]:
        """The prices of one method: means over its runs, None where a run never gets there."""
        targets = [self.reference.get((run.values, run.seed)) if self.target is None else self.target for run in runs]
        pairs = zip(runs, targets, strict=True)
        bytes_ = [None if target is None else bytes_to(run.lines, target, self.higher) for run, target in pairs]
        rounds = [rounds_to_share(run.lines, self.higher) for run in runs]
        reached = sum(price is not None for price in bytes_)
        return {
            "bytes_to_target": _mean(bytes_),
            "reached_target": None if None in targets else reached,  # the baseline's run failed: no target to reach
            "rounds_to_90": _mean(rounds),
        }


def _mean(values: Sequence[int | None]) -> float | None:
    """None where one is missing: a mean over the runs that got there would flatter."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known and len(known) == len(values) else None
