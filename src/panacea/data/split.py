"""The `data.split` key and its companions, shared by every labelled data set that is divided among clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from panacea.data import partition
from panacea.data.partition import Partition
from panacea.data.registry import DataKeys
from panacea.errors import RequestError
from panacea.graphs import ClientGraph

__all__ = ["GroupPlan", "PoolKeys", "SplitKeys", "divide", "divide_files", "group_cliques"]

Labels = npt.NDArray[np.int64]

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


class PoolKeys(SplitKeys):
    """Keys of a data set that comes as a train and a test file."""

    train_sizes: tuple[int, ...] | None = Field(
        None, description="practical: train + validation samples of a client, a number per group; default by data set"
    )
    test_size: int = Field(100, ge=1, description="practical: test samples of a client")


@dataclass(frozen=True)
class GroupPlan:
    """The groups of a practical setting.

    Attributes:
        sizes: train + validation samples of a client, per group.
        members: clients of each group; where another number of clients is asked for, in these proportions.
        classes: dominating classes of each group; None cuts them evenly in label order.
    """

    sizes: tuple[int, ...]
    members: tuple[int, ...]
    classes: tuple[range, ...] | None = None


def divide(labels: Labels, keys: SplitKeys, clients: int) -> Partition:
    """Divide samples among clients as the keys say."""
    scheme, names = _OPTIONS[keys.split]
    options: dict[str, Any] = {name: getattr(keys, name) for name in names}
    return scheme(labels, clients, seed=keys.seed, min_samples=keys.min_samples, **options)


def divide_files(labels: Labels, held: Labels, keys: PoolKeys, plan: GroupPlan) -> Partition:
    """Divide the samples of a train file, and choose everybody's test samples.

    practical: `plan`, test samples as `partition.practical` takes them. Other schemes divide the train file, and the
    test file in the same proportions (`partition.alike`); without a test file nobody has test samples yet (`tests` is
    None).
    """
    clients = keys.clients or sum(plan.members)
    if keys.split != "practical":
        made = divide(labels, keys, clients)
        if not len(held):
            return made
        return replace(made, tests=partition.alike(labels, made.parts, held, seed=keys.seed))
    published = keys.groups == len(plan.sizes)
    if not published and keys.train_sizes is None:
        raise RequestError(f"data.groups={keys.groups}: needs data.train_sizes, a number per group")
    return partition.practical(
        labels,
        clients,
        groups=keys.groups,
        dominant=keys.dominant,
        sizes=plan.sizes if keys.train_sizes is None else keys.train_sizes,
        classes=plan.classes if published else None,
        members=plan.members if published else None,
        test_size=keys.test_size,
        held=held,
        seed=keys.seed,
        min_samples=keys.min_samples,
    )


def group_cliques(groups: npt.NDArray[np.int64]) -> ClientGraph:
    """The graph that links every two clients of the same group."""
    first, second = np.triu_indices(len(groups), k=1)
    same = groups[first] == groups[second]
    edges = np.stack([first[same], second[same]], axis=1).astype(np.int64)
    return ClientGraph(len(groups), edges, np.ones(len(edges), np.float32))
