"""A test attack: messages that are no uploads, so that the gate before the server can be seen at work.

Not a strategy of any paper: a server that refuses what it cannot use (`panacea.core.messages`) is not harmed by it. The
attackers' clients take part as if they had trained nothing, with no weight.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal, get_args

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from panacea.robustness.base import Attack, AttackKeys

__all__ = ["Malformed", "MalformedKeys"]

Upload = dict[str, Tensor]
Kind = Literal[
    "nan", "inf", "huge", "shape", "scalar", "empty_tensor", "dtype", "integer", "complex", "sparse", "missing",
    "extra", "renamed", "nested", "empty", "nothing", "text", "list",
]  # fmt: skip


class MalformedKeys(AttackKeys):
    """Keys of `malformed`."""

    kind: Kind | Literal["random"] = Field(
        "random", description="what is wrong with a message; random: drawn each time"
    )


class Malformed(Attack):
    """See the module."""

    name: ClassVar[str] = "malformed"
    summary: ClassVar[str] = "test attack: messages that are no uploads, which every server must refuse"
    key_model: ClassVar[type[AttackKeys]] = MalformedKeys
    keys: MalformedKeys

    def message(self, upload: Upload, stream: np.random.Generator) -> object:
        """Garbage."""
        kinds = get_args(Kind)
        kind = kinds[int(stream.integers(len(kinds)))] if self.keys.kind == "random" else self.keys.kind
        name = list(upload)[int(stream.integers(len(upload)))]
        return _MAKERS[kind](upload, name, stream)


def _value(value: float) -> Callable[[Upload, str, np.random.Generator], object]:
    """One value of one tensor is this."""

    def make(upload: Upload, name: str, stream: np.random.Generator) -> Upload:
        changed = upload[name].clone()
        changed.view(-1)[int(stream.integers(changed.numel()))] = value
        return {**upload, name: changed}

    return make


def _tensor(change: Callable[[Tensor], object]) -> Callable[[Upload, str, np.random.Generator], object]:
    """One tensor is something else."""
    return lambda upload, name, stream: {**upload, name: change(upload[name])}


def _whole(change: Callable[[Upload, str], object]) -> Callable[[Upload, str, np.random.Generator], object]:
    """The whole message is something else."""
    return lambda upload, name, stream: change(upload, name)


_MAKERS: dict[str, Callable[[Upload, str, np.random.Generator], object]] = {
    "nan": _value(torch.nan),
    "inf": _value(torch.inf),
    "huge": _value(1e30),
    "shape": _tensor(lambda t: torch.cat([t.reshape(-1), t.reshape(-1)[:1]])),
    "scalar": _tensor(lambda t: t.reshape(-1)[0]),
    "empty_tensor": _tensor(lambda t: t.reshape(-1)[:0]),
    "dtype": _tensor(lambda t: t.to(torch.float32 if t.dtype == torch.float64 else torch.float64)),
    "integer": _tensor(lambda t: torch.ones_like(t, dtype=torch.int64)),
    "complex": _tensor(lambda t: torch.complex(t, t)),
    "sparse": _tensor(lambda t: t.to_sparse()),
    "missing": _whole(lambda upload, name: {other: value for other, value in upload.items() if other != name}),
    "extra": _whole(lambda upload, name: {**upload, f"{name}.more": upload[name]}),
    "renamed": _whole(lambda upload, name: {f"{key}s" if key == name else key: v for key, v in upload.items()}),
    "nested": _whole(lambda upload, name: {"upload": upload}),
    "empty": _whole(lambda upload, name: {}),
    "nothing": _whole(lambda upload, name: None),
    "text": _whole(lambda upload, name: "params"),
    "list": _whole(lambda upload, name: list(upload.values())),
}
