"""What this installation should reach, and whether it does: `panacea bench --check`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from panacea.experiment.speed.engines import Row
from panacea.experiment.speed.growth import Curve

__all__ = ["TARGETS", "Check", "Target", "check_growth", "check_rows"]


@dataclass(frozen=True)
class Target:
    """A ratio to reach.

    Attributes:
        device: where it is promised.
        workload: of which.
        engine: what is fast.
        baseline: what it is compared with: another engine, the plain loop or a peer.
        at_least: so many times faster.
    """

    device: str
    workload: str
    engine: str
    baseline: str
    at_least: float


TARGETS = (
    Target("cpu", "W1", "vectorised", "plain", 3.5),
    Target("cpu", "W1", "vectorised", "sequential", 5),
    Target("cpu", "W1", "vectorised", "pfl", 7),
    Target("cpu", "W1", "vectorised", "pfllib", 7),
    Target("cpu", "W1", "compiled", "pfl", 10),
    Target("cpu", "W1-20", "vectorised", "plain", 8),
    Target("cpu", "W1-panacea", "vectorised", "plain", 5),
    Target("cpu", "W2", "vectorised", "sequential", 1.5),
    Target("cpu", "W2", "compiled", "sequential", 2),
    Target("cpu", "W3", "vectorised", "sequential", 1.3),
    Target("cuda", "W1", "captured", "sequential", 100),
    Target("cuda", "W2", "captured", "sequential", 20),
    Target("cuda", "W2-200", "captured", "sequential", 150),
    Target("cuda", "W3", "captured", "sequential", 11),
)
_WAIT = 5.0  # seconds the first round of W1 may take longer than the others where nothing is compiled
_SEEDS_FACTOR, _CLIENTS_FACTOR, _CLIENTS_BYTES = 1.5, 3.0, 2 * 10**9


@dataclass(frozen=True)
class Check:
    """A target beside what was measured.

    Attributes:
        what: in words.
        target: in words.
        measured: None where it was not measured.
        holds: likewise.
        unit: of `measured`.
    """

    what: str
    target: str
    measured: float | None
    holds: bool | None
    unit: str = "x"


def check_rows(rows: Sequence[Row], device: str) -> list[Check]:
    """The targets of the workloads on a device; those of workloads that were not asked for are left out."""
    found = []
    by_key = {row.work.key: row for row in rows}
    for target in TARGETS:
        if target.device != device or target.workload not in by_key:
            continue
        ratio = by_key[target.workload].ratio(target.engine, target.baseline)
        what = f"{target.workload}: {target.engine} against {target.baseline}"
        holds = None if ratio is None else ratio >= target.at_least
        found.append(Check(what, f">= {target.at_least:g}x", ratio, holds))
    if device == "cpu" and "W1" in by_key and "vectorised" in by_key["W1"].timings:
        wait = by_key["W1"].timings["vectorised"].wait
        found.append(Check("W1: first wait of vectorised", f"<= {_WAIT:g} s", wait, wait <= _WAIT, " s"))
    return found


def check_growth(curves: Sequence[Curve], device: str) -> list[Check]:
    """The targets of growth: 100,000 clients against 1,000, and five seeds against one (on a GPU)."""
    found = []
    for curve in curves:
        at = {point.size: point for point in curve.points}
        if curve.name == "clients" and {1_000, 100_000} <= set(at):
            ratio = at[100_000].ms["vectorised"] / at[1_000].ms["vectorised"]
            what = "a Panacea round among 100,000 clients against 1,000"
            found.append(Check(what, f"<= {_CLIENTS_FACTOR:g}x", ratio, ratio <= _CLIENTS_FACTOR))
            peak = at[100_000].memory
            if peak is not None:
                what = "memory of 100,000 clients"
                found.append(Check(what, "<= 2 GB", peak / 1e9, peak <= _CLIENTS_BYTES, " GB"))
        if curve.name == "replicas" and device == "cuda" and {1, 5} <= set(at):
            for work, one in at[1].ms.items():
                ratio = at[5].ms[work] / one
                what = f"{work}: five seeds against one"
                found.append(Check(what, f"<= {_SEEDS_FACTOR:g}x", ratio, ratio <= _SEEDS_FACTOR))
    return found
