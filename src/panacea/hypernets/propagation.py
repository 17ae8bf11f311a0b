"""How embeddings travel along the relation graph: whole, as a dense or sparse product, or only around some clients.

A `Block` carries one layer's messages from ``n_in`` rows to ``n_out`` rows, and usually its first ``n_out`` inputs are
the outputs' own rows. For a small graph one block over all clients serves every layer. Around a few clients of a large
graph, the blocks of L layers shrink towards them (their L-hop neighbourhood), with coefficients from the degrees of the
whole graph: the result for those clients is the same, the cost is that of the neighbourhood.

Neighbourhoods grow with the degree to the power L, so that of a graph that is not very sparse they are all of it. A
`Draw` lets every node hear a few neighbours only, as GraphSAGE does in training (Hamilton et al. 2017): k of the d_i
neighbours of i, drawn without replacement, speak for all of them,

    c_ij <- c_ij * (sum of c_ij over all j != i) / (sum of c_ij over the j drawn)

so that a mean stays a mean and a sum is kept. Who is drawn depends on the round, i and j only (`thinned`).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from panacea.core.random import mix
from panacea.core.transfer import on_device
from panacea.graphs import ClientGraph

__all__ = ["Block", "Draw", "Mixing", "Propagation", "thinned"]

Mixing: TypeAlias = Literal["mean", "symmetric", "neighbours", "sum", "loops"]
"""Coefficients of the arc j -> i (w its weight, d_i the sum of weights into i):

mean:        w / (1 + d_i), and 1 / (1 + d_i) for i itself: the mean over neighbours and self
symmetric:   w / sqrt((1 + d_i)(1 + d_j)), self included: GCN
neighbours:  w / d_i, without self: GraphSAGE, and the embedding a newcomer is given
sum:         w, without self: gated message passing
loops:       w, and 1 for i itself: the arcs attention chooses among
"""

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
_DENSE_ENTRIES = 1 << 20  # a matrix of at most this many entries is multiplied as it is
_SENT = 1 << 16  # and of at most this many sent to a GPU as it is


class _SparseProduct(torch.autograd.Function):
    """``M @ h`` for a constant CSR matrix; the transpose is at hand, so the backward pass is a product as well."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, transposed: Tensor, h: Tensor) -> Tensor:
        ctx.transposed = transposed
        return matrix @ h

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return None, None, ctx.transposed @ gradients[0]


@dataclass(frozen=True)
class Draw:
    """Which neighbours are heard in a round.

    Attributes:
        fanout: how many by the clients the round is about; half as many one arc further away, and so on, at least two.
        key: of the round's own random stream.
    """

    fanout: int
    key: int

    def heard(self, distance: int) -> int:
        """Neighbours that a node so many arcs from the clients hears.

        >>> [Draw(8, 0).heard(distance) for distance in range(4)]
        [8, 4, 2, 2]
        """
        return max(-(-self.fanout // (1 << distance)), min(self.fanout, 2))


def thinned(targets: Ids, speakers: Ids, nodes: Ids, coefficients: Floats, most: Ids, key: int) -> tuple[Ids, Floats]:
    """The arcs that are heard where everybody hears some neighbours only, which speak for all, and always itself.

    With the same key, those that are heard by few are among those that are heard by more.

    Args:
        targets: ``[arcs]`` who listens, as a place in `nodes`.
        speakers: ``[arcs]`` who speaks.
        nodes: ``[k]`` those that listen.
        coefficients: ``[arcs]``.
        most: ``[k]`` neighbours that each may hear.
        key: of the order in which neighbours are taken.

    Returns:
        Places of the arcs that are heard, in their order, and their coefficients.
    """
    own = speakers == nodes[targets]
    with np.errstate(over="ignore"):
        ends = mix(speakers.astype(np.uint64) ^ np.uint64(key))
        turn = mix(ends + nodes[targets].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    order = np.lexsort((np.where(own, np.uint64(0), turn | np.uint64(1)), targets))  # itself, always
    ends = np.cumsum(np.bincount(targets, minlength=len(nodes)))
    place = np.arange(len(order)) - np.concatenate([[0], ends[:-1]])[targets[order]]  # among those it could hear
    allowed = most + np.bincount(targets, own, minlength=len(nodes)).astype(np.int64)
    kept = np.sort(order[place < allowed[targets[order]]])
    others = np.where(own, 0.0, coefficients)
    whole, part = (np.bincount(targets[some], others[some], minlength=len(nodes)) for some in (slice(None), kept))
    scale = np.where(own, 1.0, (whole / np.where(part > 0, part, 1.0))[targets])
    return kept, (coefficients * scale)[kept]


@dataclass(frozen=True)
class Block:
    """Messages of one layer.

    Attributes:
        n_in: rows that speak.
        n_out: rows that listen.
        sources: ``[arcs]`` who speaks; arcs are the host's, for plans are made there.
        targets: ``[arcs]`` who listens.
        coefficients: ``[arcs]``.
        matrix: ``[n_out, n_in]`` dense or CSR.
        transposed: its transpose where it is CSR, else None.
        own: ``[n_out]`` places of those that listen among those that speak, None where they are the first n_out.
    """

    n_in: int
    n_out: int
    sources: Ids
    targets: Ids
    coefficients: Floats
    matrix: Tensor
    transposed: Tensor | None
    own: Tensor | None = None

    @classmethod
    def of(
        cls,
        shape: tuple[int, int],
        arcs: tuple[Ids, Ids],
        coefficients: npt.NDArray[np.float64],
        like: Tensor,
        dense: bool | None = None,
        own: Ids | None = None,
    ) -> Block:
        """The block of some arcs.

        Args:
            shape: (n_out, n_in).
            arcs: who listens, and who speaks.
            coefficients: of the arcs.
            like: gives dtype and device.
            dense: whether the matrix is dense; by default where it is small.
            own: see the class.
        """
        (targets, sources), (n_out, n_in) = arcs, shape
        place = None if own is None else on_device(own, like.device)
        if dense if dense is not None else n_in * n_out <= _DENSE_ENTRIES:
            matrix = _dense(shape, targets, sources, coefficients, like)
            return cls(n_in, n_out, sources, targets, coefficients, matrix, None, place)
        matrix = _csr(shape, targets, sources, coefficients, like)
        transposed = _csr((n_in, n_out), sources, targets, coefficients, like)
        return cls(n_in, n_out, sources, targets, coefficients, matrix, transposed, place)

    @cached_property
    def arcs(self) -> tuple[Tensor, Tensor]:
        """Who speaks and who listens, beside the matrix."""
        device = self.matrix.device
        return on_device(self.sources, device), on_device(self.targets, device)

    def listeners(self, h: Tensor) -> Tensor:
        """The rows of ``h [n_in, d]`` that belong to those that listen, ``[n_out, d]``."""
        if self.own is not None:
            return h.index_select(0, self.own)
        return h if self.n_out == self.n_in else h[: self.n_out]

    def mix(self, h: Tensor) -> Tensor:
        """``M h``: ``[n_in, d] -> [n_out, d]``."""
        if self.transposed is None:
            return self.matrix @ h
        mixed: Tensor = _SparseProduct.apply(self.matrix, self.transposed, h)  # type: ignore[no-untyped-call]
        return mixed


class Propagation:
    """The arcs of a graph with the coefficients of one kind of layer."""

    def __init__(self, graph: ClientGraph, mixing: Mixing, like: Tensor, dense: bool | None = None) -> None:
        """Prepare the arcs.

        Args:
            graph: over the nodes 0 .. n-1.
            mixing: which coefficients.
            like: gives dtype and device.
            dense: whether matrices are dense; by default where they are small.
        """
        self.n, self.mixing, self.like, self.dense = graph.n, mixing, like, dense
        sources, targets, weights = graph.arcs()
        strength = np.bincount(targets, weights, minlength=graph.n).astype(np.float64)
        nodes = np.arange(graph.n)
        if mixing in ("mean", "symmetric", "loops"):
            sources, targets = np.concatenate([sources, nodes]), np.concatenate([targets, nodes])
            weights = np.concatenate([weights.astype(np.float64), np.ones(graph.n)])
            order = np.lexsort((sources, targets))
            sources, targets, weights = sources[order], targets[order], weights[order]
        self.sources, self.targets = sources, targets
        self.coefficients = _coefficients(mixing, sources, targets, weights, strength)
        self.starts = np.searchsorted(targets, np.arange(graph.n + 1))
        self._place = np.full(graph.n, -1, np.int64)
        self._whole: Block | None = None

    def whole(self) -> Block:
        """All nodes to all nodes; made once."""
        if self._whole is None:
            self._whole = self._block(self.n, self.n, self.sources, self.targets, self.coefficients)
        return self._whole

    def into(self, nodes: Ids, draw: Draw | None = None, distance: int = 0) -> tuple[Ids, Ids, Floats]:
        """The arcs these nodes hear: who listens (by place among them), who speaks, and the coefficients.

        Args:
            nodes: who listens.
            draw: which of their neighbours are heard; None for all.
            distance: arcs from the clients that a draw is about.
        """
        counts = self.starts[nodes + 1] - self.starts[nodes]
        ends = np.cumsum(counts)
        arcs = np.arange(ends[-1] if len(ends) else 0) + np.repeat(self.starts[nodes] - (ends - counts), counts)
        targets, speakers = np.repeat(np.arange(len(nodes)), counts), self.sources[arcs]
        coefficients = self.coefficients[arcs]
        if draw is None or not len(counts) or counts.max() <= draw.heard(distance):
            return targets, speakers, coefficients
        most = np.full(len(nodes), draw.heard(distance))
        kept, coefficients = thinned(targets, speakers, nodes, coefficients, most, draw.key)
        return targets[kept], speakers[kept], coefficients

    def around(self, nodes: Ids, layers: int, draw: Draw | None = None) -> tuple[Ids, list[Block]]:
        """The blocks that carry everything these (distinct) nodes hear within some layers.

        Args:
            nodes: the clients it is about.
            layers: how many.
            draw: which neighbours are heard; None for all.

        Returns:
            The nodes whose inputs are needed, `nodes` first, and one block per layer, in the order they are applied.
        """
        reached, blocks = np.asarray(nodes, np.int64), []
        place = self._place
        for distance in range(layers):
            place[reached] = np.arange(len(reached))
            targets, speakers, coefficients = self.into(reached, draw, distance)
            fresh = np.unique(speakers[place[speakers] < 0])
            place[fresh] = len(reached) + np.arange(len(fresh))
            inputs = np.concatenate([reached, fresh])
            blocks.append(self._block(len(inputs), len(reached), place[speakers], targets, coefficients))
            place[inputs] = -1
            reached = inputs
        return reached, blocks[::-1]

    def _block(self, n_in: int, n_out: int, sources: Ids, targets: Ids, coefficients: Any) -> Block:
        return Block.of((n_out, n_in), (targets, sources), coefficients, self.like, self.dense)


def _dense(shape: tuple[int, int], targets: Ids, sources: Ids, coefficients: Floats, like: Tensor) -> Tensor:
    """The matrix of some arcs: a small one is made on the host, and of a large one only the arcs travel."""
    if like.is_cuda and shape[0] * shape[1] > _SENT:
        matrix = torch.zeros(shape, dtype=like.dtype, device=like.device)
        index = on_device(targets, like.device), on_device(sources, like.device)
        return matrix.index_put_(index, on_device(coefficients, like.device, like.dtype))
    made = np.zeros(shape)
    made[targets, sources] = coefficients
    return on_device(made, like.device, like.dtype)


def _csr(shape: tuple[int, int], targets: Ids, sources: Ids, coefficients: Floats, like: Tensor) -> Tensor:
    """The same as a sparse matrix; sorted on the host, as a GPU would have to be asked how many arcs it found."""
    order = np.lexsort((sources, targets))
    ends = np.concatenate([[0], np.cumsum(np.bincount(targets, minlength=shape[0]))])
    rows, columns = (on_device(values, like.device) for values in (ends, sources[order]))
    values = on_device(coefficients[order], like.device, like.dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # CSR support is "in beta state"; ours is tested against dense
        return torch.sparse_csr_tensor(rows, columns, values, shape)


def _coefficients(
    mixing: Mixing, sources: Ids, targets: Ids, weights: npt.NDArray[Any], strength: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    if mixing == "mean":
        return np.asarray(weights / (1 + strength[targets]))
    if mixing == "symmetric":
        return np.asarray(weights / np.sqrt((1 + strength[targets]) * (1 + strength[sources])))
    if mixing == "neighbours":
        return np.asarray(weights / strength[targets])
    return np.asarray(weights, np.float64)
