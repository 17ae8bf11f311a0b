r"""Which runs are not worth going on with: successive halving on the validation metric.

All settings of a batch train up to the same round, the first *rung*. There each is scored, the better part goes on to
the next rung, and so on; what is left trains to the end. With R rounds, grace g and factor f the rungs are

    r_k = g f^k   for k = 0, 1, ... while r_k < R,   each moved up to the next evaluated round,

and of the n settings of one method that were let through to rung k (those of earlier batches included, and those that
diverged on the way) the best

    ceil(n / f)

go on. A setting's score at a rung is the mean over seeds of

    v(r) = best validation metric of the run's evaluations up to round r,

the value of the round that the run itself would report if it ended there, because a run chooses its round on validation
data. Between equal scores the lower validation loss at those rounds decides (again as within a run: few validation
samples make equal accuracies common), and then the order of the trials. A run that diverges ends there, and its setting
with it. By default g = R / 4 and f = 2: settings that are in the worse half after a quarter of the rounds, or in the
worse half of the rest after half of them, stop; the search costs about half.

Because everybody waits at a rung and only `v` decides, what is stopped does not depend on the number of processes, on
their speed or on a kill in between. Test data has no part in it. The price is known too: ranks early in training are
not those of the end, so that a setting which starts slowly may be stopped although it would win. Nothing is stopped
unless `stop: halving` asks for it; a larger grace makes it safer.

Source: Jamieson and Talwalkar, AISTATS 2016 (successive halving); Li et al., MLSys 2020 (ranking among all that ever
reached a rung, for searches that propose settings batch by batch).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Halving", "Standing", "ranked"]


@dataclass(frozen=True)
class Halving:
    """The rule.

    Attributes:
        grace: rounds before anything is stopped; None: a quarter of all.
        factor: one in `factor` goes on at every rung.
    """

    grace: int | None = None
    factor: float = 2.0

    def rungs(self, rounds: int, eval_every: int) -> tuple[int, ...]:
        """The rounds at which settings are compared, each an evaluated one before the last.

        >>> Halving().rungs(800, 10), Halving(grace=30, factor=3).rungs(100, 20), Halving().rungs(2, 5)
        ((200, 400), (40,), ())
        """
        found: list[int] = []
        reach = float(self.grace if self.grace is not None else math.ceil(rounds / 4))
        while reach < rounds:
            rung = math.ceil(reach / eval_every) * eval_every
            if rung < rounds and rung not in found:
                found.append(rung)
            reach *= self.factor
        return tuple(found)

    def going_on(self, standings: Sequence[Standing | None], higher_is_better: bool) -> list[bool]:
        """Which of those that reached a rung go on; None (no finite score) never does.

        >>> Halving().going_on([(80.0, 1.0), (90.0, 1.0), None, (80.0, 0.5), (80.0, 0.7)], higher_is_better=True)
        [False, True, False, True, True]
        """
        best = ranked(standings, higher_is_better)[: math.ceil(len(standings) / self.factor)]
        return [number in best for number in range(len(standings))]


Standing = tuple[float, float]
"""Validation metric and, to decide between equal ones, validation loss (infinite where unknown)."""


def ranked(standings: Sequence[Standing | None], higher_is_better: bool) -> list[int]:
    """Places of the known standings, the best first: metric, then loss, then the first of equal ones."""
    sign = -1 if higher_is_better else 1
    known = [
        (sign * standing[0], standing[1], place) for place, standing in enumerate(standings) if standing is not None
    ]
    return [place for *_, place in sorted(known)]
