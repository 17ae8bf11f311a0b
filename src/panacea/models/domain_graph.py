"""The graph over FedCG's domains: adjacency matrices ``A [D, D]`` whose rows sum to one."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

__all__ = ["AdjacencyInit", "AdjacencyKind", "first_adjacency", "normalised", "similarity"]

AdjacencyKind = Literal["similarity", "uniform", "hamming"]
AdjacencyInit = Literal["eye", "rand", "uniform"]


def normalised(likeness: Tensor, beta: float) -> Tensor:
    """A from ``h [D, D]``: beta on the diagonal, the rest of each row in proportion to h; D = 1 gives [[1]].

    >>> normalised(torch.tensor([[0.0, 1.0, 3.0], [1.0, 0.0, 1.0], [3.0, 1.0, 0.0]]), 0.6)[0].tolist()
    [0.6000000238418579, 0.10000000149011612, 0.30000001192092896]
    """
    own = torch.eye(len(likeness), dtype=likeness.dtype, device=likeness.device)
    if len(likeness) == 1:
        return own
    others = torch.where(own > 0, 0.0, likeness)
    return beta * own + (1 - beta) * others / others.sum(dim=-1, keepdim=True)


def similarity(nodes: Tensor, beta: float) -> Tensor:
    """A from domains' parameters ``[D, q]``: h is one over the distance (plus 1e-8: two domains may be the same)."""
    apart = torch.cdist(nodes, nodes, compute_mode="donot_use_mm_for_euclid_dist")  # exact for domains close together
    return normalised(1 / (apart + 1e-8), beta)


def first_adjacency(
    kind: AdjacencyKind, init: AdjacencyInit, shape: tuple[int, int], beta: float, generator: torch.Generator
) -> Tensor:
    """A before the first aggregation, ``[graphs, D, D]``; for every kind but `similarity` it stays.

    Args:
        kind: ``uniform``: all entries 1/D; ``hamming``: h is one over the number of bits in which two domains' numbers
            differ; ``similarity``: as `init` says.
        init: the identity, random rows, or all entries 1/D.
        shape: number of matrices and D.
        beta: see `normalised`.
        generator: for random rows.
    """
    graphs, d = shape
    if kind == "hamming":
        bits = torch.tensor([[float((i ^ j).bit_count()) for j in range(d)] for i in range(d)])
        return normalised(1 / bits, beta).repeat(graphs, 1, 1)
    if kind == "uniform" or init == "uniform":
        return torch.full((graphs, d, d), 1 / d)
    if init == "rand":
        drawn = torch.rand((graphs, d, d), generator=generator)
        return drawn / drawn.sum(dim=-1, keepdim=True)
    return torch.eye(d).repeat(graphs, 1, 1)
