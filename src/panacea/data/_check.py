"""Everything the rest of the package takes for granted about a federation, checked once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from panacea.data.storage import contents
from panacea.errors import RequestError

if TYPE_CHECKING:
    from panacea.data.federation import Federation

__all__ = ["check_federation"]


def check_federation(fed: Federation) -> None:
    """Raise a `RequestError` that names the client where something is wrong."""
    if len(fed) == 0:
        raise RequestError(f"{fed.name}: a federation needs at least one client")
    if len(fed.names) != len(fed):
        raise RequestError(f"{fed.name}: {len(fed)} clients but {len(fed.names)} names")
    empty = np.flatnonzero(fed.counts("train") < 1)
    if len(empty):
        raise RequestError(f"{fed.name}: client '{fed.names[empty[0]]}' has no training sample")
    if tuple(fed.x.shape[1:]) != fed.task.inputs:
        raise RequestError(f"{fed.name}: samples have shape {tuple(fed.x.shape[1:])}, the task says {fed.task.inputs}")
    _check_numbers(fed)
    if fed.task.kind == "classification":
        outside = ((fed.y < 0) | (fed.y >= fed.task.classes)).nonzero()
        if len(outside):
            raise RequestError(
                f"{fed.name}: client '{_owner(fed, int(outside[0]))}' has label {int(fed.y[outside[0]])}; "
                f"labels are 0..{fed.task.classes - 1}"
            )
    elif tuple(fed.y.shape[1:]) != fed.task.outputs:
        raise RequestError(f"{fed.name}: targets have shape {tuple(fed.y.shape[1:])}, the task says {fed.task.outputs}")
    if fed.graph is not None and fed.graph.n != len(fed):
        raise RequestError(f"{fed.name}: the graph has {fed.graph.n} nodes but there are {len(fed)} clients")


def _check_numbers(fed: Federation) -> None:
    """Inputs must be finite; targets too, but for those that are missing."""
    for what, values in (("input", fed.x), ("target", fed.y)):
        if not values.is_floating_point():
            continue
        stored = contents(values)
        sound = ~torch.isinf(stored) if what == "target" and fed.task.missing else torch.isfinite(stored)
        if not bool(sound.all()):
            place = int((~sound).nonzero()[0]) // _step(values)
            raise RequestError(f"{fed.name}: client '{_owner(fed, place)}' has a NaN or infinite {what}")


def _step(values: Tensor) -> int:
    """Stored values from one sample to the next."""
    return max(1, values.stride(0)) if values.is_contiguous() or values.stride(0) > 0 else 1


def _owner(fed: Federation, place: int) -> str:
    """Who has the sample at a position."""
    return fed.names[min(int(np.searchsorted(fed.bounds[:, 3], place, side="right")), len(fed) - 1)]
