"""A federation: every client's samples, their splits, the task, and who is related to whom."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from panacea.core.random import Streams
from panacea.data._check import check_federation
from panacea.data._layout import shuffled, split_bounds, tensor_pair
from panacea.data.storage import decoded
from panacea.data.task import Task
from panacea.errors import RequestError
from panacea.graphs import ClientGraph

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from panacea.data._samples import Clients
    from panacea.data.task import Kind
    from panacea.graphs.convert import GraphLike

__all__ = ["SPLITS", "Federation", "Task"]

SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class Federation:
    """All clients of an experiment.

    Samples of all clients lie one after the other, and within a client as train | val | test, so any split of any
    client is a slice and any batch of any set of clients is one gather. Between two clients there may be rows that
    belong to nobody. Tensors may be views whose rows overlap (`panacea.data.storage`).

    Attributes:
        name: the data set's name.
        task: what is learnt.
        x: inputs ``[samples, ...]``; bytes (uint8) stand for 256 steps of [0, 1].
        y: targets ``[samples]`` (int64 labels) or ``[samples, ...]``.
        bounds: ``[clients, 4]`` int64: first train, first val, first test sample, and the end.
        names: one name per client.
        graph: the relation graph, or None where nothing is known.
        groups: ``[clients]`` int64 planted or given group of each client, or None.
        features: ``[clients, d]`` side information on the clients (coordinates, angles), or None.
        novel: ``[clients]`` bool: held out of training entirely.
        notes: sentences a user should see (what was dropped or filled in).
        rows: ``[samples]`` int64: the row of `x` that a sample's input is, where `x` has an order of its own (images
            that stay on disk); None where row i is sample i.
        partial: what part of the published data set this is, for every title (``PARTIAL 29 of 207 sensors``); empty
            where it is whole.
        fingerprint: identifies the content of `x` where a loader knows it without reading it all; else empty.
        remote: whether samples are with the clients, elsewhere: `bounds` say how many, `x` and `y` hold nothing.
    """

    name: str
    task: Task
    x: Tensor
    y: Tensor
    bounds: npt.NDArray[np.int64]
    names: tuple[str, ...]
    graph: ClientGraph | None = None
    groups: npt.NDArray[np.int64] | None = None
    features: npt.NDArray[np.float32] | None = None
    novel: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    notes: tuple[str, ...] = ()
    rows: Tensor | None = None
    partial: str = ""
    fingerprint: str = ""
    remote: bool = False

    def __post_init__(self) -> None:
        if len(self.novel) == 0:
            object.__setattr__(self, "novel", np.zeros(len(self.bounds), np.bool_))
        check_federation(self)

    def __len__(self) -> int:
        """Number of clients, novel ones included."""
        return len(self.bounds)

    def __repr__(self) -> str:
        edges = "no graph" if self.graph is None else f"{len(self.graph.edges)} edges"
        return (
            f"Federation({self.name}: {len(self)} clients ({int(self.novel.sum())} novel), {self.total} samples, "
            f"{self.task.kind}, {edges})" + (f" {self.partial}" if self.partial else "")
        )

    @property
    def total(self) -> int:
        """Samples of all clients and splits."""
        return int((self.bounds[:, 3] - self.bounds[:, 0]).sum())

    @property
    def title(self) -> str:
        """The data set's name, and what part of it this is."""
        return f"{self.name} ({self.partial})" if self.partial else self.name

    @property
    def train_ids(self) -> npt.NDArray[np.int64]:
        """Clients that may be sampled in training, in order."""
        return np.flatnonzero(~self.novel)

    @property
    def novel_ids(self) -> npt.NDArray[np.int64]:
        """Clients held out of training, in order."""
        return np.flatnonzero(self.novel)

    def counts(self, split: str) -> npt.NDArray[np.int64]:
        """Samples of every client in a split, ``[clients]``."""
        column = SPLITS.index(split)
        return self.bounds[:, column + 1] - self.bounds[:, column]

    def client(self, client: int, split: str = "train") -> tuple[Tensor, Tensor]:
        """Inputs and targets of one client in one split."""
        column = SPLITS.index(split)
        start, end = self.bounds[client, column], self.bounds[client, column + 1]
        x = self.x[start:end] if self.rows is None else self.x[self.rows[start:end]]
        return decoded(x, torch.float32), self.y[start:end]

    def hold_out(self, share: float, seed: int) -> Federation:
        """The same federation with a share of its clients marked as novel, chosen by the seed.

        ``round(share * clients)`` clients, at least one when share > 0; at least one client always trains.
        """
        if not 0 <= share < 1:
            raise RequestError(f"novel={share}: the share of held-out clients must be at least 0 and below 1")
        count = min(max(round(share * len(self)), 1), len(self) - 1) if share > 0 else 0
        chosen = Streams(seed).numpy("novel clients").permutation(len(self))[:count]
        mask = np.zeros(len(self), np.bool_)
        mask[chosen] = True
        return replace(self, novel=mask)

    def with_graph(self, graph: GraphLike) -> Federation:
        """The same federation with another relation graph: anything that `panacea.graphs.as_graph` takes."""
        from panacea.graphs.convert import as_graph  # noqa: PLC0415

        found, notes = as_graph(graph, self.names)
        return replace(self, graph=found, notes=self.notes + notes)

    @classmethod
    def from_clients(
        cls,
        clients: Sequence[tuple[npt.ArrayLike | Tensor, npt.ArrayLike | Tensor]],
        *,
        task: Task,
        seed: int = 0,
        val: float = 0.1,
        test: float = 0.2,
        test_sets: Sequence[tuple[npt.ArrayLike | Tensor, npt.ArrayLike | Tensor]] | None = None,
        chronological: bool = False,
        name: str = "own",
        names: Sequence[str] | None = None,
        graph: ClientGraph | None = None,
        groups: npt.NDArray[np.int64] | None = None,
        features: npt.NDArray[np.float32] | None = None,
        notes: tuple[str, ...] = (),
    ) -> Federation:
        """Split every client's samples and lay them out; the one constructor every loader goes through.

        Args:
            clients: per client (x, y); all samples, or the train part only when `test_sets` is given.
            task: what is learnt; shapes are checked against it.
            seed: the data seed: it decides the random splits.
            val: share of each client's train part used to choose rounds (at least one sample, never trained on;
                a client with a single train sample has none).
            test: share of each client's samples for the test split (at least one when it has two or more).
            test_sets: per client (x, y), when the data set itself says what is test.
            chronological: split in the given order instead of at random.
            name: see the class, like all that follow.
            names: by default the clients' positions.
            graph: over the clients in this order.
            groups: one per client.
            features: one row per client.
            notes: what a user should see.
        """
        target_type = torch.int64 if task.kind == "classification" else torch.float32
        fit = [tensor_pair(pair, target_type) for pair in clients]
        held = None if test_sets is None else [tensor_pair(pair, target_type) for pair in test_sets]
        if held is not None and len(held) != len(fit):
            raise RequestError(f"{name}: {len(fit)} clients but {len(held)} test sets")
        counts = np.array([len(x) for x, _ in fit], np.int64)
        held_counts = None if held is None else np.array([len(x) for x, _ in held], np.int64)
        bounds = split_bounds(counts, held_counts, val, test)
        parts = fit if held is None else [part for pairs in zip(fit, held, strict=True) for part in pairs]
        x = torch.cat([part[0] for part in parts]) if parts else torch.zeros(0)
        y = torch.cat([part[1] for part in parts]) if parts else torch.zeros(0)
        if not chronological:
            order = torch.from_numpy(shuffled(Streams(seed), bounds[:, 0], counts, len(x)))
            x, y = x[order], y[order]
        return cls(
            name=name,
            task=task,
            x=x,
            y=y,
            bounds=bounds,
            names=tuple(names) if names is not None else tuple(str(i) for i in range(len(clients))),
            graph=graph,
            groups=groups,
            features=features,
            notes=notes,
        )

    @classmethod
    def from_arrays(
        cls,
        x: Clients,
        y: Clients | str | Sequence[str] | None = None,
        *,
        x_test: Clients | None = None,
        y_test: Clients | None = None,
        edges: GraphLike | None = None,
        task: Kind | Task | None = None,
        classes: int | Sequence[str] | None = None,
        names: Sequence[str] | None = None,
        groups: Sequence[object] | npt.NDArray[np.generic] | None = None,
        features: npt.ArrayLike | None = None,
        seed: int = 0,
        val: float = 0.1,
        test: float = 0.2,
        novel: float = 0.0,
        chronological: bool | None = None,
        scale: str = "as given",
        name: str = "own",
    ) -> Federation:
        """A federation from lists of per-client arrays, tensors or DataFrames; see `panacea.data.own.from_arrays`."""
        from panacea.data.own import from_arrays  # noqa: PLC0415  (it imports this module)

        return from_arrays(
            x,
            y,
            x_test=x_test,
            y_test=y_test,
            edges=edges,
            task=task,
            classes=classes,
            names=names,
            groups=groups,
            features=features,
            seed=seed,
            val=val,
            test=test,
            novel=novel,
            chronological=chronological,
            scale=scale,
            name=name,
        )

    @classmethod
    def from_folder(
        cls,
        root: str | os.PathLike[str],
        *,
        target: str | Sequence[str] | None = None,
        task: Kind | None = None,
        classes: int | Sequence[str] | None = None,
        clients: int | None = None,
        seed: int = 0,
        val: float | None = None,
        test: float | None = None,
        novel: float = 0.0,
        chronological: bool | None = None,
    ) -> Federation:
        """A federation from a folder with one file per client; see `panacea.data.own.from_folder`."""
        from panacea.data.own import from_folder  # noqa: PLC0415  (it imports this module)

        return from_folder(
            root,
            target=target,
            task=task,
            classes=classes,
            clients=clients,
            seed=seed,
            val=val,
            test=test,
            novel=novel,
            chronological=chronological,
        )
