"""`panacea bench`: every workload in every engine, beside a plain loop and, if asked for, beside peers."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from panacea.engines.ray_engine import RayEngine
from panacea.errors import PanaceaError
from panacea.experiment.speed.measuring import WARM_UP, Runner, Timing, interleave
from panacea.experiment.speed.peers import Peers
from panacea.experiment.speed.roofline import Roofline, gemm_peak, step_flops
from panacea.experiment.speed.runners import EngineRunner, NaiveRunner, PlainRunner
from panacea.experiment.speed.workloads import Workload, choose, experiment_of

__all__ = ["LOOPS", "Request", "Row", "engine_keys", "measure_engines", "planned_rounds", "rounds_of"]

LOOPS = ("plain", "sequential")
"""What goes through the clients one by one: the time is proportional to them."""

_VECTORISED = {"engine": "vectorised"}
_REPEATS = {"W1": 21, "W1-20": 11, "W1-panacea": 21}  # where a round takes milliseconds
_LONG, _QUICK = 7, 3
_BUSY = 1.3  # from here on a reader is told


@dataclass(frozen=True)
class Request:
    """What to measure.

    Attributes:
        device: `cpu` or `cuda`.
        only: names of workloads; all if empty.
        repeats: timed rounds of each engine; by the workload if None.
        quick: under a minute: three timed rounds, and fewer steps of the long workloads.
        peers: other programmes to do the same work.
        ray: also measure `engine=ray`, with a worker for every core.
    """

    device: str = "cpu"
    only: Sequence[str] = ()
    repeats: int | None = None
    quick: bool = False
    peers: Peers = field(default_factory=Peers)
    ray: bool = False


@dataclass(frozen=True)
class Row:
    """What was seen of one workload.

    Attributes:
        work: the workload.
        steps: local steps of a client in a round.
        parameters: of the network.
        metric: what scores are: `accuracy` (percent) or `mse`.
        timings: by engine or peer.
        roofline: operations, and the machine's peak.
        notes: what a reader should know.
        scaled: engines that were measured with fewer clients and multiplied.
        versions: of the peers that ran.
    """

    work: Workload
    steps: int
    parameters: int
    metric: str
    timings: Mapping[str, Timing]
    roofline: Roofline
    notes: tuple[str, ...] = ()
    scaled: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)

    def ratio(self, fast: str, slow: str) -> float | None:
        """How many times faster; None where one was not measured."""
        if fast not in self.timings or slow not in self.timings:
            return None
        return self.timings[slow].median / self.timings[fast].median

    def agrees(self, name: str, tolerance: float) -> bool | None:
        """Whether an engine or peer ended with the reference engine's metric; None where it cannot be said.

        Args:
            name: the engine or peer.
            tolerance: points of accuracy; of an MSE as many hundredths of the reference's.
        """
        reference = self.timings.get("sequential")
        own = self.timings.get(name)
        if reference is None or own is None or reference.score is None or own.score is None:
            return None
        unit = 1.0 if self.metric == "accuracy" else reference.score / 100
        return abs(own.score - reference.score) <= tolerance * unit


def engine_keys(device: str, *, quick: bool = False, ray: bool = False) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """The keys of every engine that exists for a device, and notes on what is left out.

    Compiling takes up to a minute for each network, so a `quick` look goes without.
    """
    gpu = device == "cuda"
    wanted: dict[str, dict[str, Any]] = {"sequential": {"engine": "sequential"}, "vectorised": dict(_VECTORISED)}
    if gpu:
        wanted["vectorised"]["engine.capture"] = False
        wanted["captured"] = {**_VECTORISED, "engine.capture": True}
    if not quick:
        wanted["compiled"] = {**_VECTORISED, "engine.compile": True}  # on a GPU compiled steps are captured, too
    if gpu:
        wanted["deterministic"] = {**wanted["captured"], "engine.deterministic": True}
    if ray:
        wanted["ray"] = {"engine": "ray"}
    return wanted, ["compiled is left out of --quick, for compiling alone may take a minute"] if quick else []


def rounds_of(request: Request, work: Workload) -> int:
    """Timed rounds of a workload."""
    if request.repeats is not None:
        return request.repeats
    return _QUICK if request.quick else _REPEATS.get(work.key, _LONG)


def planned_rounds(request: Request) -> int:
    """All rounds there will be, for a progress bar; a peer that does not start takes no part."""
    keys, _ = engine_keys(request.device, quick=request.quick, ray=request.ray)
    return sum(
        (WARM_UP + rounds_of(request, work)) * (1 + len(keys) + len(request.peers.able(work)))
        for work in choose(request.only, request.device, quick=request.quick)
    )


def measure_engines(request: Request, tell: Callable[[str], None] | None = None) -> Iterator[Row]:
    """Measure the workloads one after the other; all ways to run one take turns.

    Args:
        request: what.
        tell: called after each round with what was run.
    """
    keys, notes = engine_keys(request.device, quick=request.quick, ray=request.ray)
    peak = gemm_peak(request.device)
    for work in choose(request.only, request.device, quick=request.quick):
        with ExitStack() as stack:
            yield _row(work, request, keys, peak, notes, stack, tell)
        notes = []  # said once


def _row(
    work: Workload,
    request: Request,
    keys: Mapping[str, Mapping[str, Any]],
    peak: float,
    notes: Sequence[str],
    stack: ExitStack,
    tell: Callable[[str], None] | None,
) -> Row:
    device, notes = request.device, list(notes)
    few = work if work.looped is None else dataclasses.replace(work, cohort=work.looped)
    reference = experiment_of(few, keys["sequential"], device)
    runners: dict[str, Runner] = {}
    if work.method == "panacea":
        if importlib.util.find_spec("torch_geometric") is not None:
            runners["plain"] = NaiveRunner(reference)
        else:
            notes.append(f"{work.key}: the naive loop needs torch_geometric (pip install torch-geometric)")
    else:
        runners["plain"] = PlainRunner(reference, few)
    runners["sequential"] = EngineRunner(reference)
    for name in keys:
        if name not in runners:
            try:
                experiment = experiment_of(work, keys[name], device)
                if isinstance(experiment.engine, RayEngine):
                    stack.callback(experiment.engine.close)
                runners[name] = EngineRunner(experiment)
            except PanaceaError as error:
                notes.append(f"{name}: {error}")
    started, more = request.peers.start(work, device, stack)
    runners |= started
    timings, failed = interleave(runners, rounds_of(request, work), _said(tell, work))
    if device == "cpu" and "sequential" in timings and timings["sequential"].busy > _BUSY:
        times = f"{timings['sequential'].busy:.1f} times"
        notes.append(
            f"{work.key}: others had this core too, a sequential round took {times} as long as it computed; engines "
            "suffer alike, but ratios to peers, which run in processes of their own, are less certain"
        )
    scaled = tuple(name for name in LOOPS if work.looped is not None and name in timings)
    for name in scaled:
        timings[name] = timings[name].scaled(work.cohort / (work.looped or 1))
    steps = work.steps_on(device)
    flops = step_flops(reference, work)
    return Row(
        work,
        steps,
        reference.target.layout.size,
        reference.federation.task.metric,
        timings,
        Roofline(flops, flops * steps * work.cohort, peak),
        (*notes, *more, *failed),
        scaled,
        {name: peer.version for name, peer in started.items()},
    )


def _said(tell: Callable[[str], None] | None, work: Workload) -> Callable[[str], None] | None:
    return None if tell is None else lambda name: tell(f"{work.key} {name}")
