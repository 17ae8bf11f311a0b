"""Small hypernetwork servers without an experiment around them: a graph, a layout, and uploads made up by a seed."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from panacea.core.method import Model
from panacea.core.parameters import Layout
from panacea.core.random import Streams
from panacea.core.types import Cohort, Setting
from panacea.graphs import ClientGraph
from panacea.hypernets import GeneratingMethod, HypernetworkState
from panacea.hypernets.view import Links
from panacea.methods import make_method

LAYOUT = Layout(("hidden.weight", "hidden.bias", "fc.weight", "fc.bias"), ((2, 3), (2,), (1, 2), (1,)))  # P = 11
SMALL = {"embedding": 4, "hidden": 6}
PLAIN = {"optimiser": "sgd", "clip": 0, "weight_decay": 0}
KINDS = ("mean", "gcn", "sage", "gat", "gated")


def graph_of(n: int, edges: Any, weights: Any = None, directed: bool = False) -> ClientGraph:
    return ClientGraph.from_edges(n, edges, weights, directed=directed)[0]


def path_graph(n: int) -> ClientGraph:
    return graph_of(n, [(i, i + 1) for i in range(n - 1)])


def complete_graph(n: int) -> ClientGraph:
    return graph_of(n, [(i, j) for i in range(n) for j in range(i)])


def all_links(cohort: Any) -> Links:
    """A view in which the cohort hears all its neighbours."""
    return Links(np.ones(len(cohort)), 5)


def random_graph(n: int, seed: int, weighted: bool = False, directed: bool = False, alone: int = 1) -> ClientGraph:
    """A third of the pairs linked, the last `alone` nodes isolated."""
    generator = np.random.default_rng(seed)
    pairs = [(i, j) for i in range(n - alone) for j in range(n - alone) if (i != j if directed else i < j)]
    edges = [pair for pair in pairs if generator.random() < 1 / 3]
    weights = generator.uniform(0.2, 3, len(edges)) if weighted else None
    return graph_of(n, edges, weights, directed)


@st.composite
def graphs(draw: st.DrawFn, largest: int = 8) -> ClientGraph:
    n = draw(st.integers(1, largest))
    directed = draw(st.booleans())
    pairs = [(i, j) for i in range(n) for j in range(n) if (i != j if directed else i < j)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    weights = draw(st.lists(st.sampled_from([0.25, 1.0, 3.0]), min_size=len(edges), max_size=len(edges)))
    return graph_of(n, edges, weights, directed)


def tensor(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def server(
    name: str,
    graph: ClientGraph | None,
    parameters: dict[str, Any] | None = None,
    *,
    n: int | None = None,
    novel: tuple[int, ...] = (),
    layout: Layout = LAYOUT,
    features: Any = None,
    server_lr: float = 0.01,
    server_steps: int = 3,
    dtype: torch.dtype = torch.float64,
) -> tuple[GeneratingMethod, HypernetworkState]:
    """A method with its state before the first round."""
    clients = n if graph is None else graph.n
    assert clients is not None
    sizes: dict[str, Any] = dict(SMALL)
    if name in ("panacea", "panacea_gn"):
        sizes |= {"width": 5, "preset": "paper"}  # tests say what they add to it
    method = make_method(name, sizes | (parameters or {}))
    assert isinstance(method, GeneratingMethod)
    setting = Setting(
        initial=tensor(layout.size, seed=99).to(dtype),
        layout=layout,
        statistics_layout=Layout((), ()),
        counts=np.arange(1, clients + 1),
        train_ids=np.setdiff1d(np.arange(clients), novel),
        graph=graph,
        features=features,
        streams=Streams(3),
        rounds=10,
        lr=0.1,
        local_steps=1,
        server_lr=server_lr,
        server_steps=server_steps,
    )
    return method, method.init_server(setting)


def cohort_of(method: GeneratingMethod, ids: Any, round: int = 1) -> Cohort:
    return Cohort.of(np.array(ids), method.setting.counts, round, method.setting.initial)


def uploads_of(method: GeneratingMethod, state: HypernetworkState, cohort: Cohort, size: float = 0.3) -> Model:
    """What was sent, moved by noise of the round."""
    sent = method.download(state, cohort).params
    return dataclasses.replace(
        method.download(state, cohort), params=sent + size * tensor(*sent.shape, seed=cohort.round).to(sent)
    )


def rounds(method: GeneratingMethod, state: HypernetworkState, cohorts: list[list[int]]) -> HypernetworkState:
    for number, ids in enumerate(cohorts, 1):
        cohort = cohort_of(method, ids, number)
        state = method.aggregate(state, uploads_of(method, state, cohort), cohort)
    return state


def with_parts(method: GeneratingMethod, state: HypernetworkState, **parts: Any) -> HypernetworkState:
    """The state with weights set by name (dots written as double underscores)."""
    known = {name: part.clone() for name, part in method.layout.unflatten(state.weights).items()}
    for name, value in parts.items():
        known[name.replace("__", ".")].copy_(torch.as_tensor(value, dtype=state.weights.dtype))
    return dataclasses.replace(state, weights=method.layout.flatten(known))
