"""The outcome of a reproduction: a cell for every row and column, with its verdict."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from panacea.experiment.batch import Finished
from panacea.experiment.reproduce.entry import Column, Row
from panacea.experiment.reproduce.measures import measured_clients, taken
from panacea.experiment.reproduce.plan import Part, Plan, Planned
from panacea.experiment.reproduce.printed import Printed
from panacea.experiment.reproduce.verdict import Measured, judge, tolerance
from panacea.experiment.table import between

__all__ = ["Cell", "Outcome", "Reproduction", "gather"]


@dataclass(frozen=True)
class Outcome:
    """A planned run and what became of it."""

    planned: Planned
    finished: Finished


@dataclass(frozen=True)
class Cell:
    """One number of the paper beside ours.

    Attributes:
        row: the method.
        column: data set and measure.
        value: of the block's axis, None without one.
        printed: what the paper has.
        ours: what we have, in the paper's unit; None where a run is missing or failed.
        verdict: one of `VERDICTS`.
        why: the reason, where the verdict needs one.
        label: why ours is of other data.
        reduced: how its protocol is shorter than the paper's.
        outcomes: the runs behind it.
    """

    row: Row
    column: Column
    value: Any
    printed: Printed | None
    ours: Measured | None
    verdict: str
    why: str
    label: str
    reduced: str
    outcomes: tuple[Outcome, ...]

    @property
    def difference(self) -> float | None:
        """Ours minus the published number; None where ours is of other data."""
        return None if self.printed is None or self.ours is None or self.label else self.ours.mean - self.printed.mean

    @property
    def allowed(self) -> float | None:
        """The difference that still counts as reproduced."""
        if self.printed is None or self.ours is None or self.label:
            return None
        return tolerance(self.printed, self.ours, self.column.block.clients)

    @property
    def failed(self) -> str:
        """How many of its runs failed, in words; empty where none did."""
        failed = sum(one.finished.summary is None and one.finished.error is not None for one in self.outcomes)
        return f"failed {failed} of {len(self.outcomes)}" if failed else ""

    @property
    def decimals(self) -> int:
        """Digits at which numbers of this cell are compared."""
        return 2 if self.printed is None else self.printed.decimals


@dataclass(frozen=True)
class Reproduction:
    """All cells of a reproduction, and the runs behind them."""

    plan: Plan
    cells: tuple[Cell, ...]
    outcomes: tuple[Outcome, ...]

    @property
    def failures(self) -> list[str]:
        """What went wrong, a line each."""
        bad = (one for one in self.outcomes if one.finished.summary is None)
        return [f"{one.planned.job.label}: {one.finished.error}" for one in bad]

    def of(self, column: str, row: str | None = None) -> list[Cell]:
        """The cells of a column, in the order of rows and values; or of one row in it."""
        return [c for c in self.cells if c.column.name == column and row in (None, c.row.name)]

    def partial(self, part: Part) -> str:
        """What part of a data set the runs of a block had, as their summaries say."""
        return _partial(one for one in self.outcomes if one.planned.part.block.name == part.block.name)


def gather(plan: Plan, finished: Sequence[Finished]) -> Reproduction:
    """Cells from runs; `finished` is in the order of `plan.planned`."""
    outcomes = tuple(Outcome(one, done) for one, done in zip(plan.planned, finished, strict=True))
    cells = tuple(
        _cell(plan, part, row, column, value, outcomes)
        for part in plan.parts
        for column in plan.entry.columns
        if column.block.name == part.block.name
        for row in plan.rows
        if row.only is None or part.block.name in row.only
        for value in part.values
    )
    return Reproduction(plan, cells, outcomes)


def _cell(plan: Plan, part: Part, row: Row, column: Column, value: Any, outcomes: Sequence[Outcome]) -> Cell:
    runs = tuple(
        one
        for one in outcomes
        if (one.planned.part.block.name, one.planned.row.name) == (part.block.name, row.name)
        and one.planned.value == value
    )
    ours, trouble = _measured(column, runs)
    printed, impossible = plan.entry.cell(row, column.name), plan.entry.impossible(row, column.name)
    label = "; ".join(filter(None, (part.label, _partial(runs))))
    verdict = judge(
        printed, ours, higher_is_better=column.higher_is_better, clients=column.block.clients,
        impossible=impossible, label=label,
    )  # fmt: skip
    reasons = {"cannot be right": impossible or "", "not comparable": label, "not run": part.missing or trouble}
    return Cell(row, column, value, printed, ours, verdict, reasons.get(verdict, ""), label, part.reduced, runs)


def _measured(column: Column, runs: Sequence[Outcome]) -> tuple[Measured | None, str]:
    """Our number, or why there is none: a mean over the seeds that did well would flatter."""
    failed = next((one.finished.error for one in runs if one.finished.summary is None), None)
    if not runs or failed is not None:
        return None, failed or "no run"
    found = [taken(column.measure, one.finished.summary or {}, one.finished.directory) for one in runs]
    means = [column.scale * mean for mean, _ in found if mean is not None]
    if len(means) < len(found):
        return None, f"the runs have no {column.measure.key}"
    spreads = [column.scale * spread for _, spread in found if spread is not None]
    clients = measured_clients(column.measure, runs[0].finished.summary or {})
    spread = statistics.fmean(spreads) if spreads else None
    return Measured(statistics.fmean(means), spread, between(means), clients, len(means)), ""


def _partial(runs: Iterable[Outcome]) -> str:
    summaries = (one.finished.summary or {} for one in runs)
    return next((str(summary["partial"]) for summary in summaries if summary.get("partial")), "")
