"""What a client must know of a run: the part of its configuration that client code looks at, as JSON text."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from panacea.core.validation import validated
from panacea.data.task import Kind, Task
from panacea.errors import RequestError

__all__ = ["RunSettings", "TaskSettings", "read_settings"]

_LONGEST = 1_000_000  # characters of the text


class TaskSettings(BaseModel):
    """A task in plain values; see `panacea.data.task.Task`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Kind
    inputs: tuple[int, ...]
    outputs: tuple[int, ...] = ()
    classes: int = Field(0, ge=0)
    scale: str = "as given"
    class_names: tuple[str, ...] = ()
    missing: bool = False

    @classmethod
    def of(cls, task: Task) -> TaskSettings:
        """A task's."""
        return cls(**vars(task))

    @property
    def task(self) -> Task:
        """The task."""
        return Task(**self.model_dump())


class RunSettings(BaseModel):
    """The settings in every order of a run; keys as those of `panacea run`.

    Attributes:
        run: made up by the server when a run begins: two runs never share a client's state.
        clients: how many there are.
        start: how often a server began or went on with the run. An order that comes late, from before, is known by it;
            and only one that went on anew may ask for a round again that is past.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    run: str = Field(pattern="^[0-9a-f]{16}$")
    seed: int = Field(ge=0, lt=2**63)
    clients: int = Field(ge=1, le=10**7)
    rounds: int = Field(ge=1)
    task: TaskSettings
    method: str
    method_keys: dict[str, Any] = Field(default_factory=dict)
    model: str
    model_keys: dict[str, Any] = Field(default_factory=dict)
    lr: float = Field(ge=0)
    local_steps: int | None = Field(None, ge=1)
    local_epochs: float | None = Field(None, gt=0)
    batch_size: int = Field(ge=1)
    momentum: float = Field(0.0, ge=0, lt=1)
    weight_decay: float = Field(0.0, ge=0)
    clip: float = Field(0.0, ge=0)
    buffers: Literal["shared", "local", "frozen"] = "shared"
    dtype: Literal["float32", "float64"] = "float32"
    start: int = Field(1, ge=1, lt=2**31)

    def text(self) -> str:
        """As it travels; the same settings are the same text."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True)


def read_settings(text: str) -> RunSettings:
    """From an order's text.

    Raises:
        RequestError: it is not the settings of a run.
    """
    try:
        values = json.loads(text[:_LONGEST])
    except ValueError:
        raise RequestError("the order's settings are not JSON") from None
    if not isinstance(values, dict):
        raise RequestError("the order's settings are not an object")
    return validated(RunSettings, values, "settings")
