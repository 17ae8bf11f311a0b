"""Every layer is the one of that name in torch_geometric, with the same weights."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from panacea.graphs import ClientGraph
from panacea.hypernets import Encoder, Propagation
from panacea.hypernets.encoders import MIXING
from panacea.hypernets.plan import Planner
from tests.hypernets.build import KINDS, graph_of, random_graph, tensor

pyg = pytest.importorskip("torch_geometric.nn")

LAYERS, INPUTS, WIDTH = 3, 4, 5


def arcs_of(graph: ClientGraph, loops: bool = False) -> tuple[Tensor, Tensor]:
    sources, targets, weights = (torch.from_numpy(part.copy()) for part in graph.arcs())
    index, weight = torch.stack([sources, targets]), weights.double()
    if loops:
        nodes = torch.arange(graph.n)
        index = torch.cat([index, torch.stack([nodes, nodes])], dim=1)
        weight = torch.cat([weight, torch.ones(graph.n, dtype=torch.float64)])
    return index, weight


def load(layer: torch.nn.Module, parts: dict[str, Tensor]) -> torch.nn.Module:
    layer.double()
    layer.load_state_dict({name: value.reshape(layer.state_dict()[name].shape) for name, value in parts.items()})
    return layer


def theirs(kind: str, parts: dict[str, Tensor], h: Tensor, graph: ClientGraph) -> Tensor:
    """The same encoder out of torch_geometric's layers."""
    index, weight = arcs_of(graph)
    if kind == "gated":
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        stacked = torch.stack([parts[f"encoder.{i}.weight"].T for i in range(LAYERS)])
        gru = {f"rnn.{name}": parts[f"encoder.gru.{name}"] for name in names}
        return load(pyg.GatedGraphConv(WIDTH, LAYERS), {"weight": stacked} | gru)(h, index, weight)
    for i in range(LAYERS):
        own = {name.split(".")[-1]: part for name, part in parts.items() if name.startswith(f"encoder.{i}.")}
        inputs, w, b = h.shape[1], own["weight"], own["bias"]
        if kind == "mean":
            looped, _ = arcs_of(graph, loops=True)
            layer = load(pyg.SAGEConv(inputs, WIDTH, "mean", root_weight=False), {"lin_l.weight": w, "lin_l.bias": b})
            h = layer(h, looped)
        elif kind == "gcn":
            h = load(pyg.GCNConv(inputs, WIDTH), {"lin.weight": w, "bias": b})(h, index, weight)
        elif kind == "sage":
            layer = load(pyg.SAGEConv(inputs, WIDTH), {"lin_l.weight": w, "lin_l.bias": b, "lin_r.weight": own["own"]})
            h = layer(h, index)
        else:
            speaker, listener = own["attention"]
            layer = load(
                pyg.GATConv(inputs, WIDTH, heads=1),
                {"lin.weight": w, "att_src": speaker, "att_dst": listener, "bias": b},
            )
            h = layer(h, index)
        h = torch.relu(h) if i < LAYERS - 1 else h
    return h


def weighted_means(kind: str, parts: dict[str, Tensor], h: Tensor, graph: ClientGraph) -> Tensor:
    """torch_geometric's SAGEConv knows no weights; GraphConv does, once they sum to one."""
    index, weight = arcs_of(graph, loops=kind == "mean")
    total = torch.zeros(graph.n, dtype=torch.float64).index_add(0, index[1], weight)
    for i in range(LAYERS):
        w, b = parts[f"encoder.{i}.weight"], parts[f"encoder.{i}.bias"]
        own = parts[f"encoder.{i}.own"] if kind == "sage" else torch.zeros_like(w)
        layer = load(pyg.GraphConv(h.shape[1], WIDTH), {"lin_rel.weight": w, "lin_rel.bias": b, "lin_root.weight": own})
        h = layer(h, index, weight / total[index[1]])
        h = torch.relu(h) if i < LAYERS - 1 else h
    return h


def encode(
    kind: str, graph: ClientGraph, seed: int = 0, inputs: int = INPUTS
) -> tuple[Tensor, dict[str, Tensor], Tensor]:
    encoder = Encoder(kind, LAYERS, inputs, WIDTH)
    parts = encoder.init(torch.Generator().manual_seed(seed))
    h = tensor(graph.n, inputs, seed=seed)
    plan = Planner(graph, encoder, h, "dense").encode(torch.arange(graph.n).numpy())
    return encoder(parts, h, plan.blocks), parts, h


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
class TestPyg:
    @pytest.mark.parametrize("seed", range(4))
    def test_plain_graphs(self, kind: str, directed: bool, seed: int) -> None:
        graph = random_graph(4 + 3 * seed, seed, directed=directed, alone=1 + seed % 2)
        ours, parts, h = encode(kind, graph, seed)
        assert torch.allclose(ours, theirs(kind, parts, h, graph), rtol=0, atol=1e-10)

    def test_weighted_graphs(self, kind: str, directed: bool) -> None:
        graph = random_graph(9, 7, weighted=True, directed=directed)
        ours, parts, h = encode(kind, graph)
        reference = weighted_means if kind in ("mean", "sage") else theirs  # attention chooses for itself
        assert torch.allclose(ours, reference(kind, parts, h, graph), rtol=0, atol=1e-10)

    def test_gradients(self, kind: str, directed: bool) -> None:
        graph = random_graph(8, 6, directed=directed)
        _, parts, h = encode(kind, graph)
        encoder, h = Encoder(kind, LAYERS, INPUTS, WIDTH), h.requires_grad_()
        ours = encoder(parts, h, Planner(graph, encoder, h, "dense").encode(torch.arange(8).numpy()).blocks)
        probe = tensor(8, WIDTH, seed=9)
        found, expected = (torch.autograd.grad((z * probe).sum(), h)[0] for z in (ours, theirs(kind, parts, h, graph)))
        assert torch.allclose(found, expected, rtol=0, atol=1e-10)

    def test_a_graph_without_edges(self, kind: str, directed: bool) -> None:
        graph = graph_of(3, [], directed=directed)
        ours, parts, h = encode(kind, graph)
        assert torch.allclose(ours, theirs(kind, parts, h, graph), rtol=0, atol=1e-10)


def test_attention_survives_large_scores() -> None:
    graph = random_graph(6, 1)
    encoder = Encoder("gat", 1, 4, 5)
    parts = encoder.init(torch.Generator().manual_seed(0))
    parts["encoder.0.attention"] = parts["encoder.0.attention"] * 1e6
    plan = Planner(graph, encoder, tensor(1), "dense").encode(torch.arange(6).numpy())
    assert bool(torch.isfinite(encoder(parts, tensor(6, 4), plan.blocks)).all())


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_mean_operator_averages(weighted: bool, directed: bool) -> None:
    """Rows sum to one: with clients as columns, as the theory writes them, G is column-stochastic."""
    graph = random_graph(9, 5, weighted=weighted, directed=directed)
    matrix = Propagation(graph, "mean", tensor(1)).whole().matrix
    assert torch.allclose(matrix.sum(dim=1), torch.ones(9, dtype=torch.float64), atol=1e-14)
    assert bool((matrix >= 0).all())
    assert matrix[8].tolist() == [0.0] * 8 + [1.0]  # an isolated client hears itself
    assert torch.equal(matrix > 0, torch.from_numpy(graph.dense() > 0) | torch.eye(9, dtype=torch.bool))


@pytest.mark.parametrize("kind", KINDS)
def test_relabelling_clients_permutes_codes(kind: str) -> None:
    graph = random_graph(7, 2, weighted=True, directed=True)
    order = [3, 0, 6, 1, 5, 2, 4]  # client i becomes client order[i]
    moved = graph_of(7, [(order[a], order[b]) for a, b in graph.edges], graph.weights, directed=True)
    encoder = Encoder(kind, LAYERS, INPUTS, WIDTH)
    parts = encoder.init(torch.Generator().manual_seed(0))
    h = tensor(7, INPUTS)
    permuted = torch.empty_like(h)
    permuted[order] = h
    z, other = (
        encoder(parts, rows, Planner(g, encoder, h).encode(torch.arange(7).numpy()).blocks)
        for g, rows in ((graph, h), (moved, permuted))
    )
    assert torch.allclose(other[order], z, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("residual", "norm"), [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("inputs", [WIDTH, 3])
def test_residual_and_norm_by_their_formula(residual: bool, norm: bool, inputs: int) -> None:
    """h <- h + relu(W G norm(h) + b), the first layer without h where widths differ, no ReLU at the end."""
    graph = random_graph(6, 3)
    encoder = Encoder("mean", 2, inputs, WIDTH, residual, norm)
    parts = encoder.init(torch.Generator().manual_seed(1))
    h = tensor(6, inputs)
    ours = encoder(parts, h, Planner(graph, encoder, h).encode(torch.arange(6).numpy()).blocks)
    mix = Propagation(graph, "mean", h).whole().matrix

    def normed(value: Tensor) -> Tensor:
        return functional.layer_norm(value, value.shape[-1:]) if norm else value

    first = torch.relu(mix @ normed(h) @ parts["encoder.0.weight"].T + parts["encoder.0.bias"])
    first = first + h if residual and inputs == WIDTH else first
    second = mix @ normed(first) @ parts["encoder.1.weight"].T + parts["encoder.1.bias"]
    second = second + first if residual else second
    assert torch.allclose(ours, normed(second), rtol=0, atol=1e-12)


def test_no_layer_is_the_identity() -> None:
    encoder, h = Encoder("mean", 0, 3, 9), tensor(2, 3)
    assert encoder.outputs == 3
    assert torch.equal(encoder(encoder.init(torch.Generator()), h, []), h)
    assert Encoder("gcn", 1, 3, 9).outputs == 9


def test_fresh_weights_are_those_of_a_linear_layer() -> None:
    """U(+-1/sqrt(inputs)): all within the bound, and spread like it."""
    weight = Encoder("mean", 1, 400, 300).init(torch.Generator().manual_seed(0))["encoder.0.weight"]
    assert float(weight.abs().max()) <= 1 / 20
    assert float(weight.std()) == pytest.approx(1 / 20 / 3**0.5, rel=0.01)
    assert abs(float(weight.mean())) < 1e-3


def test_every_kind_has_its_coefficients() -> None:
    assert set(MIXING) == set(KINDS)
