"""Registry entries: a network's name, summary, typed options and builder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict
from torch import nn

if TYPE_CHECKING:
    from panacea.data.task import Task

__all__ = ["ENTRIES", "ModelEntry", "ModelOptions", "register_model"]

Options = TypeVar("Options", bound="ModelOptions")


class ModelOptions(BaseModel):
    """Options of a network (`model.*`); a network with options subclasses it."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True)
class ModelEntry:
    """One network.

    Attributes:
        name: the registry name.
        summary: one line for listings.
        options: the model of its `model.*` keys.
        build: (task, options) to a freshly initialised network.
    """

    name: str
    summary: str
    options: type[ModelOptions]
    build: Callable[[Task, Any], nn.Module]


ENTRIES: dict[str, ModelEntry] = {}


def register_model(
    name: str, *, summary: str, options: type[Options]
) -> Callable[[Callable[[Task, Options], nn.Module]], Callable[[Task, Options], nn.Module]]:
    """Register a builder under a public name."""

    def register(build: Callable[[Task, Options], nn.Module]) -> Callable[[Task, Options], nn.Module]:
        ENTRIES[name] = ModelEntry(name, summary, options, build)
        return build

    return register
