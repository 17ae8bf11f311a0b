"""From a reproduction and a request to the runs it takes: which data are at hand, what is reduced, every job."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from panacea.data.load import load_keys, resolve_keys
from panacea.data.paths import MissingFilesError, data_root
from panacea.data.registry import find_dataset
from panacea.errors import RequestError, unknown
from panacea.experiment.batch import Job
from panacea.experiment.config import WITHOUT_EFFECT, ExperimentConfig, build_config
from panacea.experiment.reproduce.entry import Block, Entry, Keys, Row
from panacea.experiment.sweep import check_config

__all__ = ["Part", "Plan", "Planned", "Request", "make_plan", "whereabouts"]

_FIXED = ("method", "seed", "attack", "defence")
_EXAMPLES = {"data": "fl60", "methods": "fedavg,panacea", "seeds": "0..4"}


@dataclass(frozen=True)
class Request:
    """What the user asks of a reproduction.

    Attributes:
        quick: the reduced form.
        keys: keys that win over the file's, for every run; of a block's axis, the values it takes.
        data: names of blocks or of their data sets; empty: all.
        methods: names of rows or of their methods; empty: all.
        seeds: in place of the file's.
        out: where runs and results go.
    """

    quick: bool = False
    keys: Mapping[str, Any] = field(default_factory=dict)
    data: Sequence[str] = ()
    methods: Sequence[str] = ()
    seeds: Sequence[int] = ()
    out: Path = Path("runs")

    @classmethod
    def of(cls, keys: Mapping[str, Any], *, quick: bool, out: Path | None) -> Request:
        """From `key=value` arguments: `data`, `methods` and `seeds` choose, the rest goes to every run."""
        rest = dict(keys)
        for name in _FIXED:
            if name in rest:
                hint = f"; methods={rest[name]} chooses rows" if name == "method" else ""
                raise RequestError(f"{name}={rest[name]}: the reproduction says so itself{hint}")
        chosen = {name: rest.pop(name) for name in _EXAMPLES if name in rest}
        for name, value in chosen.items():
            if value in (None, []):  # nothing is not everything
                raise RequestError(f"{name} is empty; leave it out for all, or give some: {name}={_EXAMPLES[name]}")
        data, methods, seeds = (_several(chosen.get(name)) for name in _EXAMPLES)
        if not all(isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0 for seed in seeds):
            raise RequestError(f"seeds={','.join(map(str, seeds))}: seeds are whole numbers, for example seeds=0..4")
        folder = Path(str(rest.pop("out"))) if "out" in rest else Path("runs")
        names = [str(one) for one in data], [str(one) for one in methods]
        return cls(quick, rest, *names, tuple(dict.fromkeys(seeds)), out or folder)

    @property
    def changed(self) -> dict[str, Any]:
        """What the user changed besides `--quick`."""
        chosen = {"data": list(self.data), "methods": list(self.methods), "seeds": list(self.seeds)}
        return {**dict(self.keys), **{name: values for name, values in chosen.items() if values}}


@dataclass(frozen=True)
class Part:
    """One block as it will be run.

    Attributes:
        block: as the file has it.
        data: the data set that is run, the block's own or its stand-in.
        keys: the keys of its runs that do not depend on row, seed and value.
        seeds: its seeds.
        values: of its axis; ``(None,)`` without one.
        label: why its numbers are of other data; a part of a data set is known after the runs only.
        missing: why it is not run; empty if it is.
        reduced: how it is shorter than the paper's protocol.
    """

    block: Block
    data: str
    keys: Keys
    seeds: tuple[int, ...]
    values: tuple[Any, ...]
    label: str = ""
    missing: str = ""
    reduced: str = ""


@dataclass(frozen=True)
class Planned:
    """One run and the place of its numbers."""

    job: Job
    part: Part
    row: Row
    value: Any
    seed: int


@dataclass(frozen=True)
class Plan:
    """All runs of a reproduction."""

    entry: Entry
    request: Request
    parts: tuple[Part, ...]
    rows: tuple[Row, ...]
    planned: tuple[Planned, ...]


def make_plan(entry: Entry, request: Request) -> Plan:
    """Everything that is to be run, checked before anything is.

    Raises:
        RequestError: a key, a value or a name is wrong.
    """
    blocks = _chosen("data", request.data, [(b, (b.name, b.data)) for b in entry.blocks])
    rows = _chosen("methods", request.methods, [(r, (r.name, r.method)) for r in entry.rows])
    parts = tuple(_part(entry, block, request) for block in blocks)
    planned = tuple(one for part in parts if not part.missing for one in _jobs(entry, part, rows, request))
    return Plan(entry, request, parts, tuple(rows), planned)


def whereabouts(block: Block, root: Path | None = None) -> tuple[str, str]:
    """A word on a block's data (here, generated, stand-in, missing) and, where they are missing, how to get them."""
    own, other = find_dataset(block.data), block.stand_in
    if _at_hand(block.data, root):
        return own.files(root), ""
    how = f"{block.data}: not in {data_root(root) / block.data}; {own.card.get}"
    if other is not None and _at_hand(str(other.keys.get("data.base", other.data)), root):  # whose images it takes
        return "stand-in", how
    return "missing", how


def _at_hand(data: str, root: Path | None) -> bool:
    """Whether a data set can be loaded; a folder of its name may be there and hold something else."""
    word = find_dataset(data).files(root)
    if word != "here":
        return word == "generated"
    try:
        load_keys(data, resolve_keys(data, {"root": root}))
    except MissingFilesError:
        return False
    return True


def _part(entry: Entry, block: Block, request: Request) -> Part:
    root = request.keys.get("data.root")
    word, how = whereabouts(block, None if root is None else Path(str(root)))
    data, own = block.data, block.keys
    label = f"other setting: {block.inexact}" if block.inexact else ""
    if word == "stand-in" and block.stand_in is not None:
        data, own = block.stand_in.data, block.stand_in.keys
        label = f"stand-in: {block.stand_in.why}"
    full = {**entry.keys, **own}
    keys, seeds = dict(full), entry.seeds
    values: tuple[Any, ...] = (None,) if block.axis is None else block.axis.values
    if request.quick:
        keys |= entry.quick.keys | block.quick.keys
        seeds = block.quick.seeds or entry.quick.seeds or seeds
        values = block.quick.values or values
    seeds = tuple(request.seeds) or seeds
    keys |= request.keys
    if block.axis is not None and block.axis.key in keys:
        values = tuple(_several(keys.pop(block.axis.key)))
        if not values:
            some = ",".join(map(str, block.axis.values[:2]))
            raise RequestError(f"{block.axis.key} is empty; give its values, for example {block.axis.key}={some}")
    skip = (block.quick.skip or "") if request.quick and not request.data else ""  # asked for by name, it is run
    if keys.get("data.clients") != full.get("data.clients"):
        label = "; ".join(filter(None, (label, f"{keys['data.clients']} clients only")))
    missing = how if word == "missing" else f"left out of --quick: {skip}" if skip else ""
    if missing:
        return Part(block, data, keys, seeds, values, missing=missing)
    reduced = _reduced(data, full, keys, entry.seeds, seeds)
    return Part(block, data, keys, seeds, values, label, reduced=reduced)


_SHORTER = ("rounds", "local_steps", "cohort", "server_steps", "batch_size", "lr", "novel", "model")


_UNTOLD = (*WITHOUT_EFFECT, "data.root", "eval_every", "threads", "device", "block")
"""Keys that make a run no shorter."""


def _reduced(data: str, full: Keys, keys: Keys, all_seeds: Sequence[int], seeds: Sequence[int]) -> str:
    """What differs from the full form, in words; empty where nothing does that matters."""
    defaults, words = find_dataset(data).defaults, []
    for key, value in keys.items():
        before = full.get(key, getattr(defaults, key, None) if key in _SHORTER else None)
        if value != before and key not in _UNTOLD:
            words.append(f"{key}={value}" + (f" instead of {before}" if before is not None else ""))
    if set(seeds) != set(all_seeds):
        words.append(f"{len(seeds)} seed{'s' * (len(seeds) != 1)} instead of {len(all_seeds)}")
    return ", ".join(words)


def _jobs(entry: Entry, part: Part, rows: Sequence[Row], request: Request) -> Iterator[Planned]:
    for row in rows:
        if row.only is not None and part.block.name not in row.only:
            continue
        for value, seed in itertools.product(part.values, part.seeds):
            varied = {} if part.block.axis is None else {part.block.axis.key: value}
            config = _config({**part.keys, **row.keys, **request.keys, **varied}, part.data, row.method, seed, request)
            at = "" if part.block.axis is None else f" {part.block.axis.key}={value}"
            yield Planned(Job(config, f"{part.block.name} {row.name}{at} seed {seed}"), part, row, value, seed)


def _config(keys: Keys, data: str, method: str, seed: int, request: Request) -> ExperimentConfig:
    config = build_config({**keys, "data": data, "method": method, "seed": seed, "out": request.out})
    check_config(config)
    return config


def _chosen(key: str, wanted: Sequence[str], there: Sequence[tuple[Any, tuple[str, ...]]]) -> list[Any]:
    """Those called by one of their names, in the order of the file; all where none is asked for."""
    for name in wanted:
        if not any(name in names for _, names in there):
            raise unknown(key, name, dict.fromkeys(name for _, names in there for name in names))
    return [one for one, names in there if not wanted or set(names) & set(wanted)]


def _several(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]
