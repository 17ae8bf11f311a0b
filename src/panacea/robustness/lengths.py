"""How long updates usually are, as far as a server has seen.

The median of the last 200 accepted lengths, or the largest that this median has been: where clients are nearly done,
most updates are short, and the longer ones of clients that still learn are no lies. It is held from 50 lengths on: of a
few, most may be lies.
"""

from __future__ import annotations

import torch
from torch import Tensor

from panacea.core.records import record

__all__ = ["Lengths"]

_LATEST = 200  # lengths that the median is over
_SOME = 10  # before anything is said of what is usual
_MANY = 50  # before it is held


@record
class Lengths:
    """What is remembered of them.

    Attributes:
        latest: ``[200]`` the last one last; NaN where there were not as many yet.
        largest: ``[]`` the largest median of many so far.
    """

    latest: Tensor
    largest: Tensor

    @classmethod
    def none(cls, like: Tensor) -> Lengths:
        """Before the first."""
        return cls(like.new_full((_LATEST,), torch.nan), like.new_zeros(()))

    def usual(self) -> Tensor:
        """``[]``: infinite where too few were seen, or none that moved anything."""
        found = torch.maximum(self.median(), self.largest)
        return torch.where((self._known() >= _SOME) & (found > 0), found, torch.inf)

    def median(self) -> Tensor:
        """``[]``: of the latest; 0 where there are none."""
        return self.latest.nanmedian().nan_to_num()

    def then(self, accepted: Tensor) -> Lengths:
        """With those ``[k]`` of a round."""
        new = Lengths(torch.cat([self.latest, accepted])[-_LATEST:], self.largest)
        held = torch.maximum(new.median(), self.largest)
        return Lengths(new.latest, torch.where(new._known() >= _MANY, held, self.largest))

    def _known(self) -> Tensor:
        return (~self.latest.isnan()).sum()
