r"""Backdoors: some of an attacker's train images carry a mark and a label of its choice; everybody's model learns it.

With pixels x in [0, 1], a mark p, and the first share of a random order of the attacker's train images (of all labels):

    backdoor_blended   x' = (1 - blend) x + blend p,   y' = target       p: `pattern`, as large as the image
    backdoor_patch     x' = 1 in the `size` x `size` pixels of the lower right corner of all channels,   y' = target

``int(share * n + 1/2)`` of n images are changed. By default one random training client attacks; `attack.ratio` or
`attack.clients` say otherwise, and with ``attack.ratio=0`` nobody does, but success is measured all the same.

ASR, the attack's success rate, is of a client: percent of its marked test images with ``y != target`` that its own
model takes for `target`. Means are over honest clients; without the same number for ``attack.ratio=0`` they say little,
for a weak model takes unmarked images for the target too.

Sources: Chen et al., Targeted backdoor attacks on deep learning systems using data poisoning, 2017 (blended); Gu et
al., BadNets, 2017 (patch); settings of the first as in the Panacea papers: blend 0.2, share 0.5, target 1, one client.

Differences from the papers:
    * The Panacea papers blend a picture of a cartoon cat, which is not ours to give out. `pattern` is drawn by formula.
    * They blend bytes; here the image is blended after it was divided by 255, so nothing is rounded.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from panacea.data.federation import Federation
from panacea.engines.base import Samples
from panacea.errors import RequestError
from panacea.robustness.base import Attack, AttackKeys, Labels, Positions

__all__ = ["BackdoorBlended", "BackdoorPatch", "pattern", "triggered_tests"]


@lru_cache(maxsize=8)
def pattern(channels: int, height: int, width: int) -> Tensor:
    """``[channels, height, width]`` in [0, 1]: slanting stripes, in another phase per channel, inverted inside a disc.

    With u = (column + 1/2) / width, v = (row + 1/2) / height, in channel c s = 1/2 + cos(2 pi (2 u + v + c / 3)) / 2:
    1 - s where (u - 1/2)^2 + (v - 1/2)^2 < 0.3^2, else s.
    """
    u = (torch.arange(width, dtype=torch.float64) + 0.5) / width
    v = ((torch.arange(height, dtype=torch.float64) + 0.5) / height)[:, None]
    phase = torch.arange(channels, dtype=torch.float64)[:, None, None] / 3
    stripes = 0.5 + 0.5 * torch.cos(2 * math.pi * (2 * u + v + phase))
    return torch.where((u - 0.5) ** 2 + (v - 0.5) ** 2 < 0.3**2, 1 - stripes, stripes)


class BackdoorKeys(AttackKeys):
    """Keys of every backdoor."""

    ratio: float | None = Field(  # type: ignore[assignment]
        None, ge=0, le=1, description="share of the training clients that attack; default: one client"
    )
    share: float = Field(0.5, gt=0, le=1, description="of an attacker's train images that are marked")
    target: int = Field(1, ge=0, description="the class that marked images are labelled as, from 0")


class Backdoor(Attack):
    """What backdoors have in common; see the module."""

    key_model: ClassVar[type[AttackKeys]] = BackdoorKeys
    tasks = "classification"
    keys: BackdoorKeys

    def check(self, federation: Federation) -> None:
        """Only images of 0 to 1, and a class there is."""
        task, x = federation.task, federation.x
        if len(task.inputs) != 3:
            shape = " x ".join(map(str, task.inputs))
            raise RequestError(f"attack={self.name} is for images [C, H, W]; inputs of {federation.name} are {shape}")
        if self.keys.target >= task.classes:
            raise RequestError(
                f"attack.target={self.keys.target}: {federation.name} has {task.classes} classes, numbered from 0"
            )
        if x.is_floating_point() and x.numel():
            low, high = (float(value) for value in x.aminmax())
            if low < 0 or high > 1:
                raise RequestError(
                    f"attack={self.name} needs pixels of 0 to 1; those of {federation.name} are {low:.3g} to {high:.3g}"
                )

    def attackers(self, clients: int) -> int:
        """One by default."""
        return 1 if self.keys.ratio is None else super().attackers(clients)

    def marked(self, samples: int, stream: np.random.Generator) -> Positions:
        """A random share."""
        return stream.permutation(samples)[: int(self.keys.share * samples + 0.5)]

    def labels(self, y: Labels, classes: int, stream: np.random.Generator) -> Labels:
        """The target for marked images."""
        changed = y.copy()
        changed[self.marked(len(y), stream)] = self.keys.target
        return changed


class BackdoorBlendedKeys(BackdoorKeys):
    """Keys of `backdoor_blended`."""

    blend: float = Field(0.2, gt=0, le=1, description="weight of the pattern; the image has the rest")


class BackdoorBlended(Backdoor):
    """See the module."""

    name, summary = "backdoor_blended", "half of the train images show a faint pattern and are labelled as the target"
    key_model = BackdoorBlendedKeys
    keys: BackdoorBlendedKeys

    def trigger(self, x: Tensor) -> Tensor:
        """Blended with the pattern."""
        return torch.lerp(x, pattern(*x.shape[1:]).to(x), self.keys.blend)


class BackdoorPatchKeys(BackdoorKeys):
    """Keys of `backdoor_patch`."""

    size: int = Field(3, ge=1, description="side of the bright square, in pixels")


class BackdoorPatch(Backdoor):
    """See the module."""

    name, summary = "backdoor_patch", "half of the train images have a bright corner and are labelled as the target"
    key_model = BackdoorPatchKeys
    keys: BackdoorPatchKeys

    def check(self, federation: Federation) -> None:
        """The patch must fit."""
        super().check(federation)
        height, width = federation.task.inputs[1:]
        if self.keys.size > min(height, width):
            raise RequestError(
                f"attack.size={self.keys.size}: images of {federation.name} have {height} x {width} pixels"
            )

    def trigger(self, x: Tensor) -> Tensor:
        """With the square."""
        x = x.clone()
        x[:, :, -self.keys.size :, -self.keys.size :] = 1
        return x


def triggered_tests(attack: Attack, samples: Samples) -> Samples | None:
    """All clients' test images whose label is not the target, marked and labelled as the target; None without a mark.

    A model's accuracy on them is its ASR. They are the test split; the others are empty.
    """
    if not isinstance(attack, Backdoor):
        return None
    target, labels = attack.keys.target, samples.y.cpu().numpy()
    parts = [first + np.flatnonzero(labels[first:end] != target) for first, end in samples.bounds[:, 2:]]
    ends = np.cumsum([len(part) for part in parts])
    starts = np.concatenate([[0], ends[:-1]])
    positions = np.concatenate(parts).astype(np.int64)
    bounds = np.stack([starts, starts, starts, ends], axis=1).astype(np.int64)
    made = samples.chosen(positions, bounds, torch.full((len(positions),), target, dtype=torch.int64))
    made.replace_inputs(np.arange(len(positions)), attack.trigger)
    return made
