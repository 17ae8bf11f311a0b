r"""`panacea compare --tune`: every method gets the same search before it is compared.

With lr the learning rate of the comparison (the data set's default unless one is given), each method tries nine
settings:

    lr x {1/3, 1, 3}  times  three values of the one key that matters most to it,

or, where it has no such key or the user fixed it, nine learning rates over the same range, ``lr 3^(i/4 - 1)`` for
i = 0..8, which contain the other three. The keys and values are in the package's `sweeps/_tuning.yaml`. With another
number of trials N, N settings are drawn at random between the same bounds. All run on the tuning seeds to the last
round, none is stopped early, and the best on validation data is chosen: the same number of settings, the same rounds,
the same seeds, and no test data. The tuning seeds are the first seed of the comparison; a run of the table is then also
a run of the search, and is not repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from panacea.data.registry import find_dataset
from panacea.errors import RequestError, RunFailure
from panacea.experiment.batch import Listener
from panacea.experiment.search.request import SearchRequest
from panacea.experiment.search.space import Choice, Dimension, Integer, Range, Setting, Space
from panacea.experiment.search.study import Found, run_search
from panacea.experiment.sweep import split_sweep

__all__ = ["TRIALS", "Tuned", "comparison_tuning", "plan_tuning", "tune_methods", "tuning_key", "with_settings"]

TRIALS = 9
_FACTORS = (1 / 3, 1.0, 3.0)


@dataclass(frozen=True)
class Tuned:
    """What a comparison with tuned methods needs to run and to say.

    Attributes:
        found: the search.
        chosen: the setting of each method.
    """

    found: Found
    chosen: Mapping[str, Setting]

    @property
    def caption(self) -> str:
        """What was tuned, on what budget, with what result."""
        request = self.found.request
        trials = len(self.found.trials) // len(self.chosen)
        seeds = ", ".join(map(str, request.seeds))
        settings = "; ".join(
            " ".join([method, *(f"{key}={value}" for key, value in setting.items())])
            for method, setting in self.chosen.items()
        )
        ranges = "; ".join(f"{method} {_ranges(space)}" for method, space in request.spaces.items())
        return (
            f"all methods tuned alike: {trials} settings each, {self.found.rounds} rounds, tuning seeds {seeds}, "
            f"chosen on validation data ({request.search} over {ranges}); chosen: {settings}"
        )


def _ranges(space: Space) -> str:
    """What was tried, in few words."""
    words = []
    for key, dimension in space.dimensions.items():
        many = isinstance(dimension, Choice) and len(dimension.values) <= len(_FACTORS)
        values = ", ".join(map(str, dimension.corners))
        first, last = dimension.corners[0], dimension.corners[-1]
        count = f" ({len(dimension.values)} values)" if isinstance(dimension, Choice) else ""
        words.append(f"{key} in {{{values}}}" if many else f"{key} from {first} to {last}{count}")
    return " and ".join(words)


def tuning_key(method: str) -> tuple[str, tuple[Any, ...]] | None:
    """The key that matters most to a method beside the learning rate, and the values to try; None if there is none."""
    content = yaml.safe_load(files("panacea").joinpath("sweeps", "_tuning.yaml").read_text(encoding="utf-8"))
    entry = content.get(method)
    if entry is None:
        return None
    ((key, values),) = entry.items()
    return key, tuple(values)


def plan_tuning(methods: Sequence[str], base: Mapping[str, Any], seeds: Sequence[int], trials: int) -> SearchRequest:
    """The search of a comparison: the same budget for each method.

    Args:
        methods: registered names.
        base: flat keys that all runs share; a learning rate among them is the centre of the grid, any other key stays.
        seeds: those to tune on.
        trials: settings per method.

    Raises:
        RequestError: naming the key.
    """
    if trials < 2:
        raise RequestError(f"--tune {trials}: at least 2 settings are needed to choose one")
    name = base.get("data")
    if not isinstance(name, str):
        raise RequestError("data is missing; for example data=fl60")
    lr = base.get("lr", find_dataset(name).defaults.lr)
    if isinstance(lr, bool) or not isinstance(lr, int | float) or not lr > 0:
        raise RequestError(f"lr={lr}: --tune tries a third and three times of it, so one number above 0 is needed")
    shared = {key: value for key, value in base.items() if key not in ("lr", "out")}
    request = SearchRequest(
        name=f"tune-{name}",
        about="the same budget for every method of a comparison",
        base=shared,
        spaces={method: _space(method, float(lr), shared, trials) for method in methods},
        seeds=tuple(seeds),
        search="grid" if trials == TRIALS else "random",
        trials=None if trials == TRIALS else trials,
        stop=None,
        out=Path(str(base.get("out", "runs"))).expanduser(),
    )
    request.check()
    return request


def comparison_tuning(keys: Mapping[str, Any], trials: int) -> SearchRequest:
    """The search for the flat keys of a comparison that were found right; of a varied key, its first value is taken.

    Raises:
        RequestError: a method comes with settings of its own.
    """
    shared = {key: value for key, value in keys.items() if key not in ("methods", "seeds", "target")}
    methods, seeds = _listed(keys["methods"]), _listed(keys["seeds"])
    for method in methods:
        if not isinstance(method, str) or method.endswith((".yaml", ".yml")):
            raise RequestError(f"methods: {method} has settings of its own; --tune takes names and finds the settings")
    for key in shared:
        if key.startswith("method.") and key.count(".") > 1:
            raise RequestError(f"{key} is a setting of one method; --tune finds those, with the same budget for all")
    fixed, axes = split_sweep(shared, methods)
    if any(axis.key == "lr" for axis in axes):
        raise RequestError(f"lr={','.join(map(str, shared['lr']))}: --tune chooses lr, so it cannot be varied")
    return plan_tuning(methods, fixed | {axis.key: axis.values[0] for axis in axes}, seeds[:1], trials)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def with_settings(keys: Mapping[str, Any], tuned: Tuned) -> dict[str, Any]:
    """The keys of the comparison with the files of the chosen settings as its methods; see `write_tables`."""
    folder, many = tuned.found.request.folder, len(tuned.chosen) > 1
    paths = [str(folder / (f"best-{name.replace(':', '.')}.yaml" if many else "best.yaml")) for name in tuned.chosen]
    return {**{key: value for key, value in keys.items() if key != "lr"}, "methods": paths}


def _space(method: str, lr: float, shared: Mapping[str, Any], trials: int) -> Space:
    own = tuning_key(method)
    if own is not None and own[0] in shared:
        own = None  # the user decided
    dimensions: dict[str, Dimension]
    if trials != TRIALS:
        low, high = _rounded(lr * _FACTORS[0]), _rounded(lr * _FACTORS[-1])
        dimensions = {"lr": Range(low, high, log=True)}
        return Space(dimensions if own is None else {**dimensions, own[0]: _between(own[1])})
    if own is not None:
        return Space({"lr": Choice(tuple(_rounded(lr * factor) for factor in _FACTORS)), own[0]: Choice(own[1])})
    steps = range(TRIALS)
    return Space({"lr": Choice(tuple(_rounded(lr * 3 ** (2 * i / (TRIALS - 1) - 1)) for i in steps))})


def _between(values: Sequence[Any]) -> Dimension:
    """The bounds of listed values, which are all positive."""
    low, high = min(values), max(values)
    return Integer(low, high) if all(isinstance(value, int) for value in values) else Range(low, high, log=True)


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def tune_methods(
    request: SearchRequest,
    *,
    workers: int | None = None,
    listener: Listener | None = None,
    cluster: str | None = None,
) -> Tuned:
    """Run the search of `plan_tuning`.

    Raises:
        RunFailure: for some method no setting came to its end; a comparison without it would not be what was asked for.
    """
    found = run_search(request, workers=workers, listener=listener, cluster=cluster)
    chosen: dict[str, Setting] = {}
    for method in request.spaces:
        best = found.best(method)
        if best is None:
            first = next((t.error for t in found.trials if t.method == method and t.error is not None), "")
            raise RunFailure(f"--tune: no setting of {method} came to its end; the first: {first}")
        chosen[method] = best.setting
    return Tuned(found, chosen)
