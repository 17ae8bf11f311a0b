"""A comparison in Python: its tables as pandas frames, and its files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from panacea.experiment.comparison import Results
from panacea.report.comparison import write_comparison

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Comparison"]


class Comparison:
    """Several methods on several seeds, perhaps with a varied key.

    Attributes:
        folder: where the runs and tables are; None if nothing was kept.
    """

    def __init__(self, results: Results, folder: Path | None) -> None:
        self._results, self.folder = results, folder

    def __repr__(self) -> str:
        return f"Comparison({self._results.table.title})"

    @property
    def summaries(self) -> list[dict[str, Any]]:
        """The summaries of all runs that came to their end."""
        return [dict(outcome.summary) for outcome in self._results.outcomes if outcome.summary is not None]

    @property
    def failures(self) -> list[str]:
        """A line for every run that failed."""
        return self._results.failures

    def table(self) -> pd.DataFrame:
        """One row per method (and value of a varied key).

        Mean over clients and seeds, its spread over clients and over seeds, the ends `low` and `high` of a 95 %
        bootstrap interval, worst decile, novel clients, bytes to the target, rounds to 90 %, seconds.
        """
        return _frame(self._results.table.records())

    def tests(self) -> pd.DataFrame:
        """Paired Wilcoxon tests over clients between every two methods, with Holm's correction and effect sizes."""
        return _frame(self._results.test_records())

    def clients(self) -> pd.DataFrame:
        """One row per run and client: what averages and tests are made of."""
        return _frame(self._results.client_records())

    def latex(self) -> str:
        """The table for a paper: booktabs, best bold, second underlined."""
        return self._results.latex()

    def markdown(self) -> str:
        """The table in Markdown."""
        return self._results.markdown()

    def save(self, folder: str | Path) -> Path:
        """Write tables (CSV, Markdown, LaTeX, JSON), tests, clients and a figure into a folder."""
        write_comparison(self._results, Path(folder))
        return Path(folder)


def _frame(records: list[dict[str, Any]]) -> pd.DataFrame:
    import pandas as pd  # noqa: PLC0415

    return pd.DataFrame(records)
