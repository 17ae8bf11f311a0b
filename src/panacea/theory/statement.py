"""What a check returns: rows of numbers whose verdicts are computed, tables of rows, one finding per statement."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from panacea.core.random import Streams

__all__ = ["FAR", "Finding", "Floats", "Row", "Settings", "Table", "compare", "estimate", "off_by"]

Floats = npt.NDArray[np.float64]

FAR = 4.0  # standard errors beyond which a mean contradicts a formula: 6 in 100,000 by chance


@dataclass(frozen=True)
class Settings:
    """How thoroughly to check.

    Attributes:
        trials: Monte-Carlo draws of every mean.
        seed: of all random numbers.
        search: graphs with up to so many clients are searched exhaustively.
    """

    trials: int = 20_000
    seed: int = 0
    search: int = 5

    def stream(self, purpose: str) -> np.random.Generator:
        """The random numbers of one check."""
        return Streams(self.seed).numpy(f"theory {purpose}")


@dataclass(frozen=True)
class Row:
    """One case of a statement.

    Attributes:
        case: what is looked at.
        printed: the value by the paper as printed.
        corrected: the value by the corrected statement.
        measured: what comes out, by simulation, by gradient descent or by linear algebra.
        error: standard error of `measured`; None where it is not a mean.
        reference: a further value of the table (a bound, the risk of pFedHN).
        printed_holds: None where the printed statement says nothing about the case.
        holds: the corrected statement passes.
        verdict: in words.
    """

    case: str
    printed: float | None
    corrected: float | None
    measured: float | None = None
    error: float | None = None
    reference: float | None = None
    printed_holds: bool | None = None
    holds: bool = True
    verdict: str = ""

    @property
    def distance(self) -> float | None:
        """|measured - corrected| in standard errors."""
        if self.error is None or self.measured is None or self.corrected is None:
            return None
        return abs(self.measured - self.corrected) / self.error


@dataclass(frozen=True)
class Table:
    """Rows of one kind; `headings` names the columns that need a name of their own."""

    title: str
    rows: list[Row]
    headings: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Finding:
    """A statement with all its checks; `curves` is what the figures draw."""

    name: str
    title: str
    explanation: str
    tables: list[Table]
    curves: dict[str, list[float]] = field(default_factory=dict)

    @property
    def rows(self) -> Iterator[Row]:
        """All rows."""
        return (row for table in self.tables for row in table.rows)

    @property
    def holds(self) -> bool:
        """The corrected statement passes everywhere."""
        return all(row.holds for row in self.rows)

    @property
    def printed_holds(self) -> bool:
        """The statement as printed passes wherever it says something."""
        return all(row.printed_holds is not False for row in self.rows)

    def record(self) -> dict[str, Any]:
        """For JSON."""
        tables = [
            {"title": table.title, "rows": [{**vars(row), "distance": row.distance} for row in table.rows]}
            for table in self.tables
        ]
        head = {"name": self.name, "title": self.title, "explanation": self.explanation}
        return {**head, "printed_holds": self.printed_holds, "holds": self.holds, "tables": tables}


def estimate(samples: Floats) -> tuple[float, float]:
    """Mean and its standard error.

    >>> estimate(np.array([1.0, 3.0]))
    (2.0, 1.0)
    """
    return float(samples.mean()), float(samples.std(ddof=1) / np.sqrt(len(samples)))


def off_by(printed: float, right: float) -> str:
    """How far a printed formula is from the right value.

    >>> off_by(1.0, 2.75)
    'printed formula is 2.8x too low'
    >>> off_by(40, 20)
    'printed formula is 2.0x too high'
    """
    if printed <= 0 or right <= 0:
        return f"printed formula gives {printed:.3g} instead of {right:.3g}"
    ratio, word = (right / printed, "low") if right > printed else (printed / right, "high")
    return f"printed formula is {ratio:.{1 if ratio >= 1.1 else 2}f}x too {word}"


def compare(case: str, printed: float, corrected: float, samples: Floats, reference: float | None = None) -> Row:
    """A row from Monte-Carlo samples: either formula passes if the mean is less than `FAR` standard errors away."""
    mean, error = estimate(samples)
    printed_holds = abs(mean - printed) <= FAR * error
    holds = abs(mean - corrected) <= FAR * error
    if not holds:
        verdict = f"CORRECTED FORMULA FAILS: {abs(mean - corrected) / error:.1f} standard errors away"
    elif printed_holds:
        verdict = "holds"
    else:
        verdict = off_by(printed, corrected)
    return Row(case, printed, corrected, mean, error, reference, printed_holds, holds, verdict)
