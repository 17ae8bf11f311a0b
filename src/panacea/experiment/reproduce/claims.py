"""Sentences of a paper checked against its own numbers and against ours."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from panacea.evaluation.statistics import paired_test
from panacea.experiment.reproduce.entry import Claim, Column
from panacea.experiment.reproduce.measures import client_metrics, taken
from panacea.experiment.reproduce.result import Cell, Reproduction

__all__ = ["HOLDS", "HOLDS_NOT", "Checked", "check_claims"]

HOLDS, HOLDS_NOT, OPEN = "holds", "does not hold", "not run"


@dataclass(frozen=True)
class Checked:
    """A claim about one column.

    Attributes:
        text: the sentence.
        column: what it is checked on.
        printed: whether it holds for the numbers the paper prints; empty where there are none.
        ours: whether it holds for ours.
        numbers: the numbers of ours that decide it.
        label: why ours are of other data.
        reduced: how ours are shorter than the paper's protocol.
    """

    text: str
    column: str
    printed: str
    ours: str
    numbers: str
    label: str = ""
    reduced: str = ""


def check_claims(found: Reproduction) -> list[Checked]:
    """Every claim on every column it speaks of."""
    run = {part.block.name for part in found.plan.parts}
    return [
        _CHECKS[claim.kind](claim, column, found)
        for claim in found.plan.entry.claims
        for column in found.plan.entry.columns
        if column.block.name in run and (not claim.columns or column.name in claim.columns)
    ]


def _answer(holds: bool | None) -> str:
    return OPEN if holds is None else HOLDS if holds else HOLDS_NOT


def _checked(claim: Claim, column: Column, cells: Sequence[Cell], ours: bool | None, numbers: str) -> Checked:
    label = next((cell.label for cell in cells if cell.label), "")
    reduced = next((cell.reduced for cell in cells if cell.reduced), "")
    return Checked(claim.text, column.name, "", _answer(ours), numbers, label, reduced)


# --- rows against rows ------------------------------------------------------------------------------------------


def _against_rows(claim: Claim, column: Column, found: Reproduction) -> Checked:
    """`best`, `above`, `most`: values rounded to the printed digits are compared, so that a tie is a tie."""
    cells = [cell for cell in found.of(column.name) if column.block.axis is None or cell.value == claim.value]
    ours = {cell.row.name: cell.ours.mean for cell in cells if cell.ours is not None}
    decimals = max((cell.decimals for cell in cells), default=2)
    others = claim.over or tuple(row.name for row in found.plan.entry.rows if row.like is None)
    others = tuple(name for name in others if name != claim.row)
    printed = {row: cells[column.name].mean for row, cells in found.plan.entry.printed.items() if column.name in cells}
    holds, numbers = _wins(claim, ours, others, column, decimals, whole=bool(claim.over))
    as_printed, _ = _wins(claim, printed, others, column, decimals, whole=False)
    base = _checked(claim, column, cells, holds, numbers)
    return Checked(**{**vars(base), "printed": "" if as_printed is None else _answer(as_printed)})


def _wins(
    claim: Claim, values: Mapping[str, float], others: Iterable[str], column: Column, decimals: int, *, whole: bool
) -> tuple[bool | None, str]:
    """Whether the row is at least as good as (`above`: better than) all (`most`: over half) that have a number."""
    others = tuple(others)
    rivals = {name: round(values[name], decimals) for name in others if name in values}
    missing = whole and len(rivals) < len(others)
    if claim.row not in values or not rivals or missing:
        return None, ""
    own = round(values[claim.row], decimals)
    sign = 1 if column.higher_is_better else -1
    rival = max(rivals, key=lambda name: sign * rivals[name])
    ahead = sign * (own - rivals[rival])
    text = f"{claim.row} {own:.{decimals}f}, best other {rival} {rivals[rival]:.{decimals}f}"
    if claim.kind == "most":
        beaten = sum(sign * (own - other) > 0 for other in rivals.values())
        return 2 * beaten > len(rivals), f"{text}; better than {beaten} of {len(rivals)}"
    return ahead > 0 if claim.kind == "above" else ahead >= 0, text


def _tested(claim: Claim, column: Column, found: Reproduction) -> Checked:
    """`wilcoxon`: clients of all seeds as pairs; every row of `over` must be beaten with p below `value`."""
    cells = found.of(column.name)
    own = _paired(found.of(column.name, claim.row))
    words, verdicts, pairs = [], [], 0
    for name in claim.over:
        theirs = _paired(found.of(column.name, name))
        common = sorted(own.keys() & theirs.keys())
        test = paired_test(*(np.array([values[key] for key in common]) for values in (own, theirs)))
        if test is None:
            return _checked(claim, column, cells, None, "")
        gain = statistics.fmean(own[key] - theirs[key] for key in common)
        pairs = test.pairs
        verdicts.append(test.p < float(claim.value) and (gain > 0) == column.higher_is_better)
        words.append(f"{name} p={test.p:.2g} ({gain:+.2f})")
    return _checked(claim, column, cells, all(verdicts), f"{pairs} pairs, mean gain in brackets: {', '.join(words)}")


def _paired(cells: Sequence[Cell]) -> dict[tuple[int, str], float]:
    """Clients' test metrics by seed and name."""
    runs = [one for cell in cells for one in cell.outcomes if one.finished.summary is not None]
    return {
        (one.planned.seed, name): metric
        for one in runs
        for name, metric in client_metrics(one.finished.directory).items()
    }


def _at_least(claim: Claim, column: Column, found: Reproduction) -> Checked:
    cells = found.of(column.name, claim.row)
    known = [cell.ours.mean for cell in cells if cell.ours is not None]
    holds = known[0] >= float(claim.value) if known else None
    return _checked(claim, column, cells, holds, f"{claim.row} {known[0]:.2f}" if known else "")


# --- along an axis ----------------------------------------------------------------------------------------------


def _best_at(claim: Claim, column: Column, found: Reproduction) -> Checked:
    """A value at which a run diverged is not the best one."""
    cells = found.of(column.name, claim.row)
    values = {cell.value: round(cell.ours.mean, 2) for cell in cells if cell.ours is not None}
    if claim.value not in [cell.value for cell in cells] or any(
        cell.ours is None and not cell.failed for cell in cells
    ):
        return _checked(claim, column, cells, None, "")
    sign = 1 if column.higher_is_better else -1
    best = max((sign * value for value in values.values()), default=-math.inf)
    numbers = ", ".join(f"{cell.value}: {cell.failed or format(values[cell.value], '.2f')}" for cell in cells)
    return _checked(claim, column, cells, claim.value in values and sign * values[claim.value] >= best, numbers)


def _grows(claim: Claim, column: Column, found: Reproduction) -> Checked:
    """The gain at the last value is above that at the first by more than two standard errors over seeds."""
    cells = found.of(column.name, claim.row)
    gains = {cell.value: _gains(cell, found, claim.over[0]) for cell in cells}
    if not cells or not all(gains.values()):
        return _checked(claim, column, cells, None, "")
    first, last = gains[cells[0].value], gains[cells[-1].value]
    variance = sum(statistics.variance(some) / len(some) for some in (first, last) if len(some) > 1)
    ahead = statistics.fmean(last) - statistics.fmean(first)
    numbers = "gain at " + ", ".join(f"{value}: {statistics.fmean(some):+.2f}" for value, some in gains.items())
    return _checked(claim, column, cells, ahead > 2 * math.sqrt(variance), numbers)


def _gains(cell: Cell, found: Reproduction, over: str) -> list[float]:
    """By how much a row is better than another at one value, seed by seed."""
    other = next(one for one in found.of(cell.column.name, over) if one.value == cell.value)
    sign = 1 if cell.column.higher_is_better else -1
    theirs = dict(_by_seed(other))
    return [sign * (mean - theirs[seed]) for seed, mean in _by_seed(cell) if seed in theirs]


def _by_seed(cell: Cell) -> list[tuple[int, float]]:
    found = []
    for one in cell.outcomes:
        mean, _ = taken(cell.column.measure, one.finished.summary or {}, one.finished.directory)
        if mean is not None:
            found.append((one.planned.seed, cell.column.scale * mean))
    return found


_CHECKS: dict[str, Callable[[Claim, Column, Reproduction], Checked]] = {
    "best": _against_rows,
    "above": _against_rows,
    "most": _against_rows,
    "at_least": _at_least,
    "wilcoxon": _tested,
    "best_at": _best_at,
    "grows": _grows,
}
