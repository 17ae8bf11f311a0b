"""The progress bar of a run, on standard error, only on a terminal."""

from __future__ import annotations

import sys
import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from panacea.core.round import Report
from panacea.experiment.experiment import Experiment
from panacea.experiment.rundir import RunDirectory
from panacea.experiment.runner import Callback

__all__ = ["ProgressBar", "say"]


def say(line: str) -> None:
    """A line for the person at the terminal: standard error, so that standard output stays clean."""
    print(line, file=sys.stderr)  # noqa: T201


class ProgressBar(Callback):
    """Current metric, rounds per second and time left."""

    def __init__(self, quiet: bool, label: str = "", said: set[str] | None = None) -> None:
        self.quiet, self.label = quiet, label
        self.said = set() if said is None else said  # notes are shown once, even over several runs
        self.console = Console(stderr=True)
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[metric]}"),
            TextColumn("{task.fields[speed]}"),
            TimeRemainingColumn(compact=True),
            console=self.console,
            transient=True,
            disable=quiet or not self.console.is_terminal,
        )
        self.task: TaskID | None = None

    def __enter__(self) -> ProgressBar:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def on_start(self, experiment: Experiment, directory: RunDirectory | None) -> None:
        """Begin at the round the run stands at."""
        name = self.label or f"{experiment.federation.title} {experiment.method.name} seed {experiment.config.seed}"
        self.first, self.started = experiment.state.round, time.perf_counter()
        if 0 < self.first < (experiment.config.rounds or 0) and not self.quiet:
            say(f"going on after round {self.first}")
        self.task = self.bar.add_task(name, total=experiment.config.rounds, completed=self.first, metric="", speed="")

    def on_round(self, experiment: Experiment, report: Report) -> None:
        """Advance."""
        if self.task is not None and not self.bar.disable:
            done = experiment.state.round - self.first
            speed = done / max(time.perf_counter() - self.started, 1e-9)
            self.bar.update(self.task, completed=experiment.state.round, speed=f"{speed:.1f} rounds/s")

    def on_evaluation(self, experiment: Experiment, line: dict[str, Any]) -> None:
        """Show the newest metric."""
        if self.task is not None and line["mean"] is not None:
            name = experiment.federation.task.metric
            self.bar.update(self.task, metric=f"{name} {line['mean']:.4g}")

    def on_end(self, experiment: Experiment, summary: dict[str, Any]) -> None:
        """Make room for the next run."""
        if self.task is not None:
            self.bar.remove_task(self.task)

    def on_note(self, note: str) -> None:
        """Notes go above the bar."""
        if not self.quiet and note not in self.said:
            self.said.add(note)
            say(f"note: {note}")
