"""A comparison from its plan to its tables: run what is not there yet, read the rest, test every pair."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from panacea.errors import RunFailure
from panacea.experiment.batch import Given, Listener, run_batch
from panacea.experiment.formats import Mark, latex_table, marked_markdown
from panacea.experiment.outcome import Outcome, read_outcome
from panacea.experiment.plain_table import PLAIN_HEADER, Plain
from panacea.experiment.planning import Plan
from panacea.experiment.significance import TEST_TEXT, Compared, compare_pairs
from panacea.experiment.sweep_table import Swept
from panacea.experiment.table import decimals_of, fixed

__all__ = ["Results", "run_comparison"]

_RUN_COLUMNS = ("mean", "std", "final_mean", "worst_decile", "all_mean", "attackers_mean", "novel_mean")


@dataclass(frozen=True)
class Results:
    """All runs of a comparison, and what they say together.

    Attributes:
        plan: what was asked for.
        outcomes: what became of every run, in the order of the plan.
    """

    plan: Plan
    outcomes: tuple[Outcome, ...]

    @cached_property
    def table(self) -> Plain | Swept:
        """Methods down, and with a varied key its values across."""
        plan = self.plan
        if plan.axes:
            return Swept(plan.axes, self.outcomes, plan.request, plan.target)
        return Plain(self.outcomes, plan.target)

    @property
    def header(self) -> list[str]:
        """Of `cells`."""
        return list(PLAIN_HEADER) if isinstance(self.table, Plain) else self.table.header

    @cached_property
    def tests(self) -> list[Compared]:
        """Every two methods."""
        return compare_pairs(self.outcomes)

    @property
    def failures(self) -> list[str]:
        """A line for every run that failed."""
        pairs = zip(self.plan.runs, self.outcomes, strict=True)
        return [f"{run.job.label}: {outcome.error}" for run, outcome in pairs if outcome.error is not None]

    @property
    def keys(self) -> list[str]:
        """The varied ones."""
        return [axis.key for axis in self.plan.axes]

    def _places(self, outcome: Outcome) -> dict[str, Any]:
        return {"method": outcome.method, **dict(zip(self.keys, outcome.values, strict=True)), "seed": outcome.seed}

    # --- rows for files and JSON ----------------------------------------------------------------------------------

    def run_records(self) -> list[dict[str, Any]]:
        """A row per run, with its directory."""
        return [
            {
                **self._places(outcome),
                "data_seed": outcome.data_seed,
                **{column: (outcome.summary or {}).get(column) for column in _RUN_COLUMNS},
                "directory": str(outcome.directory),
                "error": outcome.error,
            }
            for outcome in self.outcomes
        ]

    def client_records(self) -> list[dict[str, Any]]:
        """A row per run and client: what averages and tests are made of."""
        return [
            {
                **self._places(outcome),
                "data_seed": outcome.data_seed,
                "client": int(who.number[i]),
                "novel": int(who.novel[i]),
                "malicious": int(who.malicious[i]),
                "metric": float(who.metric[i]),
            }
            for outcome in self.outcomes
            if (who := outcome.clients) is not None
            for i in range(len(who.number))
        ]

    def test_records(self) -> list[dict[str, Any]]:
        """A row per pair of methods."""
        return [test.record(self.keys) for test in self.tests]

    def content(self) -> dict[str, Any]:
        """Everything but the clients, as one JSON object."""
        first = next(outcome.summary for outcome in self.outcomes if outcome.summary is not None)
        runs = [
            {**self._places(o), **o.summary, "data_seed": o.data_seed, "directory": str(o.directory)}
            for o in self.outcomes
            if o.summary is not None
        ]
        return {
            "data": first["data"],
            "partial": first.get("partial", ""),
            "request": self.plan.request,
            "title": self.table.title,
            "caption": self.table.caption,
            "tuned": self.plan.tuned,
            "varied": [{"key": axis.key, "values": list(axis.values)} for axis in self.plan.axes],
            "target": self.plan.target,
            "table": self.table.records(),
            "tests": self.test_records(),
            "runs": runs,
            "failed": self.failures,
        }

    # --- tables for people ----------------------------------------------------------------------------------------

    @property
    def caption(self) -> str:
        """How to read a table that stands alone."""
        marks = " Best bold, second underlined." if len(self.table.methods) > 1 else ""
        tests = f" {TEST_TEXT[0].upper()}{TEST_TEXT[1:]} are in tests.csv." if self.tests else ""
        tuned = f" {self.plan.tuned[0].upper()}{self.plan.tuned[1:]}." if self.plan.tuned else ""
        return f"{self.table.caption[0].upper()}{self.table.caption[1:]}.{tuned}{marks}{tests}"

    def markdown(self) -> str:
        """The table with title and caption."""
        return f"**{self.table.title}**\n\n{marked_markdown(self.header, self.table.cells())}\n{self.caption}\n"

    def latex(self) -> str:
        """The table with the rules of booktabs."""
        return latex_table(self.header, self.table.cells(), f"{self.table.title}. {self.caption}")

    @property
    def test_header(self) -> list[str]:
        """Of `test_cells`."""
        header = ["first", "second", *self.keys, "pairs", "median difference", "effect", "p", "p (Holm)"]
        return [*header, "note"] if any(one.note for one in self.tests) else header

    def test_cells(self) -> list[list[Mark]]:
        """A row per pair of methods; p below 0.05 after the correction is bold."""
        rows, decimals = [], decimals_of(one.test.median for one in self.tests if one.test is not None)
        for one in self.tests:
            numbers = ["0", "-", "-", "-"]
            if one.test is not None:
                test = one.test
                numbers = [str(test.pairs), fixed(test.median, decimals), f"{test.effect:.2f}", _p_text(test.p)]
            corrected = Mark(_p_text(one.corrected), rank=int(one.corrected is not None and one.corrected < 0.05))
            texts = [one.first, one.second, *map(str, one.values), *numbers]
            rows.append([*map(Mark, texts), corrected, Mark(one.note)][: len(self.test_header)])
        return rows

    @property
    def test_caption(self) -> str:
        """How to read the tests."""
        return (
            f"{TEST_TEXT}; median of first - second; effect: rank-biserial correlation, 1 if the first is always larger"
        )

    def tests_markdown(self) -> str:
        """The tests with title and caption."""
        caption = f"{self.test_caption[0].upper()}{self.test_caption[1:]}."
        return f"**{self.table.title}**\n\n{marked_markdown(self.test_header, self.test_cells())}\n{caption}\n"


def _p_text(p: float | None) -> str:
    if p is None:
        return "-"
    return "<1e-4" if p < 1e-4 else f"{p:.2g}" if p < 0.1 else f"{p:.2f}"


def run_comparison(
    plan: Plan,
    *,
    workers: int | None = None,
    listener: Listener | None = None,
    pages: bool = True,
    given: Given | None = None,
    cluster: str | None = None,
) -> Results:
    """Run what is not there yet and read everything; see `run_batch`.

    Raises:
        RunFailure: not a single run came to its end.
    """
    jobs = [run.job for run in plan.runs]
    finished = run_batch(jobs, workers=workers, listener=listener, pages=pages, given=given, cluster=cluster)
    same = 0 if given is not None and given.federation is not None else None  # one federation for all seeds
    outcomes = [read_outcome(run, one, same) for run, one in zip(plan.runs, finished, strict=True)]
    results = Results(plan, tuple(outcomes))
    if all(outcome.summary is None for outcome in outcomes):
        raise RunFailure(f"every run failed; the first: {results.failures[0]}")
    return results
