"""The `data.split` key and its companions, shared by every labelled data set that is divided among clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from panacea.data import partition
from panacea.data.partition import Partition
from panacea.data.registry import DataKeys
from panacea.graphs import ClientGraph

__all__ = ["SplitKeys", "divide", "group_cliques"]

Scheme = Literal["iid", "pathological", "practical", "dirichlet"]

_OPTIONS: dict[Scheme, tuple[Callable[..., Partition], tuple[str, ...]]] = {
    "iid": (partition.iid, ()),
    "pathological": (partition.pathological, ("classes_per_client",)),
    "practical": (partition.practical, ("groups", "dominant")),
    "dirichlet": (partition.dirichlet, ("alpha",)),
}


class SplitKeys(DataKeys):
    """Keys of a data set that is divided by label (`natural` is for data sets with clients of their own)."""

    split: Scheme = Field("practical", description="how samples are divided: iid, pathological, practical or dirichlet")
    alpha: float = Field(0.3, gt=0, allow_inf_nan=False, description="dirichlet: concentration; small = few classes")
    classes_per_client: int = Field(2, ge=1, description="pathological: shards of one class per client")
    dominant: float = Field(0.8, ge=0, le=1, description="practical: share of samples from the group's own classes")
    groups: int = Field(5, ge=1, description="practical: groups of clients with the same dominating classes")
    min_samples: int = Field(10, ge=1, description="least samples of a client, all splits together")


def divide(labels: npt.NDArray[np.int64], keys: SplitKeys, clients: int) -> Partition:
    """Divide samples among clients as the keys say."""
    scheme, names = _OPTIONS[keys.split]
    options: dict[str, Any] = {name: getattr(keys, name) for name in names}
    return scheme(labels, clients, seed=keys.seed, min_samples=keys.min_samples, **options)


def group_cliques(groups: npt.NDArray[np.int64]) -> ClientGraph:
    """The graph that links every two clients of the same group."""
    first, second = np.triu_indices(len(groups), k=1)
    same = groups[first] == groups[second]
    edges = np.stack([first[same], second[same]], axis=1).astype(np.int64)
    return ClientGraph(len(groups), edges, np.ones(len(edges), np.float32))
