"""What every attack has: keys, and hooks that change nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, field_validator
from torch import Tensor

from panacea.core.random import Streams

if TYPE_CHECKING:
    from panacea.data.federation import Federation

__all__ = ["Attack", "AttackKeys", "Labels", "Positions"]

Labels: TypeAlias = npt.NDArray[np.int64]
Positions: TypeAlias = npt.NDArray[np.int64]


class AttackKeys(BaseModel):
    """Keys every attack has (`attack.*`)."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    ratio: float = Field(0.2, ge=0, le=1, description="share of the training clients that attack, drawn by the seed")
    clients: tuple[int | str, ...] | None = Field(
        None, description="these clients attack, by number or name; instead of attack.ratio"
    )
    start: int = Field(1, ge=1, description="first round in which they do")

    @field_validator("clients", mode="before")
    @classmethod
    def _one_or_several(cls, value: object) -> object:
        return (value,) if isinstance(value, int | str) else value  # attack.clients=3


class Attack:
    """One attack; a subclass changes targets, or updates, or both."""

    name: ClassVar[str] = "none"
    summary: ClassVar[str] = "everybody is honest"
    key_model: ClassVar[type[AttackKeys]] = AttackKeys
    tasks: ClassVar[Literal["any", "classification", "amounts"]] = "any"

    def __init__(self, keys: AttackKeys) -> None:
        self.keys = keys

    def labels(self, y: Labels, classes: int, stream: np.random.Generator) -> Labels | None:
        """Other labels ``[samples]`` for an attacker's train split; None where labels stay."""
        return None

    def targets(self, y: Tensor) -> Tensor | None:
        """Other targets ``[samples, ...]`` for an attacker's train split (not classification); None: as they are."""
        return None

    def check(self, federation: Federation) -> None:
        """Refuse clients among whom this attack makes no sense, with a `RequestError`."""

    def attackers(self, clients: int) -> int:
        """How many of so many training clients attack, where `attack.clients` does not say."""
        return round(self.keys.ratio * clients)

    def marked(self, samples: int, stream: np.random.Generator) -> Positions | None:
        """Which of an attacker's train inputs go through `trigger`; None where inputs stay. Same stream as `labels`."""
        return None

    def trigger(self, x: Tensor) -> Tensor:
        """Inputs ``[samples, *inputs]`` with the attack's mark."""
        return x

    def updates(self, updates: Tensor, attacks: Tensor, streams: Streams, round: int) -> Tensor | None:
        """Other updates ``[rows, D]`` (those of honest rows are not used), attackers ``[rows]``; None: as they are."""
        return None

    def message(self, upload: dict[str, Tensor], stream: np.random.Generator) -> object:
        """What an attacker sends in place of its upload, named as for a wire; an attack without it sends uploads."""
        return upload
