"""The table of a comparison in which a key was varied: methods down, values across."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from panacea.experiment.formats import Mark, ranks
from panacea.experiment.outcome import Outcome, cohort_title
from panacea.experiment.plain_table import metric_bounds
from panacea.experiment.prices import Prices
from panacea.experiment.significance import interval_of
from panacea.experiment.sweep import Axis
from panacea.experiment.table import average, between, data_title, shown

__all__ = ["Cell", "Line", "Outcome", "Swept"]

_MEASURES = (
    "std", "final_mean", "worst_decile", "gini", "jain", "gap", "all_mean", "attackers_mean", "novel_mean",
    "train_seconds",
)  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """The runs of one method at one set of values.

    Attributes:
        mean: over clients (honest ones under attack) and seeds; None where a run failed.
        spread: standard deviation over seeds; None of one seed.
        drop: how much worse than at the first value, seed by seed; None where either is not known.
        drop_spread: its standard deviation over seeds.
        runs: the runs' summaries.
    """

    mean: float | None
    spread: float | None
    drop: float | None
    drop_spread: float | None
    runs: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class Line:
    """One curve: a method, where a second key is varied also its value, and a cell for every value of the first."""

    method: str
    other: Any
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Swept:
    """The runs of a comparison with varied keys.

    Attributes:
        axes: the varied keys; curves are drawn along the first.
        outcomes: all runs.
        request: the keys that say what was attacked and defended, as given.
        target: the validation metric whose price is asked for; None: see `Prices`.
    """

    axes: tuple[Axis, ...]
    outcomes: tuple[Outcome, ...]
    request: str = ""
    target: float | None = None

    @property
    def first(self) -> Mapping[str, Any]:
        """The first run that came to its end."""
        return next(outcome.summary for outcome in self.outcomes if outcome.summary is not None)

    @property
    def higher_is_better(self) -> bool:
        """Direction of the metric."""
        return bool(self.first["metric"] == "accuracy")

    @property
    def attacked(self) -> bool:
        """Whether clients lie in some run, so that `mean` is over the others."""
        return any(o.summary is not None and o.summary.get("attack", "none") != "none" for o in self.outcomes)

    @property
    def seeds(self) -> list[int]:
        """All seeds, in order."""
        return sorted({outcome.seed for outcome in self.outcomes})

    @property
    def title(self) -> str:
        """What was done."""
        about = f"{data_title(self.first)}" + (f", {self.request}" if self.request else "")
        unit = "%" if self.higher_is_better else "MSE"
        varied = {axis.key for axis in self.axes}  # the table says these itself
        rounds = "" if "rounds" in varied else f", {self.first['rounds']} rounds"
        known = next(o for o in self.outcomes if o.summary is not None)
        cohort = "" if "cohort" in varied else cohort_title(known)
        return f"{about}: {self.first['metric']} ({unit}){rounds}{cohort}, seeds {', '.join(map(str, self.seeds))}"

    @property
    def caption(self) -> str:
        """How to read it."""
        axis = self.axes[0]
        whose = "honest clients (attackers do not count)" if self.attacked else "clients"
        around = "; ± is the standard deviation over seeds" if len(self.seeds) > 1 else ""
        return (
            f"mean over {whose} and seeds at the round chosen on validation data{around}; "
            f"in brackets: change against {axis.key}={axis.values[0]}"
        )

    @property
    def methods(self) -> list[str]:
        """In the order asked for."""
        return list(dict.fromkeys(outcome.method for outcome in self.outcomes))

    def lines(self) -> list[Line]:
        """Methods in the order given, and within each the values of the second key."""
        others = self.axes[1].values if len(self.axes) > 1 else (None,)
        return [Line(method, other, self._cells(method, other)) for method in self.methods for other in others]

    def _runs(self, method: str, value: Any, other: Any) -> list[Outcome]:
        values = (value,) if len(self.axes) == 1 else (value, other)
        return [o for o in self.outcomes if o.method == method and o.values == values]

    def _cells(self, method: str, other: Any) -> tuple[Cell, ...]:
        start: dict[int, float | None] = {}
        cells = []
        for value in self.axes[0].values:
            found = self._runs(method, value, other)
            means = {o.seed: None if o.summary is None else o.summary["mean"] for o in found}
            start = start or means
            sign = 1 if self.higher_is_better else -1
            pairs = [(start.get(seed), mean) for seed, mean in means.items()]
            drops = [None if old is None or new is None else sign * (old - new) for old, new in pairs]
            runs = tuple(o.summary for o in found if o.summary is not None)
            cells.append(Cell(_whole(means.values()), between(means.values()), _whole(drops), between(drops), runs))
        return tuple(cells)

    # --- as tables ----------------------------------------------------------------------------------------------

    def records(self) -> list[dict[str, Any]]:
        """A row for every method and set of values, for CSV and JSON."""
        measures = [*_MEASURES, *sorted({k for o in self.outcomes for k in o.summary or () if k.startswith("asr")})]
        rows, prices = [], Prices(self.outcomes, self.target, self.higher_is_better)
        for line in self.lines():
            for value, cell in zip(self.axes[0].values, line.cells, strict=True):
                row = {"method": line.method, self.axes[0].key: value}
                row |= {self.axes[1].key: line.other} if len(self.axes) > 1 else {}
                row |= {"seeds": len(cell.runs), "mean": cell.mean, "std_seeds": cell.spread, "drop": cell.drop}
                row |= {"drop_std": cell.drop_spread}
                whole = cell.mean is not None
                row |= {_COLUMNS.get(m, m): average(cell.runs, m) if whole else None for m in measures}
                runs = self._runs(line.method, value, line.other)
                interval = interval_of(runs, metric_bounds(self.first["metric"])) if whole else None
                row |= {"low": interval and interval[0], "high": interval and interval[1], **prices.of(runs)}
                rows.append(row)
        return rows

    def label(self, line: Line) -> str:
        """A curve's name."""
        return line.method if len(self.axes) == 1 else f"{line.method}, {self.axes[1].key}={line.other}"

    @property
    def header(self) -> list[str]:
        """Of `texts` and `cells`."""
        return [f"{self.axes[0].key}:", *map(str, self.axes[0].values)]

    def cells(self, newline: str = " ") -> list[list[Mark]]:
        """Rows as a person reads them: mean ± seeds (change); the best mean of a column marked."""
        lines, rows = self.lines(), []
        places = [
            ranks([line.cells[i].mean for line in lines], self.higher_is_better) for i in range(len(self.header) - 1)
        ]
        for number, line in enumerate(lines):
            row = [Mark(self.label(line))]
            for place, cell in enumerate(line.cells):
                text = "failed" if cell.mean is None else shown(cell.mean)
                around = f" ± {shown(cell.spread)}" if cell.mean is not None and cell.spread is not None else ""
                if place and cell.drop is not None:
                    change = (-cell.drop if self.higher_is_better else cell.drop) + 0.0  # no -0.00
                    around += f"{newline}({'+' if change > 0 else ''}{shown(change)})"
                row.append(Mark(text, around, places[place][number]))
            rows.append(row)
        return rows

    def texts(self, newline: str = " ") -> tuple[list[str], list[list[str]]]:
        """Header and rows without marks."""
        return self.header, [[str(cell) for cell in row] for row in self.cells(newline)]


_COLUMNS = {"std": "std_clients"}


def _whole(values: Iterable[float | None]) -> float | None:
    """The mean, unless a value is missing: a mean over the seeds that did well would flatter."""
    given = list(values)
    known = [value for value in given if value is not None]
    return statistics.fmean(known) if known and len(known) == len(given) else None
