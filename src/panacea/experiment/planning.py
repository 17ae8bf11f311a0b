"""What a comparison asks for: which methods with which settings, which seeds, which varied keys; one job per run."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from panacea.errors import RequestError, unknown
from panacea.experiment.batch import Job
from panacea.experiment.config import WITHOUT_EFFECT, ExperimentConfig, build_config
from panacea.experiment.keys import read_yaml
from panacea.experiment.sweep import Axis, check_config, split_sweep
from panacea.robustness import make_attack

__all__ = ["Plan", "Planned", "plan_comparison"]

TUNED = (
    "lr", "server_lr", "server_steps", "local_steps", "local_epochs", "batch_size", "momentum", "weight_decay", "clip",
)  # fmt: skip
"""Keys outside `method.*` that a file of settings brings into a comparison; what all methods share stays shared."""


@dataclass(frozen=True)
class Planned:
    """One run: the method's name in the table, the values of the varied keys, and the job."""

    label: str
    values: tuple[Any, ...]
    job: Job

    @property
    def data_seed(self) -> int:
        """Which draw of the data it is of; runs on the same data are about the same clients."""
        config = self.job.config
        return int(config.data.keys.get("seed", config.seed))


@dataclass(frozen=True)
class Plan:
    """A whole comparison.

    Attributes:
        axes: the varied keys; none in a plain comparison.
        runs: all runs, method by method.
        target: the validation metric whose price in bytes is asked for; None: see `panacea.experiment.prices`.
        tuned: how the methods' settings were chosen, for captions; empty: they were given.
    """

    axes: tuple[Axis, ...]
    runs: tuple[Planned, ...]
    target: float | None = None
    tuned: str = ""

    @property
    def config(self) -> ExperimentConfig:
        """The first run's."""
        return self.runs[0].job.config

    @property
    def request(self) -> str:
        """What is attacked and defended, for a title; what is varied the table says itself."""
        config, varied, parts = self.config, {axis.key for axis in self.axes}, []
        if config.attack.name != "none" and "attack" not in varied:
            ratio = {} if config.attack.keys.get("clients") else {"ratio": make_attack("none", {}).keys.ratio}
            keys = {**ratio, **config.attack.keys}
            given = [f"attack.{key}={value}" for key, value in keys.items() if f"attack.{key}" not in varied]
            parts.append(" ".join([f"attack={config.attack.name}", *given]))
        if config.defence.name != "none" and "defence" not in varied:
            given = [f"defence.{key}={value}" for key, value in config.defence.keys.items()]
            parts.append(" ".join([f"defence={config.defence.name}", *given]))
        return ", ".join(parts)

    @property
    def folder(self) -> Path:
        """``<out>/compare-<data>[-<attack or varied key>]-<six hex digits of all that was asked for>``."""
        config = self.config
        asked: list[Any] = [run.job.config.model_dump(mode="json", exclude=set(WITHOUT_EFFECT)) for run in self.runs]
        if self.target is not None:
            asked.append(self.target)
        if self.tuned:
            asked.append(self.tuned)
        digits = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:6]
        about = [axis.key for axis in self.axes[:1]]
        if config.attack.name != "none" and (not about or about[0].startswith("attack.")):
            about = [config.attack.name]
        return config.out / "-".join(["compare", config.data.name, *about, digits])


@dataclass(frozen=True)
class _Entry:
    """One of the methods: its name in the table, its registered name, and the keys that are its own."""

    label: str
    method: str
    keys: Mapping[str, Any]


def plan_comparison(keys: Mapping[str, Any], *, loaded: bool = True) -> Plan:
    """The runs that flat keys ask for; everything that can be checked without data is checked.

    An entry of `methods` is a registered name, a file of settings (``best.yaml`` of `panacea sweep`, or any file for
    `panacea run`), or in a YAML file also ``{name: ditto, lam: 0.1}``. `method.KEY` goes to every method,
    `method.NAME.KEY` to that one. A key of several values where it takes one is varied.

    Args:
        keys: the keys of a run, with `methods` and `seeds` for `method` and `seed`, and `target`.
        loaded: whether the data come by name; otherwise they are given from Python, and no key is theirs.

    Raises:
        RequestError: naming the key.
    """
    keys = dict(keys)
    target = keys.pop("target", None)
    number = isinstance(target, int | float) and not isinstance(target, bool) and math.isfinite(target)
    if target is not None and not number:
        raise RequestError(f"target={target}: a number is needed, the validation metric to be reached")
    given, seeds = _several(keys, "methods", "fedavg,fedavg_ft"), _several(keys, "seeds", "0..2")
    for extra in ("method", "seed"):
        if extra in keys:
            raise RequestError(f"{extra} is for `panacea run`; compare takes {extra}s")
    if not all(isinstance(seed, int) and not isinstance(seed, bool) for seed in seeds):
        raise RequestError(f"seeds={seeds}: seeds are whole numbers, for example seeds=0..4")
    entries = _entries(given, keys)
    fixed, axes = split_sweep(keys, list(dict.fromkeys(entry.method for entry in entries)))
    runs = []
    for entry, *values, seed in itertools.product(entries, *(axis.values for axis in axes), seeds):
        varied = {axis.key: value for axis, value in zip(axes, values, strict=True)}
        own = {key: value for key, value in entry.keys.items() if key.startswith("method.")}
        config = build_config({**entry.keys, **fixed, **varied, **own, "method": entry.method, "seed": seed})
        check_config(config, loaded=loaded)  # nothing is trained while a later request is wrong
        label = entry.label + "".join(f" {key}={value}" for key, value in varied.items())
        runs.append(Planned(entry.label, tuple(values), Job(config, f"{label} seed {seed}")))
    return Plan(axes, tuple(runs), None if target is None else float(target))


def _several(keys: dict[str, Any], name: str, example: str) -> list[Any]:
    """A key that is a list; one value is a list of one."""
    value = keys.pop(name, None)
    values = value if isinstance(value, list) else [] if value is None else [value]
    if not values:
        raise RequestError(f"{name} is missing; for example {name}={example}")
    if len(set(map(str, values))) != len(values):
        raise RequestError(f"{name}={','.join(map(str, values))}: a {name[:-1]} is given twice")
    return values


def _entries(given: Sequence[Any], keys: dict[str, Any]) -> list[_Entry]:
    """The methods; takes `method.NAME.KEY` out of the keys."""
    entries = [_entry(one, keys) for one in given]
    names = [entry.label for entry in entries]
    for label in names:
        if names.count(label) > 1:
            raise RequestError(f"methods: two entries are called {label} in the table; rename a file of settings")
    for key in [key for key in keys if key.startswith("method.") and key.count(".") > 1]:
        _, name, own = key.split(".", 2)
        if name not in names:
            raise RequestError(f"{key}: {unknown('method of this comparison', name, names)}")
        place = names.index(name)
        entry = entries[place]
        entries[place] = _Entry(entry.label, entry.method, {**entry.keys, f"method.{own}": keys.pop(key)})
    return entries


def _entry(one: Any, keys: Mapping[str, Any]) -> _Entry:
    if isinstance(one, Mapping):
        if not isinstance(one.get("name"), str):
            raise RequestError(f"methods: {dict(one)} has no name; write {{name: ditto, lam: 0.1}}")
        own = {f"method.{key}": value for key, value in one.items() if key != "name"}
        return _Entry(_title(one["name"]), one["name"], own)
    if str(one).endswith((".yaml", ".yml")):
        return _from_file(Path(str(one)), keys)
    return _Entry(_title(str(one)), str(one), {})


def _title(name: str) -> str:
    return name.replace(":", ".")


def _from_file(path: Path, keys: Mapping[str, Any]) -> _Entry:
    """The method of a file for `panacea run`, called as the file is unless that is as `panacea sweep` calls it."""
    found = read_yaml(path)
    name = found.get("method")
    if not isinstance(name, str):
        raise RequestError(f"methods: {path} names no method; a file of settings is one that `panacea run` takes")
    if found.get("data", keys.get("data")) != keys.get("data"):
        raise RequestError(
            f"methods: {path} was made for data={found['data']}, this comparison has data={keys['data']}"
        )
    build_config(
        {**({"data": keys["data"]} if "data" in keys else {}), **found}
    )  # a typing error must not go unnoticed
    own = {key: value for key, value in found.items() if key.startswith("method.") or key in TUNED}
    ours = path.stem in ("best", f"best-{_title(name)}")
    return _Entry(_title(name) if ours else path.stem, name, own)
