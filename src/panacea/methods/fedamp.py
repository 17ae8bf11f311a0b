"""FedAMP and HeurFedAMP: attentive message passing between clients with similar models."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field, PositiveFloat
from torch import Tensor

from panacea.core.method import Facts, MethodParameters
from panacea.core.parameters import squared_norm, unit
from panacea.methods.message_passing import MessagePassing, MessagePassingParameters
from panacea.methods.registry import method

__all__ = ["FedAmp", "HeurFedAmp"]

_KNEE = 2 / 4.7  # of scad with the usual a = 3.7, so that A tends to 1 as the others do
_PAIRED = 1000  # models whose distances make the median, at most


class FedAmpParameters(MessagePassingParameters):
    """Hyper-parameters of FedAMP."""

    attention: Literal["exp", "scad", "mcp", "sqrt"] = Field(
        "exp", description="attention-inducing function A (the paper uses exp; sqrt is convex, for the theory)"
    )
    sigma: Literal["median"] | PositiveFloat = Field(
        "median",
        description="scale of squared distances; median: of those between models heard, times sigma_factor (ours)",
    )
    sigma_factor: float = Field(0.3, gt=0, description="with sigma=median: its factor (our grid: 0.1, 0.3, 1)")
    alpha: Literal["auto"] | PositiveFloat = Field(
        "auto",
        description="alpha_k, the server's step; auto: coupling * sigma / (clients - 1), and then rho = lam (ours)",
    )
    coupling: float = Field(
        10.0, gt=0, description="with alpha=auto: off-diagonal weight of equal models, before the guard"
    )
    alpha_power: float = Field(0.0, ge=0, le=1, description="alpha_k = alpha / k^power: 0 constant, 0.5..1 decreasing")
    lam: float = Field(0.1, ge=0, description="lambda; the client's pull is rho = lambda / alpha_k")


@method("fedamp")
class FedAmp(MessagePassing):
    r"""Clients with similar models are drawn together: each receives a mixture that gives similar models more weight.

    Paper: Huang, Chu, Zhou, Wang, Liu, Pei, Zhang: Personalized cross-silo federated learning on non-IID data,
    AAAI 2021 (arXiv 2007.03797).

    Objective: ``sum_i F_i(w_i) + lambda sum_{i<j} A(||w_i - w_j||^2)`` with ``A(x) = 1 - exp(-x / sigma)``.
    Server: ``xi_ij = alpha_k A'(||w_i - w_j||^2)`` for j != i, ``xi_ii = 1 - sum_{j != i} xi_ij``,
        ``u_i = sum_j xi_ij w_j``.
    Client i: ``w_i <- argmin F_i(w) + lambda / (2 alpha_k) ||w - u_i||^2``, approximately, by K_c SGD steps from u_i.
    Evaluated: ``w_i``; ``u_i`` of a client never visited. A newcomer trains from the mean of all models, is compared
    with the others, and trains once more around its own mixture.

    Parameters:
        attention: A. With x in units of sigma, A' is exp(-x); 1 up to 0.43, falling to 0 at 1.57 (scad, a = 3.7);
            1 - x/2 up to 2 (mcp); 1 / sqrt(1 + x) (sqrt), each over sigma.
        sigma, sigma_factor: squared distances grow with the number of parameters, hence ``median`` by default (ours).
        alpha, coupling: the paper's alpha_k, whose settings are in an appendix we do not have; ``auto`` ties
            it to sigma, so that `coupling` is what equal models would weigh together before the guard (ours).
        alpha_power: the paper's theorems allow constant and decreasing alpha_k.
        lam: lambda; only rho = lambda / alpha_k matters to a client, and with alpha=auto `lam` is rho itself.
        start, prox: where local training begins, and how the pull is applied; the paper does not say.

    Reduces to: u_i = w_i as sigma goes to 0 (with start=own, prox as it is: Separate for lam = 0).

    Differences from the paper: the off-diagonal weights of a row are scaled down to sum to one where they would exceed
    it (the paper assumes alpha_k small enough); with sampling, the last model received of each client counts, and
    clients never heard do not; all start at the same model; Eq. (5)'s missing factor 2 is left in alpha_k.
    """

    facts: ClassVar[Facts] = Facts("Huang et al., AAAI", 2021, "all w_i", "w_i", "U", "U", "training on its samples")
    parameter_model: ClassVar[type[MethodParameters]] = FedAmpParameters
    pull_key = "rho (method.lam over method.alpha)"
    parameters: FedAmpParameters

    def weights(self, own: Tensor, others: Tensor, known: Tensor, same: Tensor, round: int) -> Tensor:
        """Weights ``xi`` by distances."""
        p = self.parameters
        sigma = self._sigma(others, known)
        slopes = torch.where(known & ~same, _slope(p.attention, _squared_distances(own, others) / sigma), 0.0)
        step = p.coupling / max(len(self.setting.train_ids) - 1, 1) if p.alpha == "auto" else p.alpha / sigma
        most = 1 / slopes.sum(dim=1, keepdim=True).clamp_min(1e-30)  # the guard: a mixture, never an extrapolation
        xi = slopes * most.clamp_max(step / round**p.alpha_power)
        return torch.where(same, (1 - xi.sum(dim=1, keepdim=True)).clamp_min(0.0), xi)

    def _sigma(self, others: Tensor, known: Tensor) -> Tensor:
        """As set, or by the distances between the models heard, whoever asks; of very many models by a part of them."""
        p = self.parameters
        if p.sigma != "median":
            return torch.full_like(others[0, 0], max(p.sigma, 1e-30))
        count, most = known.sum(), min(len(others), _PAIRED)  # the host does not know how many, and need not wait
        places = torch.arange(most, device=known.device) * (
            (count + most - 1) // most
        )  # every so-manieth of those heard
        order = known.to(torch.int8).argsort(descending=True, stable=True)
        some, heard = others[order[places.clamp_max(len(others) - 1)]], places < count
        counted = (heard & heard.unsqueeze(1)).fill_diagonal_(False)
        distances = torch.where(counted, _squared_distances(some, some), torch.nan)
        middle = distances.flatten().nanmedian().nan_to_num()  # 0 where nobody was heard
        return (p.sigma_factor * middle).clamp_min(1e-30)

    def pull(self, round: int) -> float:
        """``lambda / alpha_k``."""
        p = self.parameters
        return p.lam / (1.0 if p.alpha == "auto" else p.alpha) * float(round**p.alpha_power)


def _squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """``[rows of a, rows of b]``, by products, hence in double precision: close models are small differences."""
    middle = b.mean(dim=0)
    x, y = (a - middle).double(), (b - middle).double()
    return (squared_norm(x) + squared_norm(y).T - 2 * x @ y.T).clamp_min(0.0).to(a.dtype)


def _slope(attention: str, x: Tensor) -> Tensor:
    """``sigma A'(sigma x)``: 1 at x = 0, falling."""
    if attention == "exp":
        return (-x).exp()
    if attention == "scad":
        return ((3.7 * _KNEE - x) / (2.7 * _KNEE)).clamp(0.0, 1.0)
    if attention == "mcp":
        return (1 - x / 2).clamp_min(0.0)
    return (1 + x).rsqrt()


class HeurFedAmpParameters(MessagePassingParameters):
    """Hyper-parameters of HeurFedAMP."""

    self_weight: float = Field(
        0.1, ge=0, le=1, description="xi_ii, weight of the client's own model (our grid: 0.1..0.9)"
    )
    sigma: float = Field(25.0, ge=0, description="sharpness of the softmax of cosines (our grid: 1, 10, 25, 50, 100)")
    cos_on: Literal["params", "delta"] = Field(
        "params", description="cosine of models (paper), or of what they moved since the start (ours, tells more apart)"
    )
    rho: float = Field(0.1, ge=0, description="lambda / alpha_k, the client's pull towards u_i (our grid: 0.01..10)")


@method("heurfedamp")
class HeurFedAmp(MessagePassing):
    """FedAMP with a fixed weight on the own model and the rest shared out by a softmax of cosines.

    Paper: Huang et al., AAAI 2021 (arXiv 2007.03797), "HeurFedAMP", for networks whose distances say little.

    Server: ``xi_ii`` is given; for j != i ``xi_ij = (1 - xi_ii) softmax_j(sigma cos(w_i, w_j))``; u_i as FedAMP.
    Client, evaluation, newcomers: as FedAMP.

    Parameters:
        self_weight: xi_ii; the paper's value is in an appendix we do not have.
        sigma: networks from one start have cosines close to 1, so that it must be large to tell groups apart.
        cos_on: what the cosine is taken of.
        rho: lambda / alpha_k.
        start, prox: see FedAMP.

    Reduces to: Separate with self_weight = 1 and rho = 0.

    Differences from the paper: as FedAMP; `cos_on=delta` is ours.
    """

    facts: ClassVar[Facts] = Facts("Huang et al., AAAI", 2021, "all w_i", "w_i", "U", "U", "training on its samples")
    parameter_model: ClassVar[type[MethodParameters]] = HeurFedAmpParameters
    pull_key = "method.rho"
    parameters: HeurFedAmpParameters

    def weights(self, own: Tensor, others: Tensor, known: Tensor, same: Tensor, round: int) -> Tensor:
        """Weights ``xi`` by cosines."""
        p = self.parameters
        origin = self.setting.initial if p.cos_on == "delta" else torch.zeros_like(self.setting.initial)
        cosines = unit(own - origin) @ unit(others - origin).T
        usable = known & ~same
        scores = torch.where(usable, p.sigma * cosines, -torch.inf)
        alone = ~usable.any(dim=1, keepdim=True)
        xi = (1 - p.self_weight) * torch.where(alone, 0.0, scores.softmax(dim=1))
        return torch.where(same, (1 - xi.sum(dim=1, keepdim=True)).clamp_min(0.0), xi)

    def pull(self, round: int) -> float:
        """As set."""
        return self.parameters.rho
