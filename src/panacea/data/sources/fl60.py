r"""FL-60: sixty clients on a spiral, each with a two-class problem in the plane, linked where they are alike.

`fl60` is what the experiments of the Panacea papers really use, the set DG-60 of GRDA (Xu et al., ICLR 2023):

    angle_i  ~ U[0, 2 pi),   radius_i = 1 + 6 angle_i / (2 pi),   mu_i = radius_i (cos angle_i, sin angle_i)
    label 0:  50 points N(+mu_i, I) given ||x - mu_i|| <= 1
    label 1:  50 points N(-mu_i, I) given ||x + mu_i|| <= 1
    A_ij = A_ji:  c = cos(angle_i - angle_j);  0 if c < 0.2, else Bernoulli(c)

A line through the origin separates the classes of every client, but no line does so for all clients.

`fl60_text` is the recipe as printed:

    [a_i, b_i] a random unit vector,   omega_i = atan2(b_i, a_i) in (-pi, pi]
    label 0:  50 points N(+(omega_i / pi) [a_i, b_i], I),   label 1:  50 points N(-(omega_i / pi) [a_i, b_i], I)
    A_ij = A_ji ~ Bernoulli(0.5 + 0.5 cos(angle between the vectors))

Its classes overlap: the best possible accuracy of client i is Phi(|omega_i| / pi), at most 84 %, on average 68 %.

Differences from the paper:
    * The paper prints the second recipe and reports 100 %, which only the first one allows.
    * `fl60_text` uses atan2(b, a) where the paper prints arcsin(b / a), which is undefined for |b| > |a|.
    * GRDA draws 300 points, keeps those in the unit disc and chooses 50 of them. The same law is drawn here by
      inversion: ||x - mu||^2 is exponential, cut off at 1, and the direction is uniform. So there are always 50.
    * Above 5,000 clients the links (a third of all pairs) are thinned at random to the mean degree of 60 clients,
      because all of them would not fit in memory; a note says so.
    * A client's angle and points are the same for every number of clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from panacea.core.random import Streams
from panacea.data.federation import Federation
from panacea.data.registry import NaturalKeys, TrainingDefaults, dataset
from panacea.data.task import Task
from panacea.graphs import ClientGraph

__all__ = ["FL60_CLIENTS", "load_fl60", "load_fl60_text"]

FL60_CLIENTS = 60
POINTS = 50  # per class
MANY = 5_000  # clients above which links are thinned

_DEFAULTS = TrainingDefaults(lr=0.1, rounds=800, cohort=5, novel=0.2)
_BLOCK = 1 << 22  # pairs looked at together

Floats = npt.NDArray[np.float64]
Pairs = npt.NDArray[np.int64]


@dataset(
    "fl60",
    summary="60 clients on a spiral, two separable classes in the plane each, linked by angle",
    source="generated; DG-60 of GRDA (Xu et al., ICLR 2023), used by Panacea",
    keys=NaturalKeys,
    defaults=_DEFAULTS,
)
def load_fl60(keys: NaturalKeys) -> Federation:
    """Generate FL-60 as the experiments use it."""
    n = keys.clients or FL60_CLIENTS
    streams = Streams(keys.seed)
    angle = streams.numpy("fl60 angles").random(n) * 2 * np.pi
    direction = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    mu = (1 + 6 * angle / (2 * np.pi))[:, None] * direction
    drawn = streams.numpy("fl60 points").random((n, 2 * POINTS, 2))
    radius = np.sqrt(-2 * np.log1p(-drawn[..., 0] * -np.expm1(-0.5)))  # P(r <= s) = (1 - e^(-s^2/2)) / (1 - e^(-1/2))
    turn = 2 * np.pi * drawn[..., 1]
    noise = radius[..., None] * np.stack([np.cos(turn), np.sin(turn)], axis=-1)

    def probability(cosine: Floats) -> Floats:
        return np.where(cosine < 0.2, 0.0, cosine)

    density = float(np.sin(np.arccos(0.2)) / np.pi)
    return _federation("fl60", keys, mu, noise, _links(angle, probability, density, streams))


@dataset(
    "fl60_text",
    summary="FL-60 by the printed formula: overlapping classes, at most 84 % accuracy",
    source="generated; formula printed in the Panacea papers",
    keys=NaturalKeys,
    defaults=_DEFAULTS,
)
def load_fl60_text(keys: NaturalKeys) -> Federation:
    """Generate FL-60 by the printed formula."""
    n = keys.clients or FL60_CLIENTS
    streams = Streams(keys.seed)
    vector = streams.numpy("fl60_text vectors").standard_normal((n, 2))
    vector /= np.linalg.norm(vector, axis=1, keepdims=True)
    omega = np.arctan2(vector[:, 1], vector[:, 0])
    noise = streams.numpy("fl60_text points").standard_normal((n, 2 * POINTS, 2))
    links = _links(omega, lambda cosine: 0.5 + 0.5 * cosine, 0.5, streams)
    return _federation("fl60_text", keys, (omega / np.pi)[:, None] * vector, noise, links, features=vector)


def _federation(
    name: str,
    keys: NaturalKeys,
    mean: Floats,
    noise: Floats,
    links: tuple[ClientGraph, tuple[str, ...]],
    features: Floats | None = None,
) -> Federation:
    """Points around +mean (label 0, first half) and -mean (label 1), split 80/20."""
    label = np.repeat(np.arange(2), POINTS)
    x = (np.where(label[:, None] == 0, 1, -1) * mean[:, None, :] + noise).astype(np.float32)
    return Federation.from_clients(
        [(points, label) for points in x],
        task=Task("classification", inputs=(2,), classes=2),
        seed=keys.seed,
        val=keys.val,
        test=0.2,
        name=name,
        graph=links[0],
        features=(mean if features is None else features).astype(np.float32),
        notes=links[1],
    )


def _links(
    angle: Floats, probability: Callable[[Floats], Floats], density: float, streams: Streams
) -> tuple[ClientGraph, tuple[str, ...]]:
    """Links drawn independently with a probability that depends on the angle between two clients.

    Args:
        angle: ``[clients]``.
        probability: of a link, from the cosine of the difference of angles.
        density: its mean over all pairs.
        streams: source of randomness.
    """
    n = len(angle)
    degree = density * (FL60_CLIENTS - 1)
    keep = 1.0 if n <= MANY else degree / (density * (n - 1))
    choose, accept = streams.numpy("fl60 pairs"), streams.numpy("fl60 links")
    found = [np.zeros((0, 2), np.int64)]
    for pairs in _pairs(n, keep, choose):
        likely = probability(np.cos(angle[pairs[:, 0]] - angle[pairs[:, 1]]))
        found.append(pairs[accept.random(len(pairs)) < likely])
    edges = np.concatenate(found)
    edges = edges[np.argsort(edges[:, 0] * n + edges[:, 1])]
    note = f"links thinned to {degree:.1f} per client on average, the mean degree of {FL60_CLIENTS} clients"
    return ClientGraph(n, edges, np.ones(len(edges), np.float32)), (note,) if keep < 1 else ()


def _pairs(n: int, keep: float, stream: np.random.Generator) -> Iterator[Pairs]:
    """Pairs i < j in blocks, each pair with probability `keep`, independently.

    Pairs are numbered k = j (j - 1) / 2 + i, so those among the first clients come first whatever n is. The gaps
    between chosen numbers are geometric, so pairs that are not chosen cost nothing.
    """
    total, last = n * (n - 1) // 2, -1
    while last < total - 1:
        if keep < 1:
            number = last + np.cumsum(stream.geometric(keep, size=min(_BLOCK, int(total * keep) + 100)))
        else:
            number = np.arange(last + 1, min(last + 1 + _BLOCK, total), dtype=np.int64)
        last = int(number[-1])
        yield _pair_of(number[number < total])


def _pair_of(number: npt.NDArray[np.int64]) -> Pairs:
    """The pair (i, j) with number j (j - 1) / 2 + i; exact while 8 numbers fit in 53 bits (40 million clients)."""
    j = ((1 + np.sqrt(1 + 8 * number.astype(np.float64))) / 2).astype(np.int64)
    return np.stack([number - j * (j - 1) // 2, j], axis=1)
