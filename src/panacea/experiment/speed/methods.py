"""How fast each method's rounds are here, in both engines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from panacea.errors import RunFailure
from panacea.experiment.config import build_config
from panacea.experiment.experiment import Experiment
from panacea.experiment.speed.measuring import interleave, one_thread
from panacea.experiment.speed.runners import EngineRunner
from panacea.methods import find_method, method_names

__all__ = ["WORKLOAD", "MethodSpeed", "measure_methods"]

WORKLOAD = "W1: fl60, MLP 2-16-16-2, 5 clients a round, 50 local steps of batches of 64, server work included"
_ENGINES = ("vectorised", "sequential")
_KEYS = {"fedbn": {"model": "mlp", "model.norm": "batch"}}  # refuses networks without BatchNorm


@dataclass(frozen=True)
class MethodSpeed:
    """A method's median round.

    Attributes:
        method: its name.
        model: the network, where it is not the workload's.
        gradients: gradient evaluations of one local step.
        vectorised_ms: milliseconds of a round in the fast engine.
        sequential_ms: and in the reference engine, on the same clients and batches.
        ratio: of the two medians.
    """

    method: str
    model: str
    gradients: int
    vectorised_ms: float
    sequential_ms: float
    ratio: float


def measure_methods(
    names: Sequence[str] = (), repeats: int = 7, tell: Callable[[str], None] | None = None
) -> list[MethodSpeed]:
    """Time rounds of W1 in both engines, taking turns, one thread.

    Args:
        names: methods; all registered ones by default.
        repeats: timed rounds of each engine, after two that are not counted.
        tell: called with each method's name before it is measured.

    Raises:
        RequestError: an unknown method.
    """
    wanted = list(names) or method_names()
    for name in wanted:
        find_method(name)
    found = []
    with one_thread():
        for name in wanted:
            if tell is not None:
                tell(name)
            found.append(_measure(name, repeats))
    return found


def _measure(name: str, repeats: int) -> MethodSpeed:
    experiments = {engine: _experiment(name, engine) for engine in _ENGINES}
    timings, notes = interleave({engine: EngineRunner(found) for engine, found in experiments.items()}, repeats)
    if len(timings) < len(_ENGINES):
        raise RunFailure(notes[-1])
    fast, slow = (1e3 * timings[engine].median for engine in _ENGINES)
    model = "with BatchNorm" if "model.norm" in _KEYS.get(name, {}) else ""
    return MethodSpeed(name, model, experiments["vectorised"].method.gradients, fast, slow, slow / fast)


def _experiment(name: str, engine: str) -> Experiment:
    keys = {"data": "fl60", "method": name, "engine": engine, "rounds": 800, "seed": 0, "device": "cpu"}
    return Experiment(build_config({**keys, **_KEYS.get(name, {})}))
