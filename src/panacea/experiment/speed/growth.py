"""`panacea bench growth`: a round with more clients, among more clients, of larger models, of more seeds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import torch

from panacea.errors import PanaceaError, unknown
from panacea.experiment.memory import peak_memory
from panacea.experiment.speed.engines import LOOPS, engine_keys
from panacea.experiment.speed.measuring import Runner, interleave
from panacea.experiment.speed.replicas import measure_replicas
from panacea.experiment.speed.runners import EngineRunner
from panacea.experiment.speed.workloads import Workload, experiment_of, find_workload, points_federation

__all__ = ["CURVES", "Curve", "Plan", "Point", "measure_growth"]

CURVES = ("cohort", "clients", "model", "replicas")
_LOOPED = 20  # clients that a loop over clients really trains in `cohort`; more of them take so much longer
_SEEDS = (1, 5, 10, 35)


@dataclass(frozen=True)
class Point:
    """One measurement of a curve.

    Attributes:
        size: what grows.
        ms: milliseconds of a round by engine; for `replicas` of all seeds together, by workload, and of local
            training alone.
        memory: peak bytes of the process (CPU) or of the device (CUDA), where it was measured.
        scaled: engines measured with fewer clients and multiplied.
    """

    size: int
    ms: Mapping[str, float]
    memory: int | None = None
    scaled: tuple[str, ...] = ()


@dataclass(frozen=True)
class Curve:
    """What a round costs as something grows.

    Attributes:
        name: one of `CURVES`.
        title: what grows, in words.
        points: in ascending order.
        notes: what a reader should know.
    """

    name: str
    title: str
    points: tuple[Point, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """The sizes of every curve.

    Attributes:
        device: where.
        only: names of curves; all if empty.
        repeats: timed rounds of each engine.
        quick: smaller sizes only.
    """

    device: str = "cpu"
    only: Sequence[str] = ()
    repeats: int = 5
    quick: bool = False

    def __post_init__(self) -> None:
        for name in self.only:
            if name not in CURVES:
                raise unknown("curve", name, CURVES)

    def names(self) -> tuple[str, ...]:
        """The curves to measure."""
        return tuple(name for name in CURVES if not self.only or name in self.only)

    def sizes(self, curve: str) -> tuple[int, ...]:
        """Of one curve."""
        most = {
            "cohort": (5, 20, 60, 200, 1000) if self.device == "cuda" else (5, 20, 60, 200),
            "clients": (1_000, 10_000, 100_000),
            "model": (16, 64, 256, 1024),
            "replicas": _SEEDS,
        }[curve]
        return most[:2] if self.quick else most


def measure_growth(plan: Plan, tell: Callable[[str], None] | None = None) -> Iterator[Curve]:
    """Measure curve after curve; `tell` is called after each point."""
    measures = {"cohort": _cohort, "clients": _clients, "model": _model, "replicas": _replicas}
    for name in plan.names():
        yield measures[name](plan, tell or (lambda _: None))


def _cohort(plan: Plan, tell: Callable[[str], None]) -> Curve:
    """FedAvg rounds of W1's network with more and more clients in one round."""
    points, notes = [], set[str]()
    federation = points_federation(max(plan.sizes("cohort")))
    for size in plan.sizes("cohort"):
        work = dataclasses.replace(find_workload("W1"), cohort=size, looped=min(size, _LOOPED))
        point, said = _point(size, work, plan, federation)
        points.append(point)
        notes.update(said)
        tell(f"cohort {size}")
    return Curve("cohort", "clients a round (MLP 2-16-16-2, FedAvg)", tuple(points), tuple(sorted(notes)))


def _model(plan: Plan, tell: Callable[[str], None]) -> Curve:
    """FedAvg rounds of MLPs with two hidden layers; the size is the number of parameters."""
    points, notes = [], set[str]()
    for width in plan.sizes("model"):
        wide = {"model.hidden": [width, width]}
        work = dataclasses.replace(find_workload("W1"), options=wide, steps=50 if width < 1024 else 10)
        size = experiment_of(work, {"engine": "sequential"}, plan.device).target.layout.size
        point, said = _point(size, work, plan, None)
        points.append(point)
        notes.update(said)
        tell(f"model {size}")
    if 1024 in plan.sizes("model"):
        notes.add("the largest network takes 10 local steps instead of 50")
    return Curve("model", "parameters of an MLP (5 clients a round, FedAvg)", tuple(points), tuple(sorted(notes)))


def _point(size: int, work: Workload, plan: Plan, federation: Any) -> tuple[Point, list[str]]:
    keys, notes = engine_keys(plan.device, quick=plan.quick)
    keys.pop("deterministic", None)  # as much slower at any size
    few = work if work.looped is None else dataclasses.replace(work, cohort=work.looped)
    runners: dict[str, Runner] = {}
    for name, own in keys.items():
        try:
            runners[name] = EngineRunner(experiment_of(few if name in LOOPS else work, own, plan.device, federation))
        except PanaceaError as error:
            notes.append(f"{name}: {error}")
    timings, failed = interleave(runners, plan.repeats)
    factor = work.cohort / few.cohort
    scaled = tuple(name for name in LOOPS if factor > 1 and name in timings)
    ms = {name: 1e3 * found.median * (factor if name in scaled else 1) for name, found in timings.items()}
    return Point(size, ms, scaled=scaled), [*notes, *failed]


def _clients(plan: Plan, tell: Callable[[str], None]) -> Curve:
    """Panacea rounds of 5 clients on sparse graphs, each size in a process of its own: peaks of memory never fall."""
    points = []
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as pool:
        for size in plan.sizes("clients"):
            points.append(pool.submit(large_round, size, plan.repeats, plan.device).result())
            tell(f"clients {size}")
    title = "clients in all (Panacea, random graph of mean degree 6, 5 clients a round)"
    return Curve("clients", title, tuple(points))


def large_round(clients: int, repeats: int, device: str) -> Point:
    """A Panacea round among so many clients, and the most memory this process ever had."""
    torch.set_num_threads(1)
    work = dataclasses.replace(find_workload("W1"), method="panacea")
    runner = EngineRunner(experiment_of(work, {"engine": "vectorised"}, device, points_federation(clients, 10)))
    timings, _ = interleave({"vectorised": runner}, repeats)
    return Point(clients, {"vectorised": 1e3 * timings["vectorised"].median}, peak_memory(device))


def _replicas(plan: Plan, tell: Callable[[str], None]) -> Curve:
    """Rounds of several seeds in lock-step; in place of engines there are workloads."""
    title = "seeds in lock-step (FedAvg; a round of all of them, and their training in one call)"
    works = ("W1", "W2") if plan.device == "cuda" else ("W1",)
    points = []
    for size in plan.sizes("replicas"):
        ms: dict[str, float] = {}
        for key in works:
            found = measure_replicas(key, size, 3 * plan.repeats, plan.device)
            ms |= {key: 1e3 * found.round, f"{key} training": 1e3 * found.call}
        points.append(Point(size, ms))
        tell(f"replicas {size}")
    return Curve("replicas", title, tuple(points))
