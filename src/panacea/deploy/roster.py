"""Who takes part: a federation without samples. The server's side of the data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from panacea.data.federation import Federation
from panacea.data.task import Task
from panacea.graphs import ClientGraph

__all__ = ["Roster", "read_roster", "write_roster"]


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
    """

    data: str
    task: Task
    names: tuple[str, ...]
    novel: npt.NDArray[np.bool_]
    graph: ClientGraph | None = None
    groups: npt.NDArray[np.int64] | None = None
    features: npt.NDArray[np.float32] | None = None

    @classmethod
    def of(cls, federation: Federation) -> Roster:
        """All of a federation but its samples."""
        raise NotImplementedError


def read_roster(folder: Path) -> Roster:
    """From a folder: `roster.yaml` (data, task, names, novel, groups), `graph.npz`, `features.npy` where there are.

    Raises:
        RequestError: a file is missing or wrong.
    """
    raise NotImplementedError


def write_roster(roster: Roster, folder: Path) -> None:
    """What `read_roster` reads; each file atomically."""
    raise NotImplementedError
