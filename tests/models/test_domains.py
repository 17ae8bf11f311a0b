"""A layer with domains is the plain layer beside one plain layer for each domain."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from panacea.models.domain_network import DomainNetwork, averaged_means, domain_classifier
from panacea.models.domains import DomainPlan, Route, WMode, find_layers, make_layer

LAYERS: list[tuple[nn.Module, tuple[int, ...]]] = [
    (nn.Linear(3, 4), (5, 3)),
    (nn.Linear(3, 4, bias=False), (5, 2, 3)),
    (nn.Conv1d(2, 3, 3, padding="same"), (5, 2, 6)),
    (nn.Conv2d(4, 6, 3, groups=2, stride=2, bias=False), (5, 4, 7, 6)),
    (nn.Conv2d(2, 4, (3, 1), padding=(1, 0), padding_mode="reflect", dilation=1), (5, 2, 6, 6)),
    (nn.Conv2d(4, 8, 1, groups=4), (5, 4, 3, 3)),
    (nn.BatchNorm2d(3), (5, 3, 4, 4)),
    (nn.BatchNorm1d(3), (5, 3)),
]


def shifted(layer: nn.Module, seed: int) -> nn.Module:
    """A copy with other weights."""
    made = copy.deepcopy(layer)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in made.parameters():
            p.copy_(torch.randn(p.shape, generator=generator))
    return made


def features(layer: nn.Module) -> Tensor:
    """``[filters, q]``: every filter's weights and bias."""
    return torch.cat([p.detach().reshape(len(p), -1) for p in layer.parameters()], dim=1)


@pytest.mark.parametrize(("layer", "shape"), LAYERS, ids=str)
@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("w_mode", ["identity", "full"])
def test_the_sum_of_plain_layers(layer: nn.Module, shape: tuple[int, ...], residual: bool, w_mode: WMode) -> None:
    route = Route()
    plan = DomainPlan(3, w_mode=w_mode, out_relu=False, residual=residual, balance=0.75)  # exact in float32
    own = [shifted(layer, seed).double() for seed in range(3)]
    agnostic = shifted(layer, 9).double()
    made = make_layer(agnostic, plan, route, 0, "layer").double().eval()
    with torch.no_grad():
        made.nodes.copy_(torch.stack([features(one) for one in own]).reshape(made.nodes.shape))
        for w in made.projections:
            w.copy_(torch.eye(len(w)))
    route.weights = torch.rand(5, 3, dtype=torch.float64)
    route.adjacency = torch.tensor([[[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.2, 0.3, 0.5]]], dtype=torch.float64)
    z = torch.randn(shape, dtype=torch.float64)
    every = torch.stack([one.eval()(z) for one in own], dim=1)  # linear in the parameters, so A mixes outputs
    every = torch.einsum("de,be...->bd...", route.adjacency[0], every)
    expected = torch.einsum("bd,bd...->b...", route.weights, every)
    if residual:
        expected = agnostic.eval()(z) + 0.75 * expected
    torch.testing.assert_close(made(z), expected)


def test_per_filter_shares_one_projection() -> None:
    """Filter f of domain d: ``relu(sum_e A_de V_ef W)``, worked out by a loop; twice for two layers."""
    route = Route()
    layer = nn.Linear(2, 3)
    made = make_layer(layer, DomainPlan(2, depth=2), route, 0, "layer")
    route.adjacency = torch.tensor([[[0.6, 0.4], [0.3, 0.7]]])
    v, (first, second) = made.nodes.detach(), [w.detach() for w in made.projections]
    assert v.shape == (2, 3, 3)
    for w in (first, second):
        v = torch.stack(
            [torch.stack([torch.relu((a[0] * v[0, f] + a[1] * v[1, f]) @ w) for f in range(3)])
             for a in route.adjacency[0]]
        )  # fmt: skip
    torch.testing.assert_close(made.generated(), v)


def test_a_bottleneck_is_narrow() -> None:
    layer = nn.Conv2d(2, 8, 2)  # 8 filters of 9 numbers
    for depth, shapes in ((1, [(72, 18), (18, 72)]), (2, [(72, 18), (18, 72)]), (3, [(72, 18), (18, 18), (18, 72)])):
        made = make_layer(layer, DomainPlan(2, "bottleneck", bottleneck=4, depth=depth), Route(), 0, "layer")
        assert [tuple(w.shape) for w in made.projections] == shapes


class Shared(nn.Module):
    """One linear layer under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(3, 3)
        self.b = self.a

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.b(self.a(x))
        return out


def test_a_layer_with_two_names_stays_one_layer() -> None:
    net = DomainNetwork(Shared(), (3,), plan=DomainPlan(2), domains=2, layers="last")
    assert net.network.a is net.network.b
    assert net.eval()(torch.rand(4, 3)).shape == (4, 3)


def test_which_layers_are_meant() -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Conv2d(2, 2, 3), nn.Flatten(), nn.Linear(32, 2))
    assert find_layers(net, "last") == ["2"]
    assert find_layers(net, "all") == ["0", "1", "2"]
    assert find_layers(net, "4+0") == ["0", "4"]
    vectors = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
    assert find_layers(vectors, "last") == ["2"]
    assert find_layers(vectors, "all") == ["0", "2"]


def test_the_users_network_is_left_alone() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    before = copy.deepcopy(net.state_dict())
    made = DomainNetwork(net, (3,), plan=DomainPlan(2), domains=2, layers="all")
    with torch.no_grad():
        for p in made.parameters():
            p.add_(1.0)
    assert [type(layer) for layer in net] == [nn.Linear, nn.ReLU, nn.Linear]
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


@pytest.mark.parametrize(("inputs", "size"), [((1, 8, 8), 18_816 + 65 * 4), ((3, 9, 9), 19_392 + 65 * 4)])
def test_the_domain_classifier_of_images_has_the_papers_size(inputs: tuple[int, ...], size: int) -> None:
    classifier = domain_classifier(inputs, 4)
    assert sum(p.numel() for p in classifier.parameters()) == size
    assert classifier(torch.rand(2, *inputs)).shape == (2, 4)
    assert domain_classifier((5, 2), 4)(torch.rand(3, 5, 2)).shape == (3, 4)  # anything else: an MLP


def test_means_of_a_fixed_teacher_are_averaged_and_of_the_student_not() -> None:
    """T = 2. Rounds 1, 2: 4 and 8 give 4, 6. Then the student's 5 counts as one value; with 8 and 11 it is 6.5, 8."""
    means = torch.zeros(2)
    for round, seen, expected in ((1, 4.0, 4.0), (2, 8.0, 6.0)):
        means = averaged_means(means, torch.tensor([seen, 10.0 * round]), round, 2)
        assert means.tolist() == [expected, 10.0 * round]
    means = torch.tensor([5.0, 5.0])  # the teacher was replaced
    for round, seen, expected in ((3, 8.0, 6.5), (4, 11.0, 8.0)):
        means = averaged_means(means, torch.tensor([seen, 0.0]), round, 2)
        assert means.tolist() == [expected, 0.0]
