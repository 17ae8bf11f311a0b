"""The result of a bench as one JSON object: numbers, machine, versions, date."""

from __future__ import annotations

import dataclasses
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import panacea
from panacea.experiment.rundir import environment
from panacea.experiment.speed.engines import Row
from panacea.experiment.speed.growth import Curve
from panacea.experiment.speed.measuring import WARM_UP
from panacea.experiment.speed.peers import PEERS
from panacea.experiment.speed.targets import Check

__all__ = ["OURS", "Bench", "tolerance_of"]

OURS = ("plain", "sequential", "vectorised", "compiled", "captured", "deterministic", "ray")
"""Columns that are not peers, in order."""

_SAME_BATCHES = 1.0  # points of accuracy between runs that saw the same batches


def tolerance_of(name: str) -> float:
    """How far an engine's or a peer's final accuracy may lie from the reference engine's, in points."""
    return PEERS[name].tolerance if name in PEERS else _SAME_BATCHES


@dataclass
class Bench:
    """What was measured so far.

    Attributes:
        device: where.
        rows: workloads.
        curves: growth.
        checks: targets, if they were asked for.
        interrupted: whether more was planned.
    """

    device: str
    rows: list[Row] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)
    checks: Sequence[Check] = ()
    interrupted: bool = False

    @property
    def notes(self) -> list[str]:
        """Of all workloads and curves, each once."""
        every = [*(note for row in self.rows for note in row.notes), *(n for curve in self.curves for n in curve.notes)]
        return list(dict.fromkeys(every))

    def mismatches(self) -> list[str]:
        """Where a model came out otherwise than the reference engine's: such a ratio compares unlike work."""
        found = []
        for row in self.rows:
            for name, timing in row.timings.items():
                if row.agrees(name, tolerance_of(name)) is False:
                    own, reference = timing.score, row.timings["sequential"].score
                    found.append(
                        f"{row.work.key}: {name} ended with {row.metric} {own:.4g}, sequential {reference:.4g}"
                    )
        return found

    def record(self) -> dict[str, Any]:
        """All of it, as JSON has it."""
        about = environment(self.device)
        versions = {"panacea": panacea.__version__, "python": platform.python_version(), **about["packages"]}
        return {
            "date": about["started"],
            "commit": about["commit"],
            "device": self.device,
            "machine": {
                "processor": about["processor"],
                "cores": about["cores"],
                "gpu": about["accelerator"],
                "threads": 1,
                "load": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
            },
            "versions": versions | {name: text for row in self.rows for name, text in row.versions.items()},
            "warm_up": WARM_UP,
            "workloads": [_row(row) for row in self.rows],
            "growth": [dataclasses.asdict(curve) for curve in self.curves],
            "checks": [dataclasses.asdict(check) for check in self.checks],
            "mismatches": self.mismatches(),
            "notes": self.notes,
            "interrupted": self.interrupted,
        }


def _row(row: Row) -> dict[str, Any]:
    engines = {}
    for name, timing in row.timings.items():
        engines[name] = {
            "ms": 1e3 * timing.median,
            "all_ms": [1e3 * seconds for seconds in timing.seconds],
            "busy": timing.busy if name in OURS else None,
            "first_wait_s": timing.wait,
            "score": timing.score,
            "agrees": row.agrees(name, tolerance_of(name)),
            "gflops": row.roofline.achieved(timing.median) / 1e9,
            "share_of_peak": row.roofline.share(timing.median),
            "scaled": name in row.scaled,
        }
    return {
        "workload": row.work.key,
        "label": row.work.label,
        "method": row.work.method,
        "parameters": row.parameters,
        "cohort": row.work.cohort,
        "steps": row.steps,
        "metric": row.metric,
        "engines": engines,
        "ratios": {
            slow: {fast: row.ratio(fast, slow) for fast in row.timings if fast in OURS[2:]}
            for slow in row.timings
            if slow not in OURS[2:]
        },
        "roofline": dataclasses.asdict(row.roofline),
    }
