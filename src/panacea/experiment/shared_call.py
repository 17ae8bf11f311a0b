"""One call of local training for several runs, and what becomes of each."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from panacea.core.round import Trained
from panacea.engines.requests import Begun, Request
from panacea.engines.vectorised import VectorisedEngine

__all__ = ["Asked", "SharedCall"]

Asked: TypeAlias = tuple[VectorisedEngine, Request]
"""What a run wants trained, and its engine."""


class SharedCall:
    """Requests that are trained in one call; where that fails each by itself, so that an error finds its run."""

    def __init__(self, group: dict[int, Asked]) -> None:
        self.group = group
        self.begun: Begun | None = None
        self.error: Exception | None = None
        trains = next(iter(group.values()))[0]
        before = trains.gradient_evaluations
        try:
            self.begun = trains.launch([request for _, request in group.values()])
        except Exception as error:  # told to whom it belongs
            self.error = error
        self.evaluations, trains.gradient_evaluations = trains.gradient_evaluations - before, before

    def results(self) -> dict[int, Trained | Exception]:
        """Of every run."""
        try:
            if self.begun is not None:
                found: dict[int, Trained | Exception] = dict(zip(self.group, self.begun(), strict=True))
                self._share_out()
                return found
        except Exception as error:  # a GPU may tell late
            self.error = error
        if len(self.group) == 1 and self.error is not None:
            return dict.fromkeys(self.group, self.error)
        return {n: result for n, one in self.group.items() for result in SharedCall({n: one}).results().values()}

    def _share_out(self) -> None:
        """Gradients are counted by the engine that trains, and belong to all."""
        rows = np.array([int(request.counts.sum()) for _, request in self.group.values()])
        shares = rows * self.evaluations // max(int(rows.sum()), 1)
        for (engine, _), share in zip(self.group.values(), shares, strict=True):
            engine.gradient_evaluations += int(share)
