"""What a search looks like while it runs: a bar over the runs of its present part, a line for each that is training."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from panacea.cli.live import LivePicture
from panacea.experiment.batch import STOPPED_EARLY, Finished, Job
from panacea.experiment.search.request import SearchRequest

__all__ = ["SearchProgress"]


class SearchProgress(LivePicture):
    """Shows validation metrics; test metrics are not looked at here. A part is a batch of settings up to a rung."""

    _RATE = 4  # pictures a second

    def __init__(self, request: SearchRequest, quiet: bool) -> None:
        super().__init__(quiet)
        self.request = request
        self.bar = Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self.task: TaskID | None = None
        self.jobs: list[Job] = []
        self.standing: dict[int, Mapping[str, Any]] = {}
        self.part, self.drawn = 0, 0.0

    def on_start(self, jobs: Sequence[Job]) -> None:
        """A part begins."""
        self.part += 1
        self.jobs, self.standing = list(jobs), {}
        if self.task is not None:
            self.bar.remove_task(self.task)
        self.task = self.bar.add_task(f"{self.request.name}: part {self.part}, runs", total=len(jobs))
        self._draw(force=True)

    def on_progress(self, number: int, line: Mapping[str, Any]) -> None:
        """A run was evaluated."""
        self.standing[number] = line
        self._draw()

    def on_finish(self, number: int, finished: Finished) -> None:
        """A run came to its end, or to the rung."""
        self.standing.pop(number, None)
        if self.task is not None:
            self.bar.advance(self.task)
        if finished.error not in (None, STOPPED_EARLY) and not self.quiet:
            self.say(f"note: {finished.job.label}: {finished.error}")
        self._draw()

    def _draw(self, force: bool = False) -> None:
        now = time.monotonic()
        if self.live is None or (not force and now - self.drawn < 1 / self._RATE):
            return
        self.drawn = now
        table = Table(box=None, padding=(0, 2))
        for column in ("training", "round", "validation"):
            table.add_column(column, justify="left" if column == "training" else "right")
        for number, line in sorted(self.standing.items()):
            value = line.get("val_mean")
            table.add_row(self.jobs[number].label, str(line["round"]), "-" if value is None else f"{value:.4g}")
        self.live.update(Group(self.bar, table), refresh=True)
