"""The choices of `graph=` and their keys. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from panacea.errors import RequestError, unknown
from panacea.graphs.files import GRAPH_SUFFIXES

__all__ = ["FILE", "GRAPHS", "GraphChoice", "GraphKeys", "find_graph", "is_graph_file"]

FILE = "FILE"
"""What stands for the name of a file in lists and in a run's identity."""


class GraphKeys(BaseModel):
    """Keys every choice has (`graph.*`); applied in this order."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    weights: Literal["keep", "binary"] = Field("keep", description="keep them, or 1 for every edge")
    direction: Literal["keep", "ignore"] = Field("keep", description="keep it, or an edge wherever either way has one")
    shuffle: bool = Field(False, description="clients change places in the graph at random")
    rewire: float = Field(0.0, ge=0, le=1, description="share of edges led elsewhere, all degrees kept")
    replace: float = Field(0.0, ge=0, le=1, description="share of edges replaced by false ones")
    drop: float = Field(0.0, ge=0, le=1, description="share of edges removed")
    add: float = Field(0.0, ge=0, description="false edges put in, as a share of those there are")
    seed: int = Field(0, ge=0, lt=2**63, description="of everything random about the graph; default = seed")


class _FeatureKeys(GraphKeys):
    by: Literal["auto", "features", "labels"] = Field(
        "auto",
        description="the clients' features (coordinates), or their train labels; auto: features if there are any",
    )


class KnnKeys(_FeatureKeys):
    """Keys of `graph=knn`."""

    k: int | None = Field(None, ge=1, description="nearest clients each one names; default 5, or all where fewer")


class GaussianKeys(_FeatureKeys):
    """Keys of `graph=gaussian`."""

    sigma: float | None = Field(None, gt=0, description="width; default the standard deviation of all distances")
    threshold: float = Field(0.1, gt=0, le=1, description="smaller weights are no edge")


class RandomKeys(GraphKeys):
    """Keys of `graph=random`."""

    density: float | None = Field(None, ge=0, le=1, description="share of pairs linked; default as in the given graph")


class FileKeys(GraphKeys):
    """Keys of `graph=FILE`."""

    directed: bool | None = Field(None, description="CSV only: the target listens to the source; default no direction")


@dataclass(frozen=True)
class GraphChoice:
    """One way to get a graph: its name, one line, and the model of its keys."""

    name: str
    summary: str
    keys: type[GraphKeys]


GRAPHS = {
    choice.name: choice
    for choice in (
        GraphChoice("given", "the graph that comes with the data", GraphKeys),
        GraphChoice("knn", "every client linked with its k nearest, by features or by train labels", KnnKeys),
        GraphChoice("gaussian", "weight exp(-d²/sigma²) of the distance d, cut off at a threshold", GaussianKeys),
        GraphChoice("complete", "everyone linked with everyone", GraphKeys),
        GraphChoice("empty", "no links", GraphKeys),
        GraphChoice("random", "random links, as many as in the given graph or by density", RandomKeys),
        GraphChoice(FILE, f"a file of yours: {', '.join(GRAPH_SUFFIXES)}", FileKeys),
    )
}


def is_graph_file(name: str) -> bool:
    """Whether the value of `graph=` names a file rather than a choice."""
    looks = "/" in name or Path(name).suffix.lower() in GRAPH_SUFFIXES or Path(name).expanduser().is_file()
    return name not in GRAPHS and looks


def find_graph(name: str) -> GraphChoice:
    """The choice of a name (a path is the choice FILE), or an error with the nearest one."""
    if is_graph_file(name):
        return GRAPHS[FILE]
    if name == FILE:
        raise RequestError(f"graph={FILE}: give the name of a file that ends in {', '.join(GRAPH_SUFFIXES)}")
    if name not in GRAPHS:
        raise unknown("graph", name, GRAPHS)
    return GRAPHS[name]
