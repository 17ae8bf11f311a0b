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
    if fed.remote:
        pass  # targets are their clients' affair
    elif fed.task.kind == "classification":
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
            place = int((~sound).nonzero()[0]) // _width(values, stored)
            raise RequestError(f"{fed.name}: client '{_owner(fed, place)}' has a NaN or infinite {what}")


def _width(values: Tensor, stored: Tensor) -> int:
    """Stored values from one sample to the next; rows that overlap begin less than their own size apart."""
    return max(1, values.stride(0) if stored.numel() < values.numel() else values[0].numel())


def _owner(fed: Federation, place: int) -> str:
    """Who has the sample at a position; what lies behind a client's last window is the end of its own series."""
    return fed.names[max(int(np.searchsorted(fed.bounds[:, 0], place, side="right")) - 1, 0)]
