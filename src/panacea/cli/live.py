"""A comparison while it runs: a row per method, on standard error, only on a terminal."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from panacea.cli.progress import say
from panacea.data.registry import find_dataset
from panacea.experiment.batch import Finished, Job, Listener
from panacea.experiment.planning import Plan

__all__ = ["LiveTable"]


@dataclass
class _Row:
    """A method's runs: the rounds of each, those done, its newest validation metric; seconds and rounds seen here."""

    total: dict[int, int] = field(default_factory=dict)
    done: dict[int, int] = field(default_factory=dict)
    newest: dict[int, float] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    failed: int = 0
    seconds: float = 0.0
    rounds: int = 0

    @property
    def left(self) -> int:
        """Rounds still to do."""
        return sum(rounds - self.done.get(n, 0) for n, rounds in self.total.items() if n not in self.ended)

    @property
    def rate(self) -> float | None:
        """Seconds per round of one run."""
        return self.seconds / self.rounds if self.rounds else None


class LiveTable(Listener):
    """Runs done, current round, validation metric and time left of every method."""

    def __init__(self, plan: Plan, quiet: bool) -> None:
        self.plan, self.quiet = plan, quiet
        self.said: set[str] = set()
        self.rows: dict[str, _Row] = {}
        self.before: dict[int, tuple[int, float]] = {}  # round and time of a run's line before
        self.active: set[int] = set()
        screen = Console(stderr=True)
        self.live = (
            Live(console=screen, transient=True, auto_refresh=False) if screen.is_terminal and not quiet else None
        )

    def __enter__(self) -> LiveTable:
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.stop()

    def on_start(self, jobs: Sequence[Job]) -> None:
        """An empty row for every method."""
        for number, run in enumerate(self.plan.runs):
            config = run.job.config
            rounds = config.rounds or find_dataset(config.data.name).defaults.rounds
            self.rows.setdefault(run.label, _Row()).total[number] = rounds
        self._show()

    def on_progress(self, number: int, line: Mapping[str, Any]) -> None:
        """A run was evaluated."""
        row, now = self.rows[self.plan.runs[number].label], time.monotonic()
        if number in self.before:
            round, then = self.before[number]
            row.seconds += now - then
            row.rounds += line["round"] - round
        self.before[number] = (line["round"], now)
        self.active.add(number)
        row.done[number] = line["round"]
        if line["val_mean"] is not None:
            row.newest[number] = line["val_mean"]
        self._show()

    def on_note(self, number: int, note: str) -> None:
        """Notes are shown once, even over several runs."""
        if not self.quiet and note not in self.said:
            self.said.add(note)
            self._say(f"note: {note}")

    def on_finish(self, number: int, finished: Finished) -> None:
        """A run ended; a failed one is named at once."""
        row = self.rows[self.plan.runs[number].label]
        row.ended.add(number)
        self.active.discard(number)
        if finished.error is not None:
            row.failed += 1
            if not self.quiet:
                self._say(f"note: {finished.job.label}: {finished.error}")
        self._show()

    def _say(self, line: str) -> None:
        if self.live is not None:
            self.live.console.print(line, markup=False, highlight=False)
        else:
            say(line)

    def _show(self) -> None:
        if self.live is not None:
            self.live.update(self.table(), refresh=True)

    def table(self) -> Table:
        """The rows as they are now."""
        table = Table(title="runs in progress", title_justify="left")
        table.add_column("method")
        for column in ("runs done", "round", "validation", "time left"):
            table.add_column(column, justify="right")
        busy = max(len(self.active), 1)
        for label, row in self.rows.items():
            running = [n for n in row.done if n not in row.ended]
            where = ", ".join(f"{row.done[n]}/{row.total[n]}" for n in running)
            newest = [row.newest[n] for n in row.newest]
            failed = f" ({row.failed} failed)" if row.failed else ""
            table.add_row(
                label,
                f"{len(row.ended)}/{len(row.total)}{failed}",
                where or ("" if row.left else "done"),
                f"{sum(newest) / len(newest):.4g}" if newest else "",
                _duration(self._seconds(row, busy)) if row.left else "",
            )
        known = [self._seconds(row, busy) for row in self.rows.values() if row.left]
        if known and None not in known:
            table.caption = f"about {_duration(sum(seconds or 0.0 for seconds in known))} left"
        return table

    def _seconds(self, row: _Row, busy: int) -> float | None:
        """Time left for a method on the processes at work; one not begun is taken to be as fast as the others."""
        rates = [row.rate] if row.rate else [other.rate for other in self.rows.values() if other.rate]
        return row.left * sum(rate or 0.0 for rate in rates) / len(rates) / busy if rates else None


def _duration(seconds: float | None) -> str:
    """Minutes and seconds.

    >>> _duration(75), _duration(3675), _duration(None)
    ('1:15', '1:01:15', '')
    """
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
