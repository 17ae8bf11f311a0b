"""Max-pooling is moved before ReLU, with the same bits, and only where nobody else looks at what is between."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, fx, nn

from panacea.engines.pooling import pool_before_relu


class Net(nn.Module):
    """A convolution, a ReLU and a pooling, in one of several spellings."""

    def __init__(self, after: Callable[[nn.Module, Tensor], Tensor], inplace: bool = False) -> None:
        super().__init__()
        self.conv, self.relu, self.pool, self.after = nn.Conv2d(1, 3, 3), nn.ReLU(inplace), nn.MaxPool2d(2), after

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self, self.conv(x))


def seen_before(net: Net, x: Tensor) -> Tensor:
    y = net.relu(x)
    return net.pool(y) + x[:, :, ::2, ::2]


def seen_between(net: Net, x: Tensor) -> Tensor:
    y = net.relu(x)
    return net.pool(y) + y[:, :, ::2, ::2]


def indexed(net: Net, x: Tensor) -> Tensor:
    return F.max_pool2d(net.relu(x), 2, return_indices=True)[1]


SWAPPED = {
    "modules": lambda net, x: net.pool(net.relu(x)),
    "functions": lambda net, x: F.max_pool2d(F.relu(x), 2),
    "torch.relu": lambda net, x: net.pool(torch.relu(x)),
    "method": lambda net, x: net.pool(x.relu()),
    "twice": lambda net, x: net.pool(net.relu(net.pool(net.relu(x - 0.1)) - 0.1)),
}
KEPT = {
    "before": seen_before,
    "between": seen_between,
    "indices": indexed,
    "mean": lambda net, x: F.avg_pool2d(net.relu(x), 2),
}


def swapped(net: Net) -> tuple[fx.GraphModule, bool]:
    graph = fx.Tracer().trace(net)
    names = [node.name for node in graph.nodes]
    pool_before_relu(graph, dict(net.named_modules()))
    graph.lint()
    return fx.GraphModule(net, graph), names != [node.name for node in graph.nodes]


def results(run: nn.Module, net: Net) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    out = run(torch.randn(4, 1, 12, 12, generator=generator))
    if not out.is_floating_point():
        return [out]
    slope = torch.randn(out.shape, generator=generator)
    return [out, *torch.autograd.grad((out * slope).sum(), list(net.parameters()))]


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("name", [*SWAPPED, *KEPT])
def test_the_same_bits(name: str, inplace: bool):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = Net({**SWAPPED, **KEPT}[name], inplace)
    expected = results(net, net)
    module, changed = swapped(net)
    assert changed is (name in SWAPPED)
    for found, right in zip(results(module, net), expected, strict=True):
        assert torch.equal(found, right)
