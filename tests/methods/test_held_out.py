"""Clients held out of training: nothing of them is read, and what a newcomer is given."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from panacea.core.store import ClientStore
from panacea.core.types import Newcomers
from panacea.data.federation import Federation
from panacea.errors import RequestError
from panacea.hypernets import Propagation
from tests.hypernets.build import graph_of, random_graph, rounds, server
from tests.toy import SIZES, play, toy_experiment, toy_federation, trajectory

METHODS = ("panacea", "panacea_gn", "panacea_mlp", "pfedhn", "pfedhn_pc")
RING = [(i, (i + 1) % len(SIZES)) for i in range(len(SIZES))]


def trained(name: str, federation: Federation, monkeypatch: pytest.MonkeyPatch, **keys: Any) -> dict[str, torch.Tensor]:
    monkeypatch.setattr("tests.toy.toy_federation", lambda: federation)
    experiment = toy_experiment(name, keys)
    play(experiment, 3)
    return {key: value for key, value in trajectory(experiment).items() if key != "evaluated.True"}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    assert a.keys() == b.keys()
    return all(torch.equal(a[key], b[key]) for key in a)


def with_edges(edges: list[tuple[int, int]]) -> Federation:
    return dataclasses.replace(toy_federation(), graph=graph_of(len(SIZES), edges))


@pytest.mark.parametrize(
    ("name", "keys"),
    [*((name, {}) for name in METHODS), *((name, {"graph_mode": "transductive"}) for name in METHODS[:2])],
)
def test_samples_of_held_out_clients_are_never_read(
    name: str, keys: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other samples of theirs, and of others' test and val splits, change no bit of training."""
    federation = toy_federation()
    x, y = federation.x.clone(), federation.y.clone()
    for client in range(len(federation)):
        first = federation.bounds[client, 0 if federation.novel[client] else 1]
        unread = slice(int(first), int(federation.bounds[client, 3]))
        x[unread] = 7 - 3 * x[unread]
        y[unread] = 1 - y[unread]
    other = dataclasses.replace(federation, x=x, y=y)
    assert not torch.equal(other.x, federation.x)
    assert same(trained(name, federation, monkeypatch, **keys), trained(name, other, monkeypatch, **keys))


@pytest.mark.parametrize("name", METHODS)
def test_links_of_held_out_clients_are_not_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Client 6 is novel: linked to all instead of to 5 and 0."""
    between = [edge for edge in RING if 6 not in edge]
    everyone = with_edges([*between, *((i, 6) for i in range(6))])
    assert same(trained(name, with_edges(RING), monkeypatch), trained(name, everyone, monkeypatch))


@pytest.mark.parametrize("name", ["panacea", "panacea_gn"])
def test_links_of_held_out_clients_are_read_if_asked_to(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    between = [edge for edge in RING if 6 not in edge]
    everyone = with_edges([*between, *((i, 6) for i in range(6))])
    a, b = (trained(name, fed, monkeypatch, graph_mode="transductive") for fed in (with_edges(RING), everyone))
    assert not torch.equal(a["server.weights"], b["server.weights"])
    assert a["server.table"].shape[0] == 7
    inductive = trained(name, everyone, monkeypatch)
    assert inductive["server.table"].shape[0] == 6


def test_a_held_out_row_learns_from_its_neighbours_if_present() -> None:
    method, start = server("panacea_gn", graph_of(4, [(0, 3), (1, 2)]), {"graph_mode": "transductive"}, novel=(3,))
    state = rounds(method, start, [[0]])
    assert (state.table != start.table).any(dim=1).tolist() == [True, False, False, True]


# 0 - 1, 0 - 3, 2 - 3 (weight 3), 3 - 4; 3 and 4 are new
GRAPH = graph_of(5, [(0, 1), (0, 3), (2, 3), (3, 4)], [1, 1, 3, 1])


@pytest.mark.parametrize("execution", ["dense", "sparse", "neighbourhood"])
@pytest.mark.parametrize("name", ["panacea", "panacea_gn"])
def test_a_newcomers_model_by_hand(name: str, execution: str) -> None:
    """Rows of 3 and 4 by the rule, codes along the full graph, the trained network; and one of them alone the same."""
    method, state = server(name, GRAPH, {"execution": execution}, novel=(3, 4))
    state = rounds(method, state, [[0, 2], [1]])
    t = state.table
    rows = torch.cat([t, ((t[0] + 3 * t[2]) / 4).unsqueeze(0), t.mean(dim=0, keepdim=True)])
    mix = Propagation(GRAPH, "mean", t).whole().matrix
    parts, z = method.layout.unflatten(state.weights), rows
    for layer in range(3):
        z = mix @ z @ parts[f"encoder.{layer}.weight"].T + parts[f"encoder.{layer}.bias"]
        z = torch.relu(z) if layer < 2 else z
    expected = method.network.models(parts, z[3:])
    found = method.admit(state, ClientStore(5), Newcomers(np.array([3, 4]), GRAPH))
    assert torch.allclose(found, expected, rtol=0, atol=1e-12)
    alone = method.admit(state, ClientStore(5), Newcomers(np.array([4]), GRAPH))
    assert torch.allclose(alone, expected[1:], rtol=0, atol=1e-12)
    moved = graph_of(5, [(0, 1), (1, 4)])
    elsewhere = method.admit(state, ClientStore(5), Newcomers(np.array([4]), moved))
    assert not torch.allclose(alone, elsewhere)  # another graph is another place
    fresh, _ = server(name, GRAPH, {"execution": execution}, novel=(3, 4))
    assert torch.equal(elsewhere, fresh.admit(state, ClientStore(5), Newcomers(np.array([4]), moved)))


def test_a_held_out_client_that_was_present_has_its_row() -> None:
    method, state = server("panacea_gn", GRAPH, {"graph_mode": "transductive"}, novel=(3, 4))
    found = method.admit(state, ClientStore(5), Newcomers(np.array([3, 4]), GRAPH))
    assert torch.allclose(found, method.generated(state, np.array([3, 4])), atol=1e-13)


def test_a_newcomer_without_a_graph_is_the_mean() -> None:
    for rule in ("mean", "random"):
        method, state = server("panacea_mlp", GRAPH, {"novel_h0": rule}, novel=(3, 4))
        found = method.admit(state, ClientStore(5), Newcomers(np.array([3, 4]), GRAPH))
        expected = method.generate(state, state.table.mean(dim=0, keepdim=True))
        assert bool((found == expected).all()) is (rule == "mean")


def test_a_graph_method_asks_for_a_graph() -> None:
    with pytest.raises(RequestError, match=r"method=panacea needs a relation graph .* try graph=knn"):
        server("panacea", None, n=4)


@pytest.mark.parametrize("h0", ["learned", "fixed", "laplacian", "random_walk", "features"])
def test_which_embeddings_are_trained(h0: str) -> None:
    features = np.arange(12, dtype=np.float32).reshape(6, 2)
    method, start = server("panacea", random_graph(6, 9, alone=0), {"h0": h0}, novel=(5,), features=features)
    state = rounds(method, start, [[0, 1, 2], [3, 4]])
    assert torch.equal(state.table, start.table) is (h0 != "learned")
    assert not torch.equal(state.weights, start.weights)
    newcomers = Newcomers(np.array([5]), random_graph(6, 9, alone=0), features)
    assert bool(torch.isfinite(method.admit(state, ClientStore(6), newcomers)).all())


def test_gated_embeddings_wider_than_its_layers_are_refused() -> None:
    with pytest.raises(RequestError, match="gated"):
        server("panacea", GRAPH, {"encoder": "gated", "embedding": 9})
