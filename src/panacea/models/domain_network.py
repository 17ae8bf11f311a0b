"""FedCG's network: the user's own with branches per domain, and the classifiers that say which domain a sample is of.

The order of its parameters is what the method relies on: ``network.*`` (what the task's loss trains), ``student.*``
(what the teacher trains), ``seen.*`` (what a client measures), ``given.*`` (what the server decides: the teacher, A,
a client's known domain).
"""

from __future__ import annotations

import copy
import math
from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from panacea.models.cnn import DomainClassifier
from panacea.models.domains import DomainCopies, DomainPlan, Route, find_layers, hard, make_layer

__all__ = ["DomainNetwork", "Source", "Standardise", "averaged_means", "domain_classifier"]

Source = Literal["teacher", "oracle", "kmeans"]
Standardise = Literal["off", "batch", "federation"]


def domain_classifier(inputs: tuple[int, ...], domains: int) -> nn.Module:
    """Scores of the domains: the paper's CNN for images, an MLP of 64 hidden units for everything else.

    Shapes:
        ``[batch, *inputs]`` to ``[batch, domains]``.
    """
    if len(inputs) == 3:
        return DomainClassifier(inputs[0], domains)
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(inputs), 64), nn.ReLU(), nn.Linear(64, domains))


class _Given(nn.Module):
    """What the server decides and no client trains."""

    def __init__(self, teacher: nn.Module | None, domains: int, graphs: int) -> None:
        super().__init__()
        self.teacher = teacher
        if teacher is None:
            self.domain = nn.Parameter(torch.zeros(domains))
        if graphs:
            self.adjacency = nn.Parameter(torch.eye(domains).repeat(graphs, 1, 1))


class _Seen(nn.Module):
    """Mean scores over the federation, ``[2, D]`` of teacher and student; their "gradient" is the mean of a batch."""

    def __init__(self, domains: int) -> None:
        super().__init__()
        self.means = nn.Parameter(torch.zeros(2, domains))

    def forward(self, teacher: Tensor, student: Tensor) -> Tensor:
        """``[B]`` zeros, whose derivative with respect to the means is every sample's scores.

        So the client's mean scores come out of the one gradient it computes anyway, in every engine.
        """
        inner = (self.means * torch.stack([teacher, student], dim=1).detach()).sum(dim=(1, 2))
        return inner - inner.detach()


class DomainNetwork(nn.Module):
    """A network whose samples are routed through domains.

    In training a sample's domain is the teacher's favourite (or the client's known one), and the pass returns the
    outputs and, for every sample, the student's cross-entropy against that domain. In evaluation the student decides,
    softly or by its favourite, unless the client's domain is known.

    Args:
        network: the user's network; it is copied.
        inputs: shape of one sample.
        plan: the layers' domains; None for one whole network per domain.
        domains: D.
        layers: which layers, see `find_layers`.
        source: ``teacher``, or ``oracle`` or ``kmeans``: then the client's domain is received as ``given.domain``, a
            vector of weights ``[D]`` (zeros where it is not known: the student decides).
        per_layer: an adjacency matrix for each layer, instead of one.
        soft: whether evaluation mixes domains by the student's probabilities.
        standardise: what is done to the teacher's scores before the largest is taken: standardised over the ``batch``,
            or ``federation``: less their mean over all clients' samples as received in ``seen.means``.
    """

    def __init__(
        self,
        network: nn.Module,
        inputs: tuple[int, ...],
        *,
        plan: DomainPlan | None,
        domains: int,
        layers: str,
        source: Source = "teacher",
        per_layer: bool = False,
        soft: bool = True,
        standardise: Standardise = "off",
    ) -> None:
        super().__init__()
        self.route, self.soft, self.standardise = Route(), soft, standardise
        names: list[str] = []
        if plan is None:
            self.network: nn.Module = DomainCopies(network, domains, self.route)
        else:
            names = find_layers(network, layers)
            self.network = _with_domains(copy.deepcopy(network), names, plan, self.route)
        self.student = domain_classifier(inputs, domains)
        teacher = domain_classifier(inputs, domains) if source == "teacher" else None
        graphs = 0 if plan is None else len(names) if per_layer else 1
        if standardise == "federation":
            self.seen = _Seen(domains)
        self.given = _Given(teacher, domains, graphs)
        if standardise == "batch":
            self.scores = nn.BatchNorm1d(domains, affine=False)
        first = next(network.parameters(), None)
        self.to(torch.get_default_dtype() if first is None else first.dtype)

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Outputs; in training (outputs, the student's loss ``[B]``)."""
        scores = self.student(x)
        if self.training:
            weights, measured = self._taught(x, scores)
        else:
            weights, measured = self._found(scores), None
        self.route.weights = weights
        self.route.adjacency = self.given.adjacency.detach() if hasattr(self.given, "adjacency") else None
        outputs: Tensor = self.network(x)
        self.route.weights = self.route.adjacency = None  # nothing of this pass outlives it
        if not self.training:
            return outputs
        penalty = -(weights * F.log_softmax(scores, dim=-1)).sum(dim=-1)
        return outputs, penalty if measured is None else penalty + measured

    def observations(self, x: Tensor) -> dict[str, float]:
        """Entropy (1 for equal shares) of the student's and the teacher's favourite domains; how often they agree."""
        teacher, student = self.given.teacher, hard(self.student(x))
        found = {"domain_entropy": _entropy(student)}
        if teacher is not None:
            taught = hard(self._standardised(teacher(x)))
            agreement = (student * taught).sum(dim=1).mean()
            found |= {"teacher_entropy": _entropy(taught), "student_agreement": float(agreement)}
        return found

    def _taught(self, x: Tensor, scores: Tensor) -> tuple[Tensor, Tensor | None]:
        """Weights ``[B, D]`` of the domains in training; what `_Seen` measures on the way."""
        teacher = self.given.teacher
        if teacher is None:
            return self.given.domain.detach().expand(len(x), -1), None
        with torch.no_grad():
            taught = teacher(x)
            weights = hard(self._standardised(taught))
        return weights, self.seen(taught, scores) if self.standardise == "federation" else None

    def _standardised(self, scores: Tensor) -> Tensor:
        if self.standardise == "batch":
            over_batch: Tensor = self.scores(scores)
            return over_batch
        return scores - self.seen.means[0] if self.standardise == "federation" else scores

    def _found(self, scores: Tensor) -> Tensor:
        """Weights ``[B, D]`` of the domains in evaluation."""
        found = F.softmax(scores, dim=-1) if self.soft else hard(scores)
        if self.given.teacher is not None:
            return found
        known = self.given.domain
        return known + (1 - known.sum()) * found


def averaged_means(before: Tensor, now: Tensor, round: int, every: int) -> Tensor:
    """``seen.means`` ``[2 D]`` after a round whose cohort saw `now`, for a teacher replaced `every` so many rounds.

    The teacher stays the same between replacements, so its mean is averaged over these rounds' cohorts (the first
    value, the student's at its last replacement, counts as one); the student moves, so its newest mean is the best.
    """
    rounds = (round - 1) % every + 1 + (round > every)
    half = len(now) // 2
    return torch.cat([torch.lerp(before[:half], now[:half], 1 / rounds), now[half:]])


def _entropy(assigned: Tensor) -> float:
    """Of the mean of one-hot rows ``[samples, D]``, over log D."""
    share = assigned.mean(dim=0)
    return float(torch.special.entr(share).sum()) / math.log(max(len(share), 2))


def _with_domains(network: nn.Module, names: list[str], plan: DomainPlan, route: Route) -> nn.Module:
    """The network with domains in the layers named; a layer used in several places is replaced in all of them."""
    modules = dict(network.named_modules())
    made = {modules[name]: make_layer(modules[name], plan, route, i, name) for i, name in enumerate(names)}
    if network in made:
        return made[network]
    for module in list(modules.values()):
        for name, child in list(module._modules.items()):
            if child in made:
                module._modules[name] = made[child]
    return network
