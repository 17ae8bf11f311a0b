r"""What a malicious client does: to its labels before training, or to its update before sending it.

With D_i = upload - what it would have sent without training (`Method.unchanged`), over the attackers of a round:

    label_flip     every train label y, once:  uniform: y' ~ U{0..C-1};  other: y' ~ U of the other labels;
                   invert: y' = C - 1 - y
    target_shift   shift:  y' = y + amount * (standard deviation of the client's train targets)   (no labels)
                   invert: y' = min + max - y, of the client's train targets
    model_poisoning  D' = -factor D                      factor 0.5 in the Panacea papers
    sign_flip      D' = -D
    gaussian       D' ~ N(0, (scale * rms(D))^2 I)
    absent         D' = 0: a client that sends back what it was given
    alie           D' = mean - z std of the cohort's honest updates, coordinate by coordinate, all attackers alike
                   (a little is enough, Baruch et al. 2019); z such that enough honest clients are farther out
    minmax         D' = mean - g std, g as large as no attacker is farther from any honest update than the two
                   farthest of those are from each other (Shejwalkar and Houmansadr 2021)

In methods with several uploads all of them are changed (SCAFFOLD's control variate too); what a client keeps for itself
(Ditto's, APFL's, pFedMe's own models) is not touched. Attackers' own test labels stay clean.

Differences from the papers:
    * Panacea says that labels are flipped "randomly": over all classes here, so the expected gradient carries no
      signal, as in its theory. For two classes `invert` is a much stronger attack.
    * `alie` and `minmax` know the honest updates of their round, the strongest form of both. With no honest client in
      the cohort attackers behave.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from pydantic import BaseModel, ConfigDict, Field, field_validator
from torch import Tensor

from panacea.core.random import Streams
from panacea.core.validation import validated
from panacea.errors import unknown

__all__ = ["ATTACKS", "Attack", "AttackKeys", "make_attack"]

Labels = npt.NDArray[np.int64]


class AttackKeys(BaseModel):
    """Keys every attack has (`attack.*`)."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    ratio: float = Field(0.2, ge=0, le=1, description="share of the training clients that attack, drawn by the seed")
    clients: tuple[int | str, ...] | None = Field(
        None, description="these clients attack, by number or name; instead of attack.ratio"
    )
    start: int = Field(1, ge=1, description="first round in which they do")

    @field_validator("clients", mode="before")
    @classmethod
    def _one_or_several(cls, value: object) -> object:
        return (value,) if isinstance(value, int | str) else value  # attack.clients=3


class Attack:
    """One attack; a subclass changes targets, or updates, or both."""

    name: ClassVar[str] = "none"
    summary: ClassVar[str] = "everybody is honest"
    key_model: ClassVar[type[AttackKeys]] = AttackKeys
    tasks: ClassVar[Literal["any", "classification", "amounts"]] = "any"

    def __init__(self, keys: AttackKeys) -> None:
        self.keys = keys

    def labels(self, y: Labels, classes: int, stream: np.random.Generator) -> Labels | None:
        """Other labels ``[samples]`` for an attacker's train split; None where labels stay."""
        return None

    def targets(self, y: Tensor) -> Tensor | None:
        """Other targets ``[samples, ...]`` for an attacker's train split (not classification); None: as they are."""
        return None

    def updates(self, updates: Tensor, attacks: Tensor, streams: Streams, round: int) -> Tensor | None:
        """Other updates ``[rows, D]`` (those of honest rows are not used), attackers ``[rows]``; None: as they are."""
        return None


class LabelFlipKeys(AttackKeys):
    """Keys of `label_flip`."""

    flip: Literal["uniform", "other", "invert"] = Field(
        "uniform", description="a label drawn from all classes, from the other classes, or C - 1 - y"
    )


class LabelFlip(Attack):
    """See the module."""

    name, summary = "label_flip", "train labels are replaced once: at random, by another one, or mirrored"
    key_model, tasks = LabelFlipKeys, "classification"
    keys: LabelFlipKeys

    def labels(self, y: Labels, classes: int, stream: np.random.Generator) -> Labels:
        """Flipped labels."""
        if self.keys.flip == "invert":
            return classes - 1 - y
        if self.keys.flip == "uniform":
            return stream.integers(0, classes, len(y))
        return (y + stream.integers(1, max(classes, 2), len(y))) % classes


class TargetShiftKeys(AttackKeys):
    """Keys of `target_shift`."""

    mode: Literal["shift", "invert"] = Field("shift", description="shift targets, or mirror them within their range")
    amount: float = Field(1.0, description="shift: in standard deviations of the client's train targets")


class TargetShift(Attack):
    """See the module."""

    name, summary = "target_shift", "train targets are shifted, or mirrored within their range"
    key_model, tasks = TargetShiftKeys, "amounts"
    keys: TargetShiftKeys

    def targets(self, y: Tensor) -> Tensor:
        """Shifted or mirrored."""
        known = y[~y.isnan()]
        if self.keys.mode == "invert":
            return known.min() + known.max() - y
        return y + self.keys.amount * float(known.std(unbiased=False))


class ModelPoisoningKeys(AttackKeys):
    """Keys of `model_poisoning`."""

    factor: float = Field(0.5, gt=0, description="lambda: the update is multiplied by -lambda; 0.5 in Panacea's papers")


class ModelPoisoning(Attack):
    """See the module."""

    name, summary, key_model = "model_poisoning", "the negative update, scaled, is sent", ModelPoisoningKeys
    keys: ModelPoisoningKeys

    def updates(self, updates: Tensor, attacks: Tensor, streams: Streams, round: int) -> Tensor:
        """Backwards."""
        return -self.keys.factor * updates


class SignFlip(Attack):
    """See the module."""

    name, summary = "sign_flip", "the negative update is sent"

    def updates(self, updates: Tensor, attacks: Tensor, streams: Streams, round: int) -> Tensor:
        """Backwards, as far."""
        return -updates


class NoiseKeys(AttackKeys):
    """Keys of `gaussian`."""

    scale: float = Field(1.0, gt=0, description="of the noise, in root mean squares of the honest update")


class Noise(Attack):
    """See the module."""

    name, summary, key_model = "gaussian", "Gaussian noise of the update's size is sent", NoiseKeys
    keys: NoiseKeys

    def updates(self, updates: Tensor, attacks: Tensor, streams: Streams, round: int) -> Tensor:
        """Noise by the round's own stream."""
        drawn = torch.randn(updates.shape, generator=streams.torch("attack noise", round), dtype=updates.dtype)
        return self.keys.scale * updates.square().mean(dim=1, keepdim=True).sqrt() * drawn.to(updates.device)


class Absent(Attack):
    """See the module."""

    name, summary = "absent", "what was received is sent back unchanged"

    def updates(self, updates: Tensor, attacks: Tensor, streams: Streams, round: int) -> Tensor:
        """Nothing."""
        return torch.zeros_like(updates)


class ALittleIsEnough(Attack):
    """See the module."""

    name, summary = "alie", "colluding: mean minus z standard deviations of the honest updates (a little is enough)"

    def updates(self, updates: Tensor, attacks: Tensor, streams: Streams, round: int) -> Tensor | None:
        """All attackers alike; z as Baruch et al. choose it."""
        honest = updates[~attacks]
        if not len(honest):
            return None
        n, m = len(updates), int(attacks.sum())
        needed = max(n // 2 + 1 - m, 1)  # honest clients that must side with the attackers
        share = min(max((len(honest) - needed) / len(honest), 0.5), 0.99)
        z = NormalDist().inv_cdf(share)
        return (honest.mean(dim=0) - z * honest.std(dim=0, unbiased=False)).expand_as(updates)


class MinMax(Attack):
    """See the module."""

    name, summary = "minmax", "colluding: as far against the honest mean as honest clients are from each other"

    def updates(self, updates: Tensor, attacks: Tensor, streams: Streams, round: int) -> Tensor | None:
        """All attackers alike; g in closed form from the condition for each honest update."""
        honest = updates[~attacks]
        if len(honest) < 2:
            return None
        middle, against = honest.mean(dim=0), -honest.std(dim=0, unbiased=False)
        widest = torch.cdist(honest[None], honest[None])[0].max() ** 2
        offset = middle - honest  # ||offset_j + g against||^2 <= widest for all j: the smallest of the larger roots
        a, b = against.square().sum().clamp_min(1e-30), (offset * against).sum(dim=1)
        c = offset.square().sum(dim=1) - widest
        g = ((-b + (b.square() - a * c).clamp_min(0).sqrt()) / a).min().clamp_min(0)
        return (middle + g * against).expand_as(updates)


ATTACKS: dict[str, type[Attack]] = {
    cls.name: cls
    for cls in (
        Attack, LabelFlip, TargetShift, ModelPoisoning, SignFlip, Noise, Absent, ALittleIsEnough, MinMax,
    )
}  # fmt: skip
"""By name; `none` is no attack."""


def make_attack(name: str, keys: dict[str, object]) -> Attack:
    """An attack with checked keys (without the prefix ``attack.``)."""
    if name not in ATTACKS:
        raise unknown("attack", name, ATTACKS)
    cls = ATTACKS[name]
    return cls(validated(cls.key_model, keys, "attack"))
