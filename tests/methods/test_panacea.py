"""Panacea's server: which way it steps, what it reduces to, and one step worked out by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from panacea.core.method import Model
from panacea.core.parameters import Layout
from panacea.core.records import leaves
from panacea.hypernets import GeneratingMethod, HypernetworkState, Propagation
from panacea.hypernets.links import linked_pairs
from tests.hypernets.build import (
    PLAIN,
    SMALL,
    cohort_of,
    graph_of,
    path_graph,
    rounds,
    server,
    tensor,
    uploads_of,
    with_parts,
)

GRAPH = graph_of(6, [(0, 1), (0, 4), (1, 2), (2, 3)], [0.5, 2.0, 1.0, 1.5])  # 5 is alone
HYPERNETWORKS = ("panacea", "panacea_gn", "panacea_mlp")


def distance(method: GeneratingMethod, state: HypernetworkState, targets: Tensor, ids: list[int]) -> float:
    return float((targets - method.generated(state, np.array(ids))).square().sum(dim=1).mean())


@pytest.mark.parametrize("update", ["target", "frozen_delta"])
@pytest.mark.parametrize("name", HYPERNETWORKS)
def test_the_models_move_towards_those_that_came_back(name: str, update: str) -> None:
    """Invariant 1. The printed sign is a step towards the models reflected at those that were sent."""
    method, state = server(name, GRAPH, {"update": update}, server_steps=5, server_lr=1e-3)
    ids = [0, 2, 3]
    cohort = cohort_of(method, ids)
    uploads = uploads_of(method, state, cohort)
    sent = method.download(state, cohort).params
    before = distance(method, state, uploads.params, ids)
    assert distance(method, method.aggregate(state, uploads, cohort), uploads.params, ids) < 0.99 * before
    printed = method.aggregate(state, Model(2 * sent - uploads.params), cohort)
    assert distance(method, printed, uploads.params, ids) > 1.01 * before


def generate(
    method: GeneratingMethod, table: Tensor, weights: Tensor, row: int, matrix: Tensor | None = None
) -> Tensor:
    """One client's model as a function of all the server learns; written apart from `aggregate`."""
    parts = method.layout.unflatten(weights)
    if matrix is None and hasattr(method, "graph"):
        matrix = Propagation(method.graph, "mean", table).whole().matrix
    z = table
    for layer in range(method.network.encoder.layers):
        assert matrix is not None
        z = functional.linear(matrix @ z, parts[f"encoder.{layer}.weight"], parts[f"encoder.{layer}.bias"])
        z = torch.relu(z) if layer < method.network.encoder.layers - 1 else z
    for layer in range(2):
        z = torch.relu(functional.linear(z, parts[f"trunk.{layer}.weight"], parts[f"trunk.{layer}.bias"]))
    return functional.linear(z, parts["head.weight"], parts["head.bias"])[row]


@pytest.mark.parametrize("name", ["panacea_gn", "panacea_mlp"])
def test_one_step_is_the_transposed_jacobian(name: str) -> None:
    """Invariant 3: K_s = 1, one client, plain SGD: the change is alpha J^T (ttheta - theta)."""
    method, state = server(name, GRAPH, PLAIN, server_steps=1, server_lr=0.05)
    state = dataclasses.replace(state, weights=0.5 * tensor(len(state.weights), seed=7))
    cohort = cohort_of(method, [2])
    uploads = uploads_of(method, state, cohort)
    delta = uploads.params[0] - method.download(state, cohort).params[0]
    jacobians = torch.func.jacrev(lambda t, w: generate(method, t, w, 2), argnums=(0, 1))(state.table, state.weights)
    new = method.aggregate(state, uploads, cohort)
    for old, moved, jacobian in zip((state.table, state.weights), (new.table, new.weights), jacobians, strict=True):
        expected = 0.05 * torch.tensordot(delta, jacobian, dims=1)
        assert float(expected.abs().max()) > 1e-4
        assert torch.allclose(moved - old, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("steps", "agree"), [(1, True), (3, False)])
@pytest.mark.parametrize("name", HYPERNETWORKS)
def test_a_fixed_difference_and_a_fixed_target(name: str, steps: int, agree: bool) -> None:
    states = []
    for update in ("target", "frozen_delta"):
        method, state = server(name, GRAPH, {"update": update}, server_steps=steps, server_lr=0.05)
        states.append(rounds(method, state, [[0, 2]]))
    gap = float((states[0].weights - states[1].weights).abs().max())
    assert gap < 1e-14 if agree else gap > 1e-6


def test_a_fixed_difference_by_hand() -> None:
    """Three steps along J(psi)^T Delta with the Jacobian of the moment and the first Delta; mean over two clients."""
    method, state = server("panacea_gn", GRAPH, PLAIN | {"update": "frozen_delta"}, server_steps=3, server_lr=0.05)
    cohort = cohort_of(method, [1, 4])
    uploads = uploads_of(method, state, cohort)
    delta = uploads.params - method.download(state, cohort).params
    table, weights = state.table, state.weights
    for _ in range(3):
        moves = [
            torch.func.vjp(lambda t, w, row=row: generate(method, t, w, row), table, weights)[1](delta[i])
            for i, row in enumerate((1, 4))
        ]
        table, weights = table + 0.025 * (moves[0][0] + moves[1][0]), weights + 0.025 * (moves[0][1] + moves[1][1])
    new = method.aggregate(state, uploads, cohort)
    assert torch.allclose(new.table, table, rtol=0, atol=1e-12)
    assert torch.allclose(new.weights, weights, rtol=0, atol=1e-12)


@pytest.mark.parametrize("update", ["target", "frozen_delta"])
@pytest.mark.parametrize("transform", ["mlp", "identity"])
@pytest.mark.parametrize("balance", ["classes", "literal"])
def test_the_whole_loss(balance: str, transform: str, update: str) -> None:
    """fit + lambda_d L_d + view V, each written down again; one step of SGD and the terms that are logged.

    Viewed as newcomers, the three clients are three more nodes, which hear what the clients hear and themselves.
    """
    keys = {"lambda_d": 0.7, "newcomer_view": 0.4, "balance": balance, "transform": transform, "update": update}
    method, state = server("panacea", GRAPH, PLAIN | keys, server_steps=1, server_lr=0.05)
    ids = [0, 1, 5]  # 5 is viewed with the mean of all rows
    cohort = cohort_of(method, ids)
    targets = uploads_of(method, state, cohort).params
    sent = method.download(state, cohort).params
    linked = torch.from_numpy(linked_pairs(GRAPH.edges[:, 0], GRAPH.edges[:, 1], np.arange(6), 6))
    mean = Propagation(GRAPH, "neighbours", targets).whole().matrix
    pairs = [(u, v) for u in range(6) for v in range(6) if u != v]
    heard = Propagation(GRAPH, "mean", targets).whole().matrix
    itself = torch.diag(heard.diagonal())
    grown = torch.cat([torch.cat([heard, torch.zeros(6, 3)], 1), torch.cat([heard - itself, itself[:, ids]], 1)[ids]])

    def terms(table: Tensor, weights: Tensor) -> list[Tensor]:
        models = torch.stack([generate(method, table, weights, row) for row in ids])
        new = torch.where(mean.sum(dim=1, keepdim=True) > 0, mean @ table, table.mean(dim=0))
        seen = torch.cat([table, new[ids]])
        newcomers = torch.stack([generate(method, seen, weights, 6 + copy, grown) for copy in range(3)])
        parts = method.layout.unflatten(weights)
        z = method.network.encode(parts, table, method.planner.encode(np.arange(6)))
        if transform == "mlp":
            hidden = torch.relu(functional.linear(z, parts["links.0.weight"], parts["links.0.bias"]))
            z = functional.linear(hidden, parts["links.1.weight"], parts["links.1.bias"])
        costs = {pair: functional.softplus((-1 if linked[pair] else 1) * z[pair[0]] @ z[pair[1]] / 5**0.5)
                 for pair in pairs}  # fmt: skip
        classes = [torch.stack([costs[p] for p in pairs if bool(linked[p]) is label]) for label in (True, False)]
        links = (classes[0].mean() + classes[1].mean()) / 2 if balance == "classes" else torch.cat(classes).mean()
        fits = [(targets - found).square().sum(dim=1).mean() / 2 for found in (models, newcomers)]
        steps = fits
        if update == "frozen_delta":
            steps = [-((targets - sent) * found).sum(dim=1).mean() for found in (models, newcomers)]
        return [steps[0] + 0.7 * links + 0.4 * steps[1], fits[0], links, fits[1]]

    variables = [state.table.clone().requires_grad_(), state.weights.clone().requires_grad_()]
    gradients = torch.autograd.grad(terms(*variables)[0], variables)
    new = method.aggregate(state, Model(targets), cohort)
    assert torch.allclose(new.table, state.table - 0.05 * gradients[0], rtol=0, atol=1e-10)
    assert torch.allclose(new.weights, state.weights - 0.05 * gradients[1], rtol=0, atol=1e-10)
    before, after = terms(state.table, state.weights), terms(new.table, new.weights)
    logged = torch.stack([before[1], after[1], *before[2:]])  # L_d and view are those of the last (here: only) step
    assert torch.allclose(new.terms, logged, rtol=1e-10)


def test_l_d_does_not_train_the_generator() -> None:
    """With nothing to fit, L_d moves encoder, embeddings and its transform; trunk and head stay."""
    method, state = server("panacea", GRAPH, PLAIN | {"lambda_d": 1.0}, server_steps=2)
    cohort = cohort_of(method, [0, 1])
    one = dataclasses.replace(method.setting, server_steps=1)
    method.setting = one
    new = method.aggregate(state, uploads_of(method, state, cohort, size=0.0), cohort)
    before, after = (method.layout.unflatten(s.weights) for s in (state, new))
    moved = {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])}
    assert moved == {"encoder", "links"}
    assert not torch.equal(state.table, new.table)


@pytest.mark.parametrize("keys", [{}, {"newcomer_view": 0.5, "encoder": "gat", "optimiser": "adam", "residual": True}])
def test_without_its_generator_it_is_panacea_gn(keys: dict[str, Any]) -> None:
    """Invariant 2, bit for bit."""
    states = []
    for name, extra in (("panacea", {"lambda_d": 0}), ("panacea_gn", {})):
        method, state = server(name, GRAPH, keys | extra, novel=(5,))
        states.append(rounds(method, state, [[0, 2], [1, 2, 3], [4]]))
    assert all(torch.equal(a, b) for a, b in zip(leaves(states[0]), leaves(states[1]), strict=True))


def test_without_edges_it_is_an_mlp_hypernetwork() -> None:
    """Invariant 2: three Linear layers of the encoder (ReLU between), two of the trunk, the head; torch's SGD."""
    method, state = server("panacea_gn", graph_of(5, []), {"h0": "E1", "clip": 0, "weight_decay": 0.01})
    parts = method.layout.unflatten(state.weights)
    names = [f"{block}.{i}" for block, count in (("encoder", 3), ("trunk", 2)) for i in range(count)] + ["head"]
    stack: list[nn.Module] = []
    for name in names:
        weight, bias = parts[f"{name}.weight"], parts[f"{name}.bias"]
        linear = nn.Linear(weight.shape[1], weight.shape[0]).double()
        linear.load_state_dict({"weight": weight, "bias": bias})
        stack += [linear] if name in ("encoder.2", "head") else [linear, nn.ReLU()]
    net, table = nn.Sequential(*stack), nn.Parameter(state.table.clone())
    optimiser = torch.optim.SGD([table, *net.parameters()], 0.01, momentum=0.9, weight_decay=0.01)
    for number, ids in enumerate([[0, 3], [1, 2, 4], [0, 1]], 1):
        cohort = cohort_of(method, ids, number)
        uploads = uploads_of(method, state, cohort)
        assert torch.allclose(net(table[ids]), method.download(state, cohort).params, rtol=0, atol=1e-12)
        state = method.aggregate(state, uploads, cohort)
        for _ in range(3):
            optimiser.zero_grad()
            ((uploads.params - net(table[ids])).square().sum(dim=1).mean() / 2).backward()
            optimiser.step()
    assert torch.allclose(table, state.table, rtol=0, atol=1e-12)
    assert torch.allclose(net(table), method.generated(state, np.arange(5)), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["mean", "gcn", "sage", "gat", "gated"])
def test_relabelling_clients_permutes_models(kind: str) -> None:
    """Also of those that train: client i becomes order[i], with its row."""
    order = np.array([4, 2, 0, 5, 1, 3])
    moved = graph_of(6, order[GRAPH.edges], GRAPH.weights)
    method, state = server("panacea", GRAPH, {"encoder": kind})
    other, fresh = server("panacea", moved, {"encoder": kind})
    table = torch.empty_like(state.table)
    table[torch.from_numpy(order)] = state.table
    relabelled = dataclasses.replace(fresh, table=table)
    models, permuted = (m.generated(s, np.arange(6)) for m, s in ((method, state), (other, relabelled)))
    assert torch.allclose(permuted[torch.from_numpy(order)], models, rtol=0, atol=1e-12)
    assert float((models[0] - models[1]).abs().max()) > 1e-6


def by_hand(parameters: dict[str, Any], lr: float = 0.01) -> tuple[GeneratingMethod, HypernetworkState]:
    """Everything of width 1: path 0 - 1 - 2 with h = 1, 3, 5; all weights 1 and biases 0, but head 2 f + 1."""
    layout = Layout(("w",), ((1,),))
    keys = {"embedding": 1, "width": 1, "hidden": 1, "layers": 1, **PLAIN, **parameters}
    method, state = server("panacea", path_graph(3), keys, layout=layout, server_lr=lr, server_steps=1)
    ones = {f"{name}__weight": 1.0 for name in ("encoder__0", "trunk__0", "trunk__1")}
    zeros = {f"{name}__bias": 0.0 for name in ("encoder__0", "trunk__0", "trunk__1")}
    state = with_parts(method, state, **ones, **zeros, head__weight=2.0, head__bias=1.0)
    return method, dataclasses.replace(state, table=torch.tensor([[1.0], [3.0], [5.0]], dtype=torch.float64))


def test_one_step_by_hand() -> None:
    """z = (1 + 3)/2, (1 + 3 + 5)/3, (3 + 5)/2 = 2, 3, 4, so the models sent are 2 z + 1 = 5, 7, 9.

    Client 0 answers 6: the gradient in its model is -1. Head: weight -2, bias -1. Features: -2. Trunk, both layers and
    encoder alike: weight -2 * 2 = -4, bias -2. Rows: -2 through the mean of 0 and 1, -1 each; row 2 is not heard.
    With alpha 0.01: head 2.02 f + 1.01, layers 1.04 x + 0.02, h = 1.01, 3.01, 5.
    """
    method, state = by_hand({"lambda_d": 0})
    assert method.generated(state, np.arange(3)).flatten().tolist() == [5.0, 7.0, 9.0]
    new = method.aggregate(state, Model(torch.tensor([[6.0]], dtype=torch.float64)), cohort_of(method, [0]))
    assert new.table.flatten().tolist() == pytest.approx([1.01, 3.01, 5.0])
    parts = {name: part.item() for name, part in method.layout.unflatten(new.weights).items()}
    for layer in ("encoder.0", "trunk.0", "trunk.1"):
        assert (parts[f"{layer}.weight"], parts[f"{layer}.bias"]) == (pytest.approx(1.04), pytest.approx(0.02))
    assert (parts["head.weight"], parts["head.bias"]) == (pytest.approx(2.02), pytest.approx(1.01))
    assert new.terms[0].item() == 0.5
    assert tensor(1).dtype == new.weights.dtype


def test_a_cohort_is_averaged_by_hand() -> None:
    """Clients 0 and 2 answer 6 and 9 + 1: half of each. Head: weight (2 + 4)/2, bias 1; rows 1/2, 1/2 + 1/2, 1/2."""
    method, state = by_hand({"lambda_d": 0})
    new = method.aggregate(state, Model(torch.tensor([[6.0], [10.0]], dtype=torch.float64)), cohort_of(method, [0, 2]))
    assert new.table.flatten().tolist() == pytest.approx([1.005, 3.01, 5.005])
    parts = method.layout.unflatten(new.weights)
    assert parts["head.weight"].item() == pytest.approx(2.03)
    assert parts["head.bias"].item() == pytest.approx(1.01)


def test_a_newcomer_by_hand() -> None:
    """A fourth client linked to 2 gets h = 5, z = (5 + 5)/2 and the model 2 * 5 + 1; nobody else changes."""
    from panacea.core.store import ClientStore
    from panacea.core.types import Newcomers

    method, state = by_hand({"lambda_d": 0})
    grown = path_graph(3).with_node([2])
    found = method.admit(state, ClientStore(4), Newcomers(np.array([3]), grown))
    assert found.tolist() == [[11.0]]
    assert method.generated(state, np.arange(3)).flatten().tolist() == [5.0, 7.0, 9.0]


def test_sizes() -> None:
    """Embeddings, three graph layers, two of the trunk, the head, and the transform of L_d."""
    d, w, h, p = SMALL["embedding"], 5, SMALL["hidden"], 11
    encoder = w * d + w + 2 * (w * w + w)
    trunk_and_head = h * w + h + h * h + h + p * h + p
    _, state = server("panacea_gn", GRAPH)
    assert state.weights.numel() == encoder + trunk_and_head
    assert state.table.shape == (6, d)
    assert server("panacea", GRAPH)[1].weights.numel() == encoder + trunk_and_head + 2 * (w * w + w)
    assert server("panacea", GRAPH, {"transform": "identity"})[1].weights.numel() == encoder + trunk_and_head
