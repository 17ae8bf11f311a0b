"""What `panacea sweep` is asked for: a file (the user's or a shipped one), keys on top of it, all checked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from panacea.core.validation import validated
from panacea.errors import RequestError, unknown
from panacea.experiment.config import ExperimentConfig, build_config
from panacea.experiment.keys import SECTIONS, read_yaml
from panacea.experiment.search.searchers import BATCH, SEARCHES
from panacea.experiment.search.space import Setting, Space, parse_space
from panacea.experiment.search.stopping import Halving
from panacea.experiment.sweep import check_config

__all__ = ["SearchRequest", "parse_request", "read_request", "shipped_sweeps"]


class _Keys(BaseModel):
    """The keys of a search that are neither `base`, `space`, `stop`, `methods` nor `seeds`."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    name: str = Field("sweep", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", description="name of its folder")
    about: str = Field("", description="one line for tables")
    search: str = Field("grid", description="grid, random or optuna")
    trials: int | None = Field(None, ge=1, description="settings per method (random, optuna)")
    search_seed: int = Field(0, ge=0, lt=2**32, description="of the drawn settings")
    batch: int = Field(BATCH, ge=1, description="settings that Optuna proposes at a time")
    out: str = Field("runs", description="folder of the runs and of the sweep's own folder")


class _Stop(BaseModel):
    """The keys below `stop`."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    name: str = "halving"
    grace: int | None = Field(None, ge=1, description="rounds before anything is stopped")
    factor: float = Field(2.0, gt=1, description="one in so many goes on at each rung")


_OWN = (*_Keys.model_fields, "base", "space", "stop", "method", "methods", "seeds")
_BELOW = {"base": "base: {data: fl60, rounds: 100}", "space": "space: {lr: [0.01, 0.1]}"}
_STOPS = ("halving", "none")


@dataclass(frozen=True)
class SearchRequest:
    """A whole search.

    Attributes:
        name: of its folder.
        about: one line on where its grid comes from.
        base: flat keys that all runs share.
        spaces: what is varied, for each method.
        seeds: every setting runs on all of them; its score is their mean.
        search, trials, search_seed, batch: who proposes settings, how many, from what seed, how many at a time.
        stop: the rule that ends hopeless settings; None: all run to the end.
        out: folder of the runs.
    """

    name: str
    about: str
    base: Mapping[str, Any]
    spaces: Mapping[str, Space]
    seeds: tuple[int, ...]
    search: str = "grid"
    trials: int | None = None
    search_seed: int = 0
    batch: int = BATCH
    stop: Halving | None = None
    out: Path = Path("runs")

    def config(self, method: str, setting: Setting, seed: int) -> ExperimentConfig:
        """One run."""
        return build_config(self.keys(method, setting, seed))

    def keys(self, method: str, setting: Setting, seed: int) -> dict[str, Any]:
        """The flat keys of one run, as `panacea run` takes them."""
        return {**self.base, "method": method, **setting, "seed": seed, "out": str(self.out)}

    def check(self) -> None:
        """Every value of every key is tried out before anything is trained.

        Raises:
            RequestError: naming the key.
        """
        for method, space in self.spaces.items():
            if not space.dimensions:
                raise RequestError(f"space has no key for {method}; give some, for example space.{method}.lr=0.01,0.1")
            for key in space.dimensions:
                if key in self.base:
                    raise RequestError(f"{key} is under base and under space; one value or several, not both")
            for setting in space.corners():
                check_config(self.config(method, setting, self.seeds[0]), remark="")
            for key in ("rounds", "eval_every"):
                if self.stop is not None and key in space.dimensions:
                    raise RequestError(
                        f"space.{key}: settings of different {key} cannot be compared midway; use stop=none"
                    )

    @property
    def folder(self) -> Path:
        """``<out>/sweep-<name>-<six hex digits of all that was asked for>``."""
        asked = {
            "base": dict(self.base),
            "spaces": {m: {k: repr(d) for k, d in s.dimensions.items()} for m, s in self.spaces.items()},
            "how": [self.seeds, self.search, self.trials, self.search_seed, self.batch, repr(self.stop)],
        }
        digits = hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode()).hexdigest()[:6]
        return self.out / f"sweep-{self.name}-{digits}"


def parse_request(flat: Mapping[str, Any], name: str = "sweep") -> SearchRequest:
    """A search from flat keys; whether runs take the values of its space, `SearchRequest.check` finds out.

    Keys of a run (`rounds=100`, `data.clients=6`) may stand at the top too, where they win over those under `base`.

    Args:
        flat: all keys.
        name: used where the keys give none.

    Raises:
        RequestError: a key is unknown or its value is wrong.
    """
    own, base = _sides(flat)
    methods = [str(one) for one in _several(own, base, "method", "fedavg,ditto")]
    seeds = _several(own, base, "seed", "0..2", default=[0])
    if not all(isinstance(seed, int) and not isinstance(seed, bool) for seed in seeds):
        raise RequestError(f"seeds={','.join(map(str, seeds))}: seeds are whole numbers, for example seeds=0..2")
    if "out" in base:
        own.setdefault("out", base.pop("out"))
    space = {key.partition(".")[2]: own.pop(key) for key in list(own) if key.startswith("space.")}
    if not space:
        raise RequestError("space is missing: the keys to search, for example space.lr=0.01,0.03,0.1")
    stop = _stop({key: own.pop(key) for key in list(own) if key.partition(".")[0] == "stop"})
    keys = validated(_Keys, {"name": name, **own, "out": str(own.get("out", "runs"))}, "")
    if keys.search not in SEARCHES:
        raise unknown("search", keys.search, SEARCHES)
    return SearchRequest(
        name=keys.name,
        about=keys.about,
        base=base,
        spaces=parse_space(space, methods),
        seeds=tuple(seeds),
        search=keys.search,
        trials=keys.trials,
        search_seed=keys.search_seed,
        batch=keys.batch,
        stop=stop,
        out=Path(keys.out).expanduser(),
    )


def _sides(flat: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The keys of the search itself, and those of its runs."""
    own, base, direct = dict[str, Any](), dict[str, Any](), dict[str, Any]()
    for key, value in flat.items():
        head, _, rest = key.partition(".")
        if key in _BELOW:
            raise RequestError(f"{key}={value}: keys with their values are needed below it, for example {_BELOW[key]}")
        if head in ("methods", "seeds") and key != head:
            some = "[fedavg, ditto]" if head == "methods" else "[0, 1, 2]"
            raise RequestError(f"{key}={value}: {head} is a list without keys, for example {head}: {some}")
        if head == "base":
            base[_section_name(rest)] = value
        elif head in SECTIONS and key != "method":
            direct[key] = value
        elif head in _OWN:
            own[key] = value
        elif key in ExperimentConfig.model_fields:
            direct[key] = value
        else:
            raise unknown("key", key, [*_OWN, *ExperimentConfig.model_fields])
    return own, base | direct


def _section_name(key: str) -> str:
    """`data.name` of a nested base is `data`."""
    return key.removesuffix(".name") if key.removesuffix(".name") in SECTIONS else key


def _several(
    own: dict[str, Any], base: dict[str, Any], one: str, example: str, default: Sequence[Any] | None = None
) -> list[Any]:
    """`method`/`methods` and `seed`/`seeds`, wherever they stand; a single value is a list of one."""
    found = [there.pop(key) for there in (own, base) for key in (f"{one}s", one) if key in there]
    if len(found) > 1:
        raise RequestError(f"{one} and {one}s are given; one of them is enough")
    value = found[0] if found else default
    values = value if isinstance(value, list) else [] if value is None else [value]
    if not values:
        raise RequestError(f"{one}s is missing; for example {one}s={example}")
    if len(set(map(str, values))) != len(values):
        raise RequestError(f"{one}s={','.join(map(str, values))}: a {one} is given twice")
    return values


def _stop(given: Mapping[str, Any]) -> Halving | None:
    """Nothing is stopped unless asked for; `stop.grace` or `stop.factor` alone ask for it too."""
    values = {"name" if key == "stop" else key.partition(".")[2]: value for key, value in given.items()}
    if "name" in values:
        values["name"] = "none" if values["name"] in (None, False) else str(values["name"])
    keys = validated(_Stop, values, "stop")
    if keys.name not in _STOPS:
        raise unknown("stop", keys.name, _STOPS)
    return None if keys.name == "none" or not values else Halving(keys.grace, keys.factor)


# --- files ------------------------------------------------------------------------------------------------------


def _shipped() -> dict[str, Traversable]:
    """The searches inside the package by name; those that begin with `_` are not for users."""
    found = [file for file in files("panacea").joinpath("sweeps").iterdir() if file.name.endswith(".yaml")]
    return {file.name[:-5]: file for file in sorted(found, key=lambda file: file.name) if file.name[0] != "_"}


def shipped_sweeps() -> dict[str, SearchRequest]:
    """The searches inside the package."""
    return {name: parse_request(read_yaml(Path(str(file))), name) for name, file in _shipped().items()}


def read_request(source: str, overrides: Mapping[str, Any]) -> SearchRequest:
    """A search from a file or from the name of a shipped one; keys on top of it win.

    Raises:
        RequestError: there is no such file, or something in it is wrong.
    """
    path, shipped = Path(source), _shipped()
    if source in shipped:
        path = Path(str(shipped[source]))
    elif not path.exists() and path.suffix not in (".yaml", ".yml"):
        raise unknown("sweep", source, shipped)
    flat = read_yaml(path)
    for key in overrides:
        for old in [old for old in flat if _replaced(old, key, _names(flat), _names(overrides))]:
            del flat[old]
    request = parse_request({**flat, **overrides}, path.stem)
    request.check()
    return request


def _names(flat: Mapping[str, Any]) -> list[str]:
    """The methods that keys name, however they do."""
    given: Any = next((flat[key] for key in ("methods", "method", "base.method") if key in flat), [])
    return [str(name) for name in (given if isinstance(given, list) else [given])]


def _replaced(old: str, new: str, before: Sequence[str], now: Sequence[str]) -> bool:
    """Whether a key of the file gives way to one of the command line.

    `space.lr=0.1,0.3` replaces a distribution of lr, `lr=0.1` any search over it, `methods=ditto` the file's methods
    and what is searched for the others alone.

    Args:
        old: a key of the file.
        new: a key of the command line.
        before: the file's methods.
        now: those of the command line, if any.
    """
    pairs = (("method", "methods"), ("seed", "seeds"))
    same = next((pair for pair in pairs if new in pair), (new,))
    if old.removeprefix("base.") in same or old.startswith(f"{new}."):
        return True
    if new in ("method", "methods"):
        return old.startswith(tuple(f"space.{method}." for method in before if method not in now))
    fixed = [f"{start}{new}" for start in ("space.", *(f"space.{method}." for method in before))]
    return any(old == one or old.startswith(f"{one}.") for one in fixed)
