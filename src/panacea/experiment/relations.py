"""The relation graph an experiment asks for: `graph=knn graph.k=3 graph.drop=0.2`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from panacea.core.validation import validated
from panacea.data.federation import Federation
from panacea.data.profile import client_profiles
from panacea.errors import RequestError
from panacea.experiment.config import Section
from panacea.graphs import ClientGraph, ablate, build, read_graph
from panacea.graphs.keys import FileKeys, GaussianKeys, GraphKeys, KnnKeys, RandomKeys, find_graph, is_graph_file
from panacea.graphs.summary import GraphSummary, summarise

__all__ = ["graph_summary", "relate", "resolve_graph"]

_ABLATIONS = ("rewire", "replace", "drop", "add")
_DEFAULT_K = 5


def resolve_graph(section: Section, seed: int) -> GraphKeys:
    """The checked `graph.*` keys of a request; `graph.seed` is the seed unless it is given.

    Raises:
        RequestError: the graph or a key is unknown, or a value is not allowed.
    """
    return validated(find_graph(section.name).keys, {"seed": seed, **section.keys}, "graph")


def relate(federation: Federation, name: str, keys: GraphKeys) -> tuple[Federation, Section]:
    """The federation with the graph asked for, and that request with every key it resolved to.

    Args:
        federation: the clients, with the graph that came with them.
        name: a choice, or a file.
        keys: what `resolve_graph` made of the keys.
    """
    graph, keys, notes = _start(federation, name, keys)
    if graph is not None:
        graph = graph.binary() if keys.weights == "binary" else graph
        graph = graph.undirected() if keys.direction == "ignore" else graph
        graph = ablate.shuffle(graph, keys.seed) if keys.shuffle else graph
        for change in _ABLATIONS:
            share = getattr(keys, change)
            graph = _named(getattr(ablate, change), graph, share, keys.seed) if share else graph
    else:
        asked = [key for key in ("shuffle", *_ABLATIONS) if getattr(keys, key)]
        if asked:
            raise RequestError(f"graph.{asked[0]}: {federation.name} has no relation graph; choose one, e.g. graph=knn")
    name = str(Path(name).expanduser().resolve()) if is_graph_file(name) else name  # resume works from any folder
    related = dataclasses.replace(federation, graph=graph, notes=federation.notes + notes)
    return related, Section(name=name, keys=keys.model_dump(mode="json"))


def graph_summary(federation: Federation) -> GraphSummary | None:
    """The numbers of a federation's graph; None where there is none."""
    if federation.graph is None:
        return None
    profiles = None if federation.remote else client_profiles(federation)
    return summarise(federation.graph, profiles, federation.novel)


def _start(federation: Federation, name: str, keys: GraphKeys) -> tuple[ClientGraph | None, GraphKeys, tuple[str, ...]]:
    """The graph before anything is done to it, keys with their defaults filled in, and notes."""
    n, graph = len(federation), federation.graph
    notes: tuple[str, ...] = ()
    if isinstance(keys, FileKeys):
        graph, notes = read_graph(Path(name), federation.names, directed=keys.directed)
    elif isinstance(keys, KnnKeys):
        points, by = _points(federation, keys.by)
        k = min(_DEFAULT_K, max(n - 1, 1)) if keys.k is None else keys.k
        graph = _named(build.knn, points, k) if n > 1 else build.empty(n)
        keys = keys.model_copy(update={"k": k, "by": by})
    elif isinstance(keys, GaussianKeys):
        points, by = _points(federation, keys.by)
        sigma = build.distance_spread(points) if keys.sigma is None else keys.sigma
        graph = _named(build.gaussian, points, sigma, keys.threshold)
        keys = keys.model_copy(update={"sigma": sigma, "by": by})
    elif isinstance(keys, RandomKeys):
        if keys.density is None and graph is None:
            raise RequestError(f"graph.density is missing: {federation.name} has no graph whose density could be kept")
        like = graph if keys.density is None else None
        graph = _named(build.random, n, keys.density, like=like, seed=keys.seed)
    elif name != "given":
        graph = _named(build.complete if name == "complete" else build.empty, n)
    if isinstance(keys, KnnKeys | GaussianKeys) and keys.by == "labels" and federation.novel.any():
        notes = ("graph: links of novel clients were made from the labels of their own train split",)
    return graph, keys, notes


def _named(make: Callable[..., ClientGraph], *arguments: Any, **options: Any) -> ClientGraph:
    """Call; what is wrong with an argument is wrong with the key of its name."""
    try:
        return make(*arguments, **options)
    except RequestError as error:
        raise RequestError(f"graph.{error}") from None


def _points(federation: Federation, by: str) -> tuple[npt.NDArray[np.float64], str]:
    """A point per client, and what it is made of."""
    if by == "features" and federation.features is None:
        raise RequestError(f"graph.by=features: {federation.name} has no features of its clients; use graph.by=labels")
    if by != "labels" and federation.features is not None:
        return federation.features.astype(np.float64), "features"
    if federation.remote:
        raise RequestError("graph.by=labels: no server sees labels; give the graph itself, or features of the clients")
    return client_profiles(federation), "labels"
