"""Thirty clients on a grid, five viewpoints by six years, and who is near whom; for CompCars and its stand-in.

client = 6 v + t,  v = 0..4 along F - FS - S - RS - R,  t = 0..5 along 2009 - 2014
or:   |v - v'| <= 1 or  |t - t'| <= 1     315 edges of 435
king: |v - v'| <= 1 and |t - t'| <= 1      89
rook:  v = v' or t = t'                   135
grid: |v - v'| + |t - t'| = 1              49
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field
from torch import Tensor

from panacea.data.federation import Federation
from panacea.data.owned import Owned, lay_out
from panacea.data.registry import NaturalKeys
from panacea.data.task import Task
from panacea.graphs import ClientGraph

__all__ = ["NAMES", "VIEWS", "YEARS", "ViewYearKeys", "view_year_federation", "view_year_graph"]

VIEWS = ("F", "FS", "S", "RS", "R")
YEARS = (2009, 2010, 2011, 2012, 2013, 2014)
NAMES = tuple(f"{view}-{year}" for view in VIEWS for year in YEARS)

Rule = Literal["or", "grid", "king", "rook"]
Steps = npt.NDArray[np.int64]

_RULES: dict[Rule, Callable[[Steps, Steps], npt.NDArray[np.bool_]]] = {
    "or": lambda view, year: (view <= 1) | (year <= 1),
    "king": lambda view, year: (view <= 1) & (year <= 1),
    "rook": lambda view, year: (view == 0) | (year == 0),
    "grid": lambda view, year: view + year == 1,
}


class ViewYearKeys(NaturalKeys):
    """Keys of data sets with clients on the grid."""

    rule: Rule = Field("or", description="links: view or year near; grid: one equal, one next; king: both near; rook")


def view_year_graph(rule: Rule) -> ClientGraph:
    """The graph over all thirty clients."""
    place = np.arange(len(NAMES), dtype=np.int64)
    view, year = place // len(YEARS), place % len(YEARS)
    near = _RULES[rule](abs(view[:, None] - view), abs(year[:, None] - year))
    edges = np.argwhere(np.triu(near, k=1)).astype(np.int64)
    return ClientGraph(len(NAMES), edges, np.ones(len(edges), np.float32))


def view_year_federation(name: str, samples: Owned, images: Tensor, task: Task, keys: ViewYearKeys) -> Federation:
    """Samples of some of the thirty clients, an 80/20 split at random, their part of the graph.

    Groups are viewpoints; features are viewpoint and year, each in [0, 1].
    """
    places = np.array([NAMES.index(client) for client in samples.names], np.int64)
    view, year = places // len(YEARS), places % len(YEARS)
    federation = lay_out(name, samples, images, task=task, seed=keys.seed, val=keys.val, test=0.2)
    graph = view_year_graph(keys.rule)
    return replace(
        federation,
        graph=graph if len(places) == graph.n else graph.take(places),
        groups=view,
        features=np.stack([view / (len(VIEWS) - 1), year / (len(YEARS) - 1)], axis=1).astype(np.float32),
    )
