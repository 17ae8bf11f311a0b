"""The statistics of a comparison: an interval for every mean, a paired test between every two methods."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from panacea.evaluation.statistics import FEW_PAIRS, PairedTest, bootstrap_interval, holm, paired_test
from panacea.experiment.outcome import Outcome

__all__ = ["TEST_TEXT", "Compared", "compare_pairs", "interval_of"]

TEST_TEXT = (
    "two-sided Wilcoxon signed-rank tests over clients, paired by data seed and client, zero differences dropped, "
    "Holm's correction over all pairs"
)
Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Compared:
    """Two methods at one set of values of the varied keys.

    Attributes:
        first: the one.
        second: the other.
        values: of the varied keys.
        test: None if they have no client in common.
        corrected: p after Holm's correction over all tests of the comparison.
        failed: whether a run of either failed; the seeds that did well would flatter, so there is no test.
    """

    first: str
    second: str
    values: tuple[Any, ...]
    test: PairedTest | None
    corrected: float | None
    failed: bool = False

    @property
    def note(self) -> str:
        """Where the test can say little."""
        if self.test is None:
            return "a run failed" if self.failed else "no client in common"
        if not self.test.few:
            return ""
        return f"only {self.test.pairs - self.test.zeros} differences; {FEW_PAIRS} are needed for p < 0.05"

    def record(self, keys: Sequence[str]) -> dict[str, Any]:
        """A row of `tests.csv`."""
        test = self.test
        return {
            "first": self.first,
            "second": self.second,
            **dict(zip(keys, self.values, strict=True)),
            "pairs": 0 if test is None else test.pairs,
            "zeros": None if test is None else test.zeros,
            "median_difference": None if test is None else test.median,
            "effect": None if test is None else test.effect,
            "p": None if test is None else test.p,
            "p_holm": self.corrected,
            "note": self.note,
        }


def interval_of(
    runs: Iterable[Outcome], bounds: tuple[float, float] = (-math.inf, math.inf)
) -> tuple[float, float] | None:
    """The 95 % interval of a method's mean; runs on the same data count as one, their clients' means are taken."""
    groups = [np.array(list(values.values())) for values in _by_client(runs).values()]
    return bootstrap_interval(groups, bounds=bounds)


def _by_client(runs: Iterable[Outcome], left_out: Iterable[tuple[int, int]] = ()) -> dict[int, dict[int, float]]:
    """Data seed -> client -> mean over the runs on these data; of honest training clients."""
    found: dict[int, dict[int, list[float]]] = {}
    barred = set(left_out)
    for run in runs:
        clients = run.clients
        if clients is None:
            continue
        counted = ~clients.novel & ~clients.malicious & np.isfinite(clients.metric)
        for client, metric in zip(clients.number[counted], clients.metric[counted], strict=True):
            if (run.data_seed, int(client)) not in barred:
                found.setdefault(run.data_seed, {}).setdefault(int(client), []).append(float(metric))
    return {
        seed: {client: float(np.mean(list_)) for client, list_ in clients.items()} for seed, clients in found.items()
    }


def _liars(runs: Iterable[Outcome]) -> set[tuple[int, int]]:
    """(data seed, client) of all that attack in some run."""
    return {
        (run.data_seed, int(client))
        for run in runs
        if run.clients is not None
        for client in run.clients.number[run.clients.malicious]
    }


def _test(first: Sequence[Outcome], second: Sequence[Outcome]) -> PairedTest | None:
    """Clients that were honest in all runs of both, seen by both."""
    liars = _liars([*first, *second])
    ours, theirs = (
        {(seed, client): value for seed, values in _by_client(runs, liars).items() for client, value in values.items()}
        for runs in (first, second)
    )
    both = sorted(ours.keys() & theirs.keys())
    return paired_test(np.array([ours[pair] for pair in both]), np.array([theirs[pair] for pair in both]))


def compare_pairs(outcomes: Sequence[Outcome]) -> list[Compared]:
    """A test between every two methods at every set of values; p corrected over all of them.

    Pairs are (data seed, client). Runs of a method on the same data are averaged per client first, so that a client
    counts once. A client that attacks in any run of the two is left out.
    """
    groups: dict[tuple[Any, ...], dict[str, list[Outcome]]] = {}
    for outcome in outcomes:
        groups.setdefault(outcome.values, {}).setdefault(outcome.method, []).append(outcome)
    found = []
    for values, methods in groups.items():
        for first, second in itertools.combinations(methods, 2):
            failed = any(run.error is not None for run in (*methods[first], *methods[second]))
            test = None if failed else _test(methods[first], methods[second])
            found.append((first, second, values, test, failed))
    corrected = iter(holm([test.p for *_, test, _ in found if test is not None]))
    return [
        Compared(first, second, values, test, None if test is None else next(corrected), failed)
        for first, second, values, test, failed in found
    ]
