"""Layers with a branch per domain: the parts of FedCG's network (Caldarola et al., CVPR workshops 2021).

A chosen layer f of a network becomes ``f(z; theta_a) + lambda * sum_d w_d f(z; Vhat_d)``: the parameters ``Vhat_d`` of
domain d come out of a small graph convolution over the domains, ``Vhat = relu(A V W)``, and the weights ``w`` of a
sample's domains and the matrix A are found in the `Route` that the enclosing network fills in before every pass.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from panacea.errors import RequestError

__all__ = ["DomainCopies", "DomainLayer", "DomainPlan", "Route", "WMode", "find_layers", "hard", "make_layer"]

WMode = Literal["full", "bottleneck", "per_filter", "identity"]

_MOST_WEIGHTS = 500_000_000  # of one projection; the paper's FEMNIST bottleneck has 327.7 million
_Norm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d
_Conv = nn.Conv1d | nn.Conv2d | nn.Conv3d
_CONVOLUTIONS: dict[int, Callable[..., Tensor]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


@dataclass(frozen=True)
class DomainPlan:
    """How a layer's domain parameters are made.

    Attributes:
        domains: D.
        w_mode: ``full``: all q parameters of the layer are one node's features, W is q x q; ``bottleneck``: W goes
            through q / `bottleneck`; ``per_filter``: W is shared by the layer's filters, q is the size of one filter
            with its bias; ``identity``: no W.
        bottleneck: factor of the bottleneck.
        depth: graph convolutions one after the other.
        out_relu: whether the last one ends in ReLU (those before it always do).
        residual: whether the layer's own parameters are there beside the domains' ones.
        balance: lambda at the start.
        learn_balance: whether lambda is trained; otherwise it is a constant.
    """

    domains: int
    w_mode: WMode = "per_filter"
    bottleneck: int = 16
    depth: int = 1
    out_relu: bool = True
    residual: bool = True
    balance: float = 1.0
    learn_balance: bool = True


class Route:
    """What the layers of one pass share: weights ``w [B, D]`` of the samples' domains, and A ``[graphs, D, D]``."""

    def __init__(self) -> None:
        self.weights: Tensor | None = None
        self.adjacency: Tensor | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Route:
        return Route()  # a copy of a network has a route of its own, and nothing of an old pass in it


def hard(scores: Tensor) -> Tensor:
    """One-hot rows of the largest score: ``[..., D] -> [..., D]``."""
    places = torch.arange(scores.shape[-1], device=scores.device)
    return (scores.argmax(dim=-1, keepdim=True) == places).to(scores.dtype)


def _mixed(parts: Tensor, weights: Tensor, at: int) -> Tensor:
    """``sum_d w_d part_d`` over axis `at` of ``parts [B, ...]``, with the weights ``[B, D]`` of every sample."""
    shape = [1] * parts.dim()
    shape[0], shape[at] = weights.shape
    return (parts * weights.reshape(shape)).sum(dim=at)


class DomainLayer(nn.Module):
    """``f(z; theta_a) + lambda * sum_d w_d f(z; Vhat_d)``, or the sum alone; f is one of `Linear`, `Conv`, `BatchNorm`.

    Each domain's branch starts as a fresh layer of the same kind; W as the identity plus N(0, 1e-3), and where it is
    not square as N(0, 1 / inputs).

    Attributes:
        nodes: V ``[D, filters, q]``; one filter of all parameters for the modes ``full`` and ``bottleneck``.
        projections: the W of every graph convolution.
        balance: lambda ``[1]``, with the plan's `residual` only.
    """

    def __init__(self, layer: nn.Module, plan: DomainPlan, route: Route, graph: int, name: str) -> None:
        super().__init__()
        self.plan, self.route, self.graph = plan, route, graph
        fresh = [_flat(_fresh(layer)) for _ in range(plan.domains)]
        self.filters, self.size = fresh[0].shape
        whole = plan.w_mode in ("full", "bottleneck")
        self.nodes = nn.Parameter(torch.stack([f.reshape(1, -1) if whole else f for f in fresh]))
        self.projections = nn.ParameterList(_projections(self.nodes.shape[-1], plan, name))
        if plan.residual:
            self.balance = nn.Parameter(torch.full((1,), float(plan.balance)), requires_grad=plan.learn_balance)

    def generated(self) -> Tensor:
        """Vhat ``[D, filters, q]``."""
        route, plan = self.route, self.plan
        assert route.adjacency is not None
        adjacency = route.adjacency[min(self.graph, len(route.adjacency) - 1)]
        v: Tensor = self.nodes
        for depth in range(plan.depth):
            v = torch.tensordot(adjacency, v, dims=1)
            for w in self._projections_of(depth):
                v = v @ w
            if depth < plan.depth - 1 or plan.out_relu:
                v = F.relu(v)
        return v.reshape(plan.domains, self.filters, self.size)

    def _projections_of(self, depth: int) -> Sequence[Tensor]:
        if self.plan.w_mode == "identity":
            return []
        own = list(self.projections)
        return own if self.plan.depth == 1 else own[depth : depth + 1]  # one layer's bottleneck is a product of two

    def joined(self, agnostic: Tensor | None, specific: Tensor) -> Tensor:
        """The two branches together."""
        return specific if agnostic is None else agnostic + self.balance * specific

    def weights(self) -> Tensor:
        """The samples' weights ``[B, D]`` in this pass."""
        assert self.route.weights is not None
        return self.route.weights


class DomainLinear(DomainLayer):
    """`nn.Linear` with domains: ``[B, ..., I] -> [B, ..., O]``."""

    def __init__(self, layer: nn.Linear, plan: DomainPlan, route: Route, graph: int, name: str) -> None:
        super().__init__(layer, plan, route, graph, name)
        self.inputs, self.has_bias = layer.in_features, layer.bias is not None
        self.agnostic = layer if plan.residual else None

    def forward(self, z: Tensor) -> Tensor:
        """See the class."""
        v = self.generated()
        bias = v[..., self.inputs].flatten() if self.has_bias else None
        every = F.linear(z, v[..., : self.inputs].flatten(0, 1), bias).unflatten(-1, (self.plan.domains, -1))
        own = None if self.agnostic is None else self.agnostic(z)
        return self.joined(own, _mixed(every, self.weights(), z.dim() - 1))


class DomainConv(DomainLayer):
    """`nn.Conv1d/2d/3d` with domains: ``[B, C, ...] -> [B, O, ...]``."""

    def __init__(self, layer: _Conv, plan: DomainPlan, route: Route, graph: int, name: str) -> None:
        super().__init__(layer, plan, route, graph, name)
        self.groups, self.has_bias, self.shape = layer.groups, layer.bias is not None, tuple(layer.weight.shape[1:])
        self.stride, self.dilation, self.padding = layer.stride, layer.dilation, layer.padding
        self.padding_mode, self.around = layer.padding_mode, layer._reversed_padding_repeated_twice
        self.agnostic = layer if plan.residual else None

    def forward(self, z: Tensor) -> Tensor:
        """See the class; all domains' kernels are channels of one convolution."""
        domains, groups, size = self.plan.domains, self.groups, math.prod(self.shape)
        v = self.generated().unflatten(1, (groups, -1)).transpose(0, 1)  # [groups, D, O / groups, q]
        bias = v[..., size].flatten() if self.has_bias else None
        weight = v[..., :size].flatten(0, 2).unflatten(1, self.shape)
        padding: Any = self.padding
        x = z
        if self.padding_mode != "zeros":
            x, padding = F.pad(z, self.around, mode=self.padding_mode), 0
        convolve = _CONVOLUTIONS[len(self.shape) - 1]
        every = convolve(x, weight, bias, self.stride, padding, self.dilation, groups)
        every = every.unflatten(1, (groups, domains, -1))
        own = None if self.agnostic is None else self.agnostic(z)
        return self.joined(own, _mixed(every, self.weights(), 2).flatten(1, 2))


class DomainNorm(DomainLayer):
    """`nn.BatchNorm1d/2d/3d` with domains: scale and shift are the domains' own, running statistics are shared."""

    def __init__(self, layer: _Norm, plan: DomainPlan, route: Route, graph: int, name: str) -> None:
        super().__init__(layer, plan, route, graph, name)
        self.norm = copy.deepcopy(layer)
        self.norm.affine = False
        self.norm.register_parameter("weight", None)
        self.norm.register_parameter("bias", None)
        if plan.residual:
            self.weight, self.bias = layer.weight, layer.bias

    def forward(self, z: Tensor) -> Tensor:
        """See the class; mixing the outputs of several domains is mixing their scales and shifts."""
        z = self.norm(z)
        affine = torch.tensordot(self.weights(), self.generated(), dims=1)  # [B, C, 2]
        affine = affine.reshape((*affine.shape[:2], *(1,) * (z.dim() - 2), 2))
        channels = (-1, *(1,) * (z.dim() - 2))
        own = z * self.weight.reshape(channels) + self.bias.reshape(channels) if self.plan.residual else None
        return self.joined(own, z * affine[..., 0] + affine[..., 1])


class DomainCopies(nn.Module):
    """A whole network for every domain: ``sum_d w_d f_d(x)``; nothing is shared but BatchNorm's view of the batch."""

    def __init__(self, network: nn.Module, domains: int, route: Route) -> None:
        super().__init__()
        self.route = route
        self.copies = nn.ModuleList(copy.deepcopy(network) for _ in range(domains))

    def forward(self, x: Tensor) -> Tensor:
        """Outputs ``[B, ...]``."""
        assert self.route.weights is not None
        return _mixed(torch.stack([network(x) for network in self.copies], dim=1), self.route.weights, 1)


def find_layers(network: nn.Module, wanted: str) -> list[str]:
    """The names of the layers that get domains.

    Args:
        network: the user's network.
        wanted: ``last``: the last convolution; ``all``: every convolution and batch normalisation (as in the paper); in
            a network without convolutions the last linear layer, or every one; or names joined by ``+``.

    Raises:
        RequestError: there is no such layer.
    """
    able = {name: m for name, m in network.named_modules() if _kind(m) is not None}
    if not able:
        raise RequestError("method.layers: the network has no linear, convolution or batch normalisation layer")
    if wanted not in ("last", "all"):
        names = wanted.split("+")
        for name in names:
            if name not in able:
                known = ", ".join(able)
                raise RequestError(f"method.layers={wanted}: no layer '{name}'; use last, all or some of {known}")
        return [name for name in able if name in names]  # in the network's order, whatever the user's
    convolutions = [name for name, m in able.items() if isinstance(m, _Conv)]
    if wanted == "all":
        return [name for name, m in able.items() if not (convolutions and isinstance(m, nn.Linear))]
    linear = [name for name, m in able.items() if isinstance(m, nn.Linear)]
    return (convolutions or linear or list(able))[-1:]


def make_layer(layer: nn.Module, plan: DomainPlan, route: Route, graph: int, name: str) -> DomainLayer:
    """The domain form of a layer."""
    kind = _kind(layer)
    assert kind is not None
    return kind(layer, plan, route, graph, name)


def _kind(layer: nn.Module) -> Callable[..., DomainLayer] | None:
    if isinstance(layer, nn.Linear):
        return DomainLinear
    if isinstance(layer, _Conv):
        return DomainConv
    return DomainNorm if isinstance(layer, _Norm) and layer.affine else None


def _fresh(layer: nn.Module) -> nn.Module:
    """A layer of the same kind with new initial weights."""
    made = copy.deepcopy(layer)
    made.reset_parameters()  # type: ignore[operator]
    return made


def _flat(layer: nn.Module) -> Tensor:
    """A layer's parameters ``[filters, q]``: a filter's weights, then its bias."""
    own = [p.detach().flatten(1) if p.dim() > 1 else p.detach().unsqueeze(1) for p in layer.parameters(recurse=False)]
    return torch.cat(own, dim=1)


def _projections(size: int, plan: DomainPlan, name: str) -> list[nn.Parameter]:
    """The W of a layer's graph convolutions at their start."""
    if plan.w_mode == "identity":
        return []
    sizes = [size] * (plan.depth + 1)
    if plan.w_mode == "bottleneck":
        inner = max(1, size // plan.bottleneck)
        sizes = [size, *[inner] * max(plan.depth - 1, 1), size]
    pairs = list(itertools.pairwise(sizes))
    if max(a * b for a, b in pairs) > _MOST_WEIGHTS:
        raise RequestError(
            f"method.w_mode={plan.w_mode}: layer '{name}' has {size} parameters a domain, so W would have "
            f"{max(a * b for a, b in pairs):,} weights; use per_filter or a larger method.bottleneck"
        )
    return [
        nn.Parameter(torch.eye(a) + 1e-3 * torch.randn(a, a) if a == b else torch.randn(a, b) / math.sqrt(a))
        for a, b in pairs
    ]
