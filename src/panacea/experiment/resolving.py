"""What a request leaves open: defaults of the data set, novel clients, sections with every key."""

from __future__ import annotations

from typing import Any

from panacea.data.federation import Federation
from panacea.data.registry import TrainingDefaults
from panacea.errors import RequestError
from panacea.experiment.config import ExperimentConfig, Section
from panacea.robustness import Attack, Guard

__all__ = ["changed", "resolved_section", "with_defaults", "with_novel"]


def resolved_section(choice: Attack | Guard) -> Section:
    """The request for an attack or a defence with every key it resolved to."""
    return Section(name=choice.name, keys=choice.keys.model_dump(mode="json") if choice.name != "none" else {})


def changed(config: ExperimentConfig, **changes: Any) -> ExperimentConfig:
    """The configuration with other values."""
    return config.model_copy(update=changes)


def with_novel(config: ExperimentConfig, federation: Federation | None) -> Federation | None:
    """A federation given in memory, with the share of novel clients that was asked for."""
    if federation is None:
        return None
    unknown_keys = [key for key in config.data.keys if key != "seed"]
    if unknown_keys:
        raise RequestError(f"data.{unknown_keys[0]} is for data sets loaded by name; this federation is given as it is")
    if config.novel is None:
        return federation
    if federation.novel.any() and config.novel != float(federation.novel.mean()):
        raise RequestError(f"novel={config.novel}: this federation has novel clients already")
    return federation if federation.novel.any() else federation.hold_out(config.novel, config.seed)


def with_defaults(
    config: ExperimentConfig, defaults: TrainingDefaults, federation: Federation | None
) -> ExperimentConfig:
    """Keys the user left out come from the data set; a federation of the user's own brings the general defaults."""
    names = ["rounds", "lr", "batch_size"] + (["local_steps"] if config.local_epochs is None else [])
    changes: dict[str, Any] = {name: getattr(defaults, name) for name in names if getattr(config, name) is None}
    if config.model.name == "auto" and defaults.model != "auto":
        changes["model"] = Section(name=defaults.model, keys=config.model.keys)
    if federation is not None:
        changes["novel"] = float(federation.novel.mean())
        changes["data"] = Section(name=federation.name, keys={"in_memory": True})
    return changed(config, **changes)
