r"""The graph generator: link probabilities from embeddings, and the loss L_d that trains them.

    zhat = Linear(relu(Linear(z)))              a transform of its own, trained by L_d only, not used to make models
    p_uv = sigma(zhat_u . zhat_v / sqrt(d))     scaled, or inner products of 100 numbers saturate the sigmoid
    L_d  = (mean over linked pairs of -log p + mean over the other pairs of -log(1 - p)) / 2       balanced (default)
    L_d  = mean over all pairs of the cross entropy                                                literal

over pairs u != v: a pair with itself is always "unlinked" with p >= 1/2 and could only shrink embeddings. A class that
is absent among the pairs (no link, or nothing but links) is left out. Real graphs are sparse (4 to 9 % of pairs), so
the literal mean would hear almost nothing but non-links; GRDA averages the two classes apart as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from panacea.hypernets.encoders import linear_init

__all__ = [
    "link_auc",
    "link_init",
    "link_logits",
    "link_loss",
    "link_rows",
    "link_slope",
    "linked_pairs",
    "pair_weights",
]


def link_init(width: int, hidden: int, generator: torch.Generator) -> dict[str, Tensor]:
    """Fresh weights of the transform by name."""
    first, second = linear_init(hidden, width, generator), linear_init(hidden, hidden, generator)
    return {
        "links.0.weight": first[:, :-1], "links.0.bias": first[:, -1],
        "links.1.weight": second[:, :-1], "links.1.bias": second[:, -1],
    }  # fmt: skip


def link_rows(parts: Mapping[str, Tensor], z: Tensor) -> Tensor:
    """``[k, d] -> [k, d']`` zhat; without a transform among the parts, z itself."""
    if "links.0.weight" not in parts:
        return z
    hidden = torch.relu(functional.linear(z, parts["links.0.weight"], parts["links.0.bias"]))
    return functional.linear(hidden, parts["links.1.weight"], parts["links.1.bias"])


def link_logits(parts: Mapping[str, Tensor], z: Tensor) -> Tensor:
    """``[k, d] -> [k, k]`` logits of every pair."""
    z = link_rows(parts, z)
    return (z @ z.T) * (1 / math.sqrt(z.shape[-1]))


def linked_pairs(
    sources: npt.NDArray[np.int64], targets: npt.NDArray[np.int64], nodes: npt.NDArray[np.int64], n: int
) -> npt.NDArray[np.bool_]:
    """``[k, k]`` symmetric: whether the nodes u and v are linked, in either direction."""
    place = np.full(n, -1, np.int64)
    place[nodes] = np.arange(len(nodes))
    a, b = place[sources], place[targets]
    here = (a >= 0) & (b >= 0)
    linked = np.zeros((len(nodes), len(nodes)), np.bool_)
    linked[a[here], b[here]] = linked[b[here], a[here]] = True
    return linked


def pair_weights(linked: Tensor, balanced: bool) -> tuple[Tensor, Tensor]:
    """``[k, k]`` weights of every pair, and of the linked ones alone, with which `link_loss` is L_d."""
    own = torch.eye(len(linked), dtype=torch.bool, device=linked.device)
    yes, no = (linked & ~own).double(), (~linked & ~own).double()
    if not balanced:
        pairs = max(len(linked) * (len(linked) - 1), 1)
        return (yes + no) / pairs, yes / pairs
    present = int(yes.any()) + int(no.any())
    scale = 1 / max(present, 1)
    yes, no = yes * (scale / yes.sum().clamp_min(1)), no * (scale / no.sum().clamp_min(1))
    return yes + no, yes


def link_loss(logits: Tensor, every: Tensor, yes: Tensor) -> Tensor:
    """L_d of a square of pairs, weighted: -log p = softplus(x) - x and -log(1 - p) = softplus(x)."""
    return (functional.softplus(logits) * every - logits * yes).sum()


def link_slope(logits: Tensor, every: Tensor, yes: Tensor) -> Tensor:
    """The gradient of `link_loss` in the logits: p - 1 for linked pairs and p for others, weighted."""
    return torch.sigmoid(logits) * every - yes


def link_auc(logits: Tensor, linked: Tensor) -> float:
    """Probability that a linked pair scores above an unlinked one (ties count half); NaN without both classes."""
    upper = torch.triu(torch.ones_like(linked), 1)
    scores, labels = logits[upper].double(), linked[upper]
    yes, no = int(labels.sum()), int((~labels).sum())
    if not yes or not no:
        return float("nan")
    values, inverse, counts = scores.unique(return_inverse=True, return_counts=True)
    del values
    ends = counts.cumsum(0).double()
    ranks = (ends - (counts.double() - 1) / 2)[inverse]
    return float((ranks[labels].sum() - yes * (yes + 1) / 2) / (yes * no))
