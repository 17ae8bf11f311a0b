"""What a search looks like while it runs: a bar over all runs and a line for each that is training."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from panacea.cli.progress import say
from panacea.experiment.batch import STOPPED_EARLY, Finished, Job, Listener
from panacea.experiment.search.request import SearchRequest

__all__ = ["SearchProgress"]


class SearchProgress(Listener):
    """On standard error, only on a terminal. Shows validation metrics; test metrics are not looked at here."""

    _RATE = 4  # pictures a second

    def __init__(self, request: SearchRequest, quiet: bool) -> None:
        self.request, self.quiet = request, quiet
        self.console = Console(stderr=True)
        self.shown = not quiet and self.console.is_terminal
        self.bar = Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self.task: TaskID | None = None
        self.live = Live(console=self.console, transient=True, auto_refresh=False)
        self.jobs: list[Job] = []
        self.standing: dict[int, Mapping[str, Any]] = {}
        self.stage, self.said, self.drawn = 0, set[str](), 0.0

    def __enter__(self) -> SearchProgress:
        if self.shown:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.shown:
            self.live.stop()

    def on_start(self, jobs: Sequence[Job]) -> None:
        """A batch of runs begins: all settings up to the next rung."""
        self.stage += 1
        self.jobs, self.standing = list(jobs), {}
        if self.task is not None:
            self.bar.remove_task(self.task)
        self.task = self.bar.add_task(f"{self.request.name}: part {self.stage}, runs", total=len(jobs))
        self._draw(force=True)

    def on_progress(self, number: int, line: Mapping[str, Any]) -> None:
        """A run was evaluated."""
        self.standing[number] = line
        self._draw()

    def on_note(self, number: int, note: str) -> None:
        """Notes go above, once each."""
        if not self.quiet and note not in self.said:
            self.said.add(note)
            say(f"note: {note}")

    def on_finish(self, number: int, finished: Finished) -> None:
        """A run came to its end, or to the rung."""
        self.standing.pop(number, None)
        if self.task is not None:
            self.bar.advance(self.task)
        if finished.error not in (None, STOPPED_EARLY) and not self.quiet:
            say(f"note: {finished.job.label}: {finished.error}")
        self._draw()

    def _draw(self, force: bool = False) -> None:
        now = time.monotonic()
        if not self.shown or (not force and now - self.drawn < 1 / self._RATE):
            return
        self.drawn = now
        table = Table(box=None, padding=(0, 2))
        for column in ("training", "round", "validation"):
            table.add_column(column, justify="left" if column == "training" else "right")
        for number, line in sorted(self.standing.items()):
            value = line.get("val_mean")
            table.add_row(self.jobs[number].label, str(line["round"]), "-" if value is None else f"{value:.4g}")
        self.live.update(Group(self.bar, table), refresh=True)
