"""Who takes part: a federation without samples. The server's side of the data."""

from __future__ import annotations

import dataclasses
import hashlib
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import torch
import yaml
from pydantic import BaseModel, ConfigDict, Field

from panacea.core.files import write_atomically
from panacea.data.federation import Federation
from panacea.data.task import Task
from panacea.deploy.settings import TaskSettings
from panacea.deploy.yaml_file import read_keys
from panacea.errors import RequestError, nearest
from panacea.graphs import ClientGraph
from panacea.graphs.files import read_graph

__all__ = ["Newcomer", "Roster", "read_roster", "write_roster"]

Counts = npt.NDArray[np.int64]
Count = Annotated[int, Field(ge=0)]


class Newcomer(BaseModel):
    """A client that asks to join a run.

    Attributes:
        name: its own.
        links: names of the clients it is related to.
        weights: of these links, all 1 by default.
        features: side information, where all clients have some.
        group: its known group, where all clients have one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str = Field(min_length=1, max_length=200)
    links: tuple[str, ...] = ()
    weights: tuple[float, ...] | None = None
    features: tuple[float, ...] | None = None
    group: int | None = Field(None, ge=0)


@dataclass(frozen=True)
class Roster:
    """The clients of a federation as the server knows them.

    Attributes:
        data: name of the data set, for titles and the run's directory.
        task: what is learnt.
        names: of the clients; a client's number is its position.
        novel: ``[clients]`` bool: takes no part in training and is only given a model.
        graph: relations, or None.
        groups: ``[clients]`` known groups, or None.
        features: ``[clients, d]`` side information, or None.
        samples: ``[clients, 3]`` train, val and test samples as the operator knows them, -1 where that is for the
            client to say; or None.
    """

    data: str
    task: Task
    names: tuple[str, ...]
    novel: npt.NDArray[np.bool_]
    graph: ClientGraph | None = None
    groups: npt.NDArray[np.int64] | None = None
    features: npt.NDArray[np.float32] | None = None
    samples: Counts | None = None

    @classmethod
    def of(cls, federation: Federation) -> Roster:
        """All of a federation but its samples."""
        f = federation
        samples = None if f.remote else np.diff(f.bounds, axis=1)
        return cls(f.name, f.task, f.names, f.novel, f.graph, f.groups, f.features, samples)

    def samples_of(self, client: int) -> list[int] | None:
        """Train, val and test samples of a client, if its word is not needed."""
        row = [-1] if self.samples is None else self.samples[client].tolist()
        return None if min(row) < 0 else row

    def joined(self, newcomer: Newcomer) -> Roster:
        """With one more client, who trains, behind all others.

        Raises:
            RequestError: its name is taken, a neighbour is unknown, or something that all others have is missing.
        """
        if newcomer.name in self.names:
            raise RequestError(f"client '{newcomer.name}' takes part already")
        strange = [name for name in newcomer.links if name not in self.names]
        if strange:
            close = nearest(strange[0], self.names)
            hint = f"; did you mean '{close}'?" if close else ""
            raise RequestError(f"link to '{strange[0]}': no such client{hint}")
        known = {"features": (self.features, newcomer.features), "group": (self.groups, newcomer.group)}
        for what, (ours, theirs) in known.items():
            if (ours is None) != (theirs is None):
                wrong = "no client has any" if ours is None else "all clients have some"
                raise RequestError(f"{what} of client '{newcomer.name}': {wrong}")
        ids, features, groups = [self.names.index(name) for name in newcomer.links], self.features, self.groups
        if features is not None:
            row = np.asarray(newcomer.features, np.float32)
            if row.shape != features.shape[1:] or not np.isfinite(row).all():
                raise RequestError(
                    f"features of client '{newcomer.name}': {features.shape[1]} finite numbers are needed"
                )
            features = np.concatenate([features, row[None]])
        return dataclasses.replace(
            self,
            names=(*self.names, newcomer.name),
            novel=np.append(self.novel, False),
            graph=None if self.graph is None else self.graph.with_node(ids, newcomer.weights),
            groups=None if groups is None else np.append(groups, np.int64(newcomer.group or 0)),
            features=features,
            samples=None if self.samples is None else np.append(self.samples, np.full((1, 3), -1, np.int64), axis=0),
        )

    @property
    def digest(self) -> str:
        """What this roster is in a few characters."""
        content = hashlib.sha256(repr((self.data, self.task, self.names)).encode() + self.novel.tobytes())
        if self.graph is not None:
            graph = self.graph
            weights = graph.weights.astype(np.float64)
            order = np.lexsort(graph.edges.T)  # the same edges in another order are the same graph
            content.update(graph.edges[order].astype(np.int64).tobytes() + weights[order].tobytes())
            content.update(bytes([graph.directed]))
        for what in (self.groups, self.features):
            content.update(b"none" if what is None else np.ascontiguousarray(what).tobytes())
        return f"sha256-{content.hexdigest()[:12]}"

    def federation(self, counts: Counts | None = None, digest: str = "") -> Federation:
        """A federation whose samples are elsewhere.

        Args:
            counts: ``[clients, 3]`` train, val and test samples of each; one train sample each if not known yet.
            digest: identifies the run's clients; by default those of this roster.
        """
        counts = np.tile(np.array([1, 0, 0], np.int64), (len(self.names), 1)) if counts is None else counts
        ends = np.cumsum(counts.reshape(-1)).reshape(len(counts), 3)
        bounds = np.concatenate([ends[:, 2:3] - counts.sum(axis=1, keepdims=True), ends], axis=1)
        total = int(bounds[-1, 3]) if len(bounds) else 0
        labels = self.task.kind == "classification"
        nothing = torch.zeros((), dtype=torch.int64 if labels else torch.float32)
        return Federation(
            name=self.data,
            task=self.task,
            x=torch.zeros(()).expand(total, *self.task.inputs),  # takes no memory
            y=nothing.expand(total) if labels else nothing.expand(total, *self.task.outputs),
            bounds=bounds,
            names=self.names,
            graph=self.graph,
            groups=self.groups,
            features=self.features,
            novel=self.novel,
            fingerprint=digest or self.digest,
            remote=True,
        )


class RosterFile(BaseModel):
    """The keys of `roster.yaml`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: str = Field(min_length=1, description="name of the data set")
    task: TaskSettings
    clients: tuple[str, ...] = Field(min_length=1, description="names, in order")
    novel: tuple[str, ...] = Field((), description="names of those that only receive a model")
    groups: tuple[int, ...] | None = Field(None, description="known group of each client")
    samples: tuple[tuple[Count, Count, Count] | None, ...] | None = Field(
        None, description="train, val and test samples of each client; null where the client's word is taken"
    )


def read_roster(folder: Path) -> Roster:
    """From a folder: `roster.yaml` (data, task, clients, novel, groups), `graph.npz` (or `edges.csv`), `features.npy`.

    Raises:
        RequestError: a file is missing or wrong.
    """
    path = folder / "roster.yaml"
    said = read_keys(path, RosterFile)
    names = said.clients
    twice = [name for name in names if names.count(name) > 1] if len(set(names)) < len(names) else []
    if twice:
        raise RequestError(f"{path}: two clients are called '{twice[0]}'")
    strange = [name for name in said.novel if name not in names]
    if strange:
        raise RequestError(f"{path}: novel: '{strange[0]}' is not among the clients")
    for what, listed in (("groups", said.groups), ("samples", said.samples)):
        if listed is not None and len(listed) != len(names):
            raise RequestError(f"{path}: {len(listed)} {what} for {len(names)} clients")
    graph = None
    for name in ("graph.npz", "edges.csv"):
        if graph is None and (folder / name).is_file():
            graph, _ = read_graph(folder / name, names)
    novel = np.array([name in said.novel for name in names])
    groups = None if said.groups is None else np.array(said.groups, np.int64)
    samples = None if said.samples is None else np.array([row or (-1, -1, -1) for row in said.samples], np.int64)
    features = _features(folder / "features.npy", len(names))
    return Roster(said.data, said.task.task, names, novel, graph, groups, features, samples)


def _features(path: Path, clients: int) -> npt.NDArray[np.float32] | None:
    if not path.is_file():
        return None
    try:
        values = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise RequestError(f"{path}: not a readable .npy file ({type(error).__name__})") from None
    if values.ndim != 2 or len(values) != clients or values.dtype.kind != "f":
        raise RequestError(f"{path}: needs a row of numbers for each of {clients} clients, not {values.shape}")
    return np.asarray(values, np.float32)


def write_roster(roster: Roster, folder: Path) -> None:
    """What `read_roster` reads; each file atomically."""
    folder.mkdir(parents=True, exist_ok=True)
    if roster.graph is not None:
        content = io.BytesIO()
        roster.graph.save(content)
        write_atomically(folder / "graph.npz", content.getvalue())
    if roster.features is not None:
        content = io.BytesIO()
        np.save(content, roster.features, allow_pickle=False)
        write_atomically(folder / "features.npy", content.getvalue())
    values: dict[str, Any] = {
        "data": roster.data,
        "task": TaskSettings.of(roster.task).model_dump(mode="json"),
        "clients": list(roster.names),
        "novel": [roster.names[i] for i in np.flatnonzero(roster.novel)],
    }
    if roster.groups is not None:
        values["groups"] = roster.groups.tolist()
    if roster.samples is not None:
        values["samples"] = [roster.samples_of(client) for client in range(len(roster.names))]
    write_atomically(folder / "roster.yaml", yaml.safe_dump(values, sort_keys=False, allow_unicode=True))
