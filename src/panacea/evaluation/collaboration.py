"""With which weights clients take part in each other's models, where a method mixes models."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from panacea.core.method import Method
from panacea.core.round import State
from panacea.core.types import Cohort
from panacea.data.federation import Federation

__all__ = ["collaboration_numbers", "collaboration_weights"]

_MOST = 1_000  # clients; more are no picture, and no table to look at


def collaboration_weights(method: Method, state: State, federation: Federation) -> npt.NDArray[np.float64] | None:
    """``[train clients, train clients]``: row i is the mixture client i would be given now; None without any."""
    ids = federation.train_ids
    if len(ids) > _MOST:
        return None
    weights = method.collaboration(
        state.server, Cohort.of(ids, federation.counts("train"), state.round, state.statistics.common)
    )
    return None if weights is None else weights.double().cpu().numpy()


def collaboration_numbers(weights: npt.NDArray[np.float64] | None, federation: Federation) -> dict[str, float]:
    """The mean weight of a client on itself, and of the rest the share within its group, where groups are known."""
    if weights is None:
        return {}
    numbers = {"self_weight": float(np.diag(weights).mean())}
    others = weights - np.diag(np.diag(weights))
    if federation.groups is not None and others.sum() > 0:
        groups = federation.groups[federation.train_ids]
        numbers["group_weight"] = float(others[groups[:, None] == groups].sum() / others.sum())
    return numbers
