"""Rows that train in one call: clients of one run, or of several runs that advance together.

A *party* is the cohort of one run: its samples, its streams, its round. All parties of a call have the same method,
network and batch size; they may differ in data, seed, learning rate, number of steps and round.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from panacea.core.draws import drawn_batches
from panacea.core.random import Keys, client_keys
from panacea.core.transfer import on_device
from panacea.core.types import Batch, ClientIds
from panacea.engines.base import Samples

__all__ = ["Party", "Rows", "Stretch", "largest_divisor"]

_GATHER_BYTES = {"cpu": 32 * 2**20, "cuda": 2**30}  # of several steps' samples, gathered in one call up to this much
_SLOPED = {"cpu": 2560, "cuda": 1 << 17}  # log-probabilities in a step: of more, picking by label touches less memory


@dataclass(frozen=True)
class Party:
    """The cohort of one run.

    Attributes:
        samples: all clients' of the run.
        ids: ``[rows]`` those that train.
        round: the round's number.
        purpose: names the streams: batches to train on, to adapt on.
    """

    samples: Samples
    ids: ClientIds
    round: int
    purpose: str


@dataclass(frozen=True)
class Stretch:
    """The batches of some consecutive local steps.

    Attributes:
        x: ``[steps, draws, rows, B, *inputs]``.
        y: ``[steps, draws, rows, B, *outputs]``.
        weight: ``[steps, draws, rows, B]``, see `Batch`.
        present: ``[rows, B]`` bool, or None where no row has padding.
        classes: of which batches get slopes; 0 where they get none.
    """

    x: Tensor
    y: Tensor
    weight: Tensor
    present: Tensor | None
    classes: int = 0

    def batches(self) -> Iterator[tuple[Batch, ...]]:
        """One tuple of batches for every step."""
        draws = self.x.shape[1]
        xs, ys, weights = (values.flatten(0, 1).unbind(0) for values in (self.x, self.y, self.weight))
        each = [Batch(x, y, weight, self.present) for x, y, weight in zip(xs, ys, weights, strict=True)]
        if self.classes:
            slopes = self._slopes().flatten(0, 1).unbind(0)
            each = [batch.with_slope(slope) for batch, slope in zip(each, slopes, strict=True)]
        yield from (tuple(each[i : i + draws]) for i in range(0, len(each), draws))

    def _slopes(self) -> Tensor:
        """``[steps, draws, rows, classes, B]``, see `Batch`: of all steps at once, not again in every one."""
        classes = torch.arange(self.classes, device=self.y.device).unsqueeze(-1)
        return torch.where(self.y.unsqueeze(-2) == classes, -self.weight.unsqueeze(-2), 0.0)


@dataclass(frozen=True)
class Rows:
    """The rows of one call, party after party.

    Attributes:
        parties: theirs.
        sloped: whether batches get slopes where these pay.
    """

    parties: tuple[Party, ...]
    sloped: bool = False

    def classes(self, width: int) -> int:
        """See `Stretch`, for batches of `width` samples."""
        first = self.parties[0].samples
        numbers = sum(len(party.ids) for party in self.parties) * width * first.task.classes
        return first.task.classes if self.sloped and numbers <= _SLOPED[first.device.type] else 0

    def sample_bytes(self, width: int) -> int:
        """Of one sample in a stretch: its input and its slope."""
        first = self.parties[0].samples
        return first.input_bytes + self.classes(width) * first.dtype.itemsize

    @property
    def slices(self) -> list[slice]:
        """Where each party's rows are."""
        ends = np.cumsum([len(party.ids) for party in self.parties])
        return [slice(int(end) - len(party.ids), int(end)) for party, end in zip(self.parties, ends, strict=True)]

    def noise(self) -> Tensor:
        """``[rows]`` int64: the key of every row's stream of noise."""
        return on_device((self._keys("noise") >> np.uint64(1)).view(np.int64), self.parties[0].samples.device)

    def batches(self, steps: int, draws: int, batch_size: int) -> Iterator[tuple[Batch, ...]]:
        """For every local step, `draws` batches ``[rows, B, ...]``."""
        for stretch in self.stretches(steps, draws, batch_size):
            yield from stretch.batches()

    def stretches(self, steps: int, draws: int, batch_size: int, *, even: bool = False) -> Iterator[Stretch]:
        """The same in stretches of as many steps as may be gathered at once, all of them equally long if asked for."""
        places, sizes = self._positions(steps, draws, batch_size)
        width = places.shape[-1]
        first = self.parties[0].samples
        real = np.arange(width) < sizes[:, None]
        if real.all():
            present, equal = None, places.new_full((1, 1), 1 / width, dtype=first.dtype).expand(real.shape)
        else:
            present = on_device(real, first.device)
            equal = on_device(real / real.sum(axis=1, keepdims=True), first.device, first.dtype)
        one = draws * len(real) * width * self.sample_bytes(width)
        length = max(1, min(steps, _GATHER_BYTES[first.device.type] // max(1, one)))
        length = largest_divisor(steps, length) if even else length
        for begin in range(0, steps, length):
            x, y = self.gathered(places[begin : begin + length])
            missing = first.task.missing
            weight = first.shares(y, present) if missing else equal.expand(*x.shape[:2], *equal.shape)
            yield Stretch(x, y, weight, present, self.classes(width))

    def keys(self, draw: int) -> Keys:
        """``[rows]``: of the rows' streams of batches."""
        return self._keys(f"batches {draw}")

    def _keys(self, what: str) -> Keys:
        rounds = [p.samples.streams.round_key(f"{p.purpose} {what}", p.round) for p in self.parties]
        each = np.array(rounds, np.uint64).repeat([len(p.ids) for p in self.parties])
        return client_keys(each, np.concatenate([p.ids for p in self.parties]).astype(np.uint64))

    def starts(self) -> Tensor:
        """``[rows, 1]``: where the samples of each row begin."""
        starts = np.concatenate([p.samples.bounds[p.ids, :1] for p in self.parties])
        return on_device(starts, self.parties[0].samples.device)

    def _positions(self, steps: int, draws: int, batch_size: int) -> tuple[Tensor, npt.NDArray[np.int64]]:
        """Where every row's samples of every step are, ``[steps, draws, rows, B]``, and how many a row really has.

        Draw d of step t is the same whatever the number of draws, so a method with two batches a step sees in its
        first one what FedAvg sees. A batch of all parties is drawn at once.
        """
        device = self.parties[0].samples.device
        counts = np.concatenate([p.samples.counts("train", p.ids) for p in self.parties])
        drawn = [drawn_batches(self.keys(d), counts, steps, batch_size, device) for d in range(draws)]
        return torch.stack(drawn, dim=1) + self.starts(), np.minimum(counts, batch_size)

    def gathered(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """The samples at ``[steps, draws, rows, B]`` positions, each row's of its own party."""
        own = [places[:, :, rows] for rows in self.slices]
        found = [party.samples.gather(place) for party, place in zip(self.parties, own, strict=True)]
        if len(found) == 1:
            return found[0]
        return torch.cat([x for x, _ in found], dim=2), torch.cat([y for _, y in found], dim=2)

    def steps_of(self, counts: npt.NDArray[np.int64]) -> int | Tensor:
        """One number of steps for all rows, or ``[rows, 1]``."""
        most = int(counts.max())
        if (counts == most).all():
            return most
        return on_device(counts, self.parties[0].samples.device).unsqueeze(-1)


def largest_divisor(number: int, most: int) -> int:
    """The largest divisor of a number that is not above another.

    >>> largest_divisor(50, 12)
    10
    """
    return next(d for d in range(min(number, most), 0, -1) if number % d == 0)
