"""Keys given several values where they take one: `attack.ratio=0..0.5:0.1` asks for a run of each.

A list for a key that takes lists (`model.hidden=[16,16]`, `attack.clients=3,17`) stays what it is.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from panacea.data.load import resolve_keys
from panacea.data.registry import find_dataset
from panacea.errors import RequestError
from panacea.experiment.config import EngineKeys, ExperimentConfig, Section
from panacea.experiment.keys import SECTIONS
from panacea.experiment.relations import resolve_graph
from panacea.experiment.tracking import require_packages
from panacea.graphs.keys import find_graph
from panacea.methods import find_method, make_method
from panacea.models import find_model, model_names
from panacea.robustness import ATTACKS, DEFENCES, make_attack, make_defence

__all__ = ["Axis", "check_config", "split_sweep"]

_FIXED = ("out", "checkpoint_every", "data_digest", "threads", "block")
"""Keys that change no result, or not in a way worth a curve."""
_MOST = 2


@dataclass(frozen=True)
class Axis:
    """A key and the values it takes in turn."""

    key: str
    values: tuple[Any, ...]

    @property
    def numeric(self) -> bool:
        """Whether its values are places on a line."""
        return all(isinstance(value, int | float) and not isinstance(value, bool) for value in self.values)


def split_sweep(keys: Mapping[str, Any], methods: Sequence[str]) -> tuple[dict[str, Any], tuple[Axis, ...]]:
    """The keys that stay, and those that are varied: the one to draw along (`attack.ratio` first) before the other.

    Raises:
        RequestError: more than two keys are varied, one of them cannot be, or a value is given twice.
    """
    keys = {key: _with_none(key, value) for key, value in keys.items()}
    axes = [Axis(key, _distinct(key, value)) for key, value in keys.items() if _is_varied(key, value, keys, methods)]
    if len(axes) > _MOST:
        given = ", ".join(axis.key for axis in axes)
        raise RequestError(f"{given} have several values each; compare varies at most {_MOST} keys beside methods")
    axes.sort(key=lambda axis: (axis.key != "attack.ratio", not axis.numeric))
    varied = {axis.key for axis in axes}
    if keys.get("attack", "none") == "none" and any(key.startswith("attack.") for key in varied):
        raise RequestError(f"{axes[0].key} has no effect without an attack; for example attack=label_flip")
    return {key: value for key, value in keys.items() if key not in varied}, tuple(axes)


def _with_none(key: str, value: Any) -> Any:
    """`defence=none,median` reads as no value and one: here the first is a name."""
    if key not in ("attack", "defence"):
        return value
    return ["none" if one is None else one for one in value] if isinstance(value, list) else value or "none"


def _distinct(key: str, values: Sequence[Any]) -> tuple[Any, ...]:
    if not values:
        raise RequestError(f"{key} is an empty list; give its values, for example {key}=a,b")
    if len({str(value) for value in values}) != len(values):
        raise RequestError(f"{key}={','.join(map(str, values))}: a value is given twice")
    return tuple(values)


def _is_varied(key: str, value: Any, keys: Mapping[str, Any], methods: Sequence[str]) -> bool:
    """Whether a list is meant as several values; a key nobody knows stays, whoever checks it names the nearest."""
    if not isinstance(value, list):
        return False
    if key in _FIXED:
        raise RequestError(f"{key}={','.join(map(str, value))}: one value is needed here")
    head, dot, rest = key.partition(".")
    models: list[type[BaseModel]] = [ExperimentConfig]
    if dot:
        if head not in SECTIONS:
            return False
        default = ExperimentConfig.model_fields[head].default
        name = methods if head == "method" else keys.get(head, default.name if isinstance(default, Section) else ())
        models = [model for one in ([name] if isinstance(name, str) else name) for model in _MODELS[head](str(one))]
    field = rest if dot else key
    known = [model.model_fields[field].annotation for model in models if field in model.model_fields]
    return bool(known) and not any(_takes_lists(annotation) for annotation in known)


def _takes_lists(annotation: Any) -> bool:
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        return any(_takes_lists(part) for part in get_args(annotation))
    if origin is Annotated:
        return _takes_lists(get_args(annotation)[0])
    kind = origin or annotation
    return annotation is Any or (
        isinstance(kind, type) and not issubclass(kind, str | bytes) and issubclass(kind, Sequence | set | frozenset)
    )


def _network_options(name: str) -> Iterable[type[BaseModel]]:
    """The options of a network; for `auto`, those of any that it may turn out to be; one's own has none."""
    if ":" in name:
        return []
    return [find_model(one).options for one in (model_names() if name == "auto" else [name]) if one != "auto"]


_MODELS: dict[str, Callable[[str], Iterable[type[BaseModel]]]] = {
    "data": lambda name: [find_dataset(name).keys],
    "model": _network_options,
    "method": lambda name: [find_method(name).parameter_model],
    "graph": lambda name: [find_graph(name).keys],
    "attack": lambda name: [ATTACKS[name].key_model] if name in ATTACKS else [],
    "defence": lambda name: [DEFENCES[name].key_model] if name in DEFENCES else [],
    "engine": lambda name: [EngineKeys],
}


_REMARK = " (method.KEY goes to every method of a comparison, method.NAME.KEY to one)"


def check_config(config: ExperimentConfig, *, loaded: bool = True, remark: str = _REMARK) -> None:
    """Everything that can be wrong with one run of many before its data are loaded.

    Args:
        config: the run.
        remark: added to what is wrong with a method's key.
        loaded: whether its data come by name; not those given from Python.

    Raises:
        RequestError: naming the key; for a method's key, the method.
    """
    try:
        method = make_method(config.method.name, config.method.keys)
    except RequestError as error:
        raise RequestError(f"{config.method.name}: {error}{remark}") from error
    if loaded:
        resolve_keys(config.data.name, config.data.keys, config.seed)
    resolve_graph(config.graph, config.seed)
    make_attack(config.attack.name, config.attack.keys)
    make_defence(config.defence.name, config.defence.keys, method)
    require_packages(config.track)
