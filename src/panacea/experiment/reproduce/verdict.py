"""When a number counts as reproduced.

The paper prints p (± s_p, the standard deviation over its n_p clients, rounded to d decimals). We have R seeds: m, the
mean over clients and then over seeds; s, the standard deviation over our n clients, averaged over seeds; r, the
standard deviation of the R means. Both means vary with the clients they were taken over and ours with the seed, so

    tolerance = 10^-d / 2 + 2 sqrt(s_p^2 / n_p + s^2 / n + r^2 / R)

    reproduced   |m - p| <= tolerance
    better       m is further than that on the good side of p
    worse        m is further than that on the bad side

The two standard errors over clients are added as if the clients were drawn anew; they are mostly the same ones, so the
tolerance is rather too wide than too narrow. The bare ± would be far wider still (33.7 points for one cell) and is not
used. Where the paper prints no ±, ours stands for it (s_p = s); with one seed r is unknown and left out; where n_p is
not known it is n. Only cells of the paper's own, whole data are judged; for the others:

    cannot be right   the published number contradicts something known, whatever ours is; the reason is given
    not comparable    ours is of other data (a stand-in, a part, another setting)
    not run           there is no number of ours
    -                 there is no published number

A verdict of a shorter protocol (`--quick`, keys of one's own) is marked with a star: it may be the rounds' fault.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from panacea.experiment.reproduce.printed import Printed

__all__ = ["VERDICTS", "Measured", "judge", "tolerance"]

VERDICTS = ("reproduced", "better", "worse", "cannot be right", "not comparable", "not run", "-")


@dataclass(frozen=True)
class Measured:
    """A number of ours, in the paper's unit.

    Attributes:
        mean: m.
        spread: s, over clients; None where the measure has none.
        between: r, over seeds; None of one seed.
        clients: n.
        seeds: R.
    """

    mean: float
    spread: float | None
    between: float | None
    clients: int
    seeds: int


def tolerance(printed: Printed, ours: Measured, clients: int | None = None) -> float:
    """How far ours may be from the published number (the module's formula); `clients` is n_p.

    >>> ours = Measured(mean=98.0, spread=6.0, between=0.8, clients=36, seeds=4)
    >>> round(tolerance(Printed(97.9, 8.0, 1), ours, clients=64), 4)  # 0.05 + 2 sqrt(1 + 1 + 0.16)
    2.9894
    """
    s = ours.spread or 0.0
    s_p = s if printed.spread is None else printed.spread
    r = ours.between or 0.0
    variance = s_p**2 / (clients or ours.clients) + s**2 / ours.clients + r**2 / ours.seeds
    return printed.rounding + 2 * math.sqrt(variance)


def judge(
    printed: Printed | None,
    ours: Measured | None,
    *,
    higher_is_better: bool,
    clients: int | None = None,
    impossible: str | None = None,
    label: str = "",
) -> str:
    """The verdict on a cell.

    Args:
        printed: the published number.
        ours: our number; None if it was not run.
        higher_is_better: direction.
        clients: n_p.
        impossible: why the published number cannot be right.
        label: why ours is of other data; empty where it is of the paper's.
    """
    if printed is None:
        return "-"
    if impossible:
        return "cannot be right"
    if ours is None:
        return "not run"
    if label:
        return "not comparable"
    difference = ours.mean - printed.mean
    if abs(difference) <= tolerance(printed, ours, clients) + 1e-9:  # 0.05 is not a binary number
        return "reproduced"
    return "better" if (difference > 0) == higher_is_better else "worse"
