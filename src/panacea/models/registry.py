"""The registry of target networks, and the one function that builds one for a task.

In every built-in network the last layer is called ``fc``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from panacea.core.validation import validated
from panacea.errors import RequestError, unknown
from panacea.models.builtin import pick
from panacea.models.entries import ENTRIES, ModelEntry
from panacea.models.own import call_factory, import_factory, name_of
from panacea.models.probe import check_model

if TYPE_CHECKING:
    from panacea.data.task import Task

__all__ = ["build_model", "find_model", "model_names", "model_paths", "resolve_model"]

AUTO = "auto"


def model_names() -> list[str]:
    """All names `build_model` takes, ``auto`` first."""
    return [AUTO, *ENTRIES]


def find_model(name: str) -> ModelEntry:
    """The entry of a name, or an error with the nearest one; ``auto`` has none, see `resolve_model`."""
    names = model_names()
    if name not in ENTRIES:
        raise unknown("model", name, names)
    return ENTRIES[name]


def resolve_model(name: str, task: Task) -> str:
    """The network a name stands for: itself, or what ``auto`` picks for a task."""
    return pick(task) if name == AUTO else name


def model_paths(name: str, task: Task, options: Mapping[str, object]) -> dict[str, Path]:
    """The keys of a registered network that name files, which building it opens."""
    if ":" in name:
        return {}
    chosen = validated(find_model(resolve_model(name, task)).options, dict(options), "model")
    return {f"model.{key}": value for key, value in chosen if isinstance(value, Path)}


def build_model(
    spec: str | nn.Module | Callable[..., object],
    task: Task,
    options: Mapping[str, object] | None = None,
    *,
    seed_key: int = 0,
) -> nn.Module:
    """The target network of a run, initialised and tried out on a batch of two zeros.

    Args:
        spec: a registered name; ``auto``; ``package.module:factory`` (imported, also from the current folder);
            a factory or `torch.nn.Module` class, called with the task or with nothing; or a module, used as it stands.
        task: what is learnt: it fixes the shapes.
        options: `model.*` keys of a registered network; the user's own networks take none.
        seed_key: seed of the initial weights; the global random state is left as it was.

    Raises:
        RequestError: an unknown name or option, an own network that cannot be built, or outputs of a wrong shape.
    """
    values = dict(options or {})
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed_key)
        if isinstance(spec, str) and ":" not in spec:
            entry = find_model(resolve_model(spec, task))
            label = entry.name
            model = entry.build(task, validated(entry.options, values, "model"))
        else:
            label = name_of(spec)
            if values:
                keys = ", ".join(f"model.{key}" for key in values)
                raise RequestError(f"{keys}: model '{label}' is your own and takes no options")
            factory = import_factory(spec) if isinstance(spec, str) else spec
            torch.default_generator.manual_seed(seed_key)  # again: a module's first import may have drawn numbers
            model = call_factory(factory, label, task)
        check_model(model, label, task)
    return model
