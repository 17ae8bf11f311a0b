"""What every tracker does: which numbers of a run it keeps, under which names, and what happens when it fails."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, ParamSpec

import numpy as np

import panacea
from panacea.core.files import read_lines
from panacea.errors import RequestError
from panacea.experiment.experiment import Experiment
from panacea.experiment.keys import flatten
from panacea.experiment.rundir import RunDirectory, commit, nested
from panacea.experiment.runner import Callback

__all__ = ["TrackedRun", "Tracker", "numbers_of"]

Given = ParamSpec("Given")


@dataclass(frozen=True)
class TrackedRun:
    """What a tracker is told when a run begins or goes on.

    Attributes:
        name: of the run's directory, ``fl60-fedavg-s0-1a2b3c``.
        directory: the run's own, None if it writes none.
        round: the last one that is done: 0 at the start, the checkpoint's after a stop.
        config: every key that has a value, flat: ``{"data": "fl60", "data.clients": 6, ...}``.
        tags: method, data, seed, commit and version.
        earlier: the numbers of every evaluation up to `round`, by round, from the run's own files.
    """

    name: str
    directory: RunDirectory | None
    round: int
    config: dict[str, Any]
    tags: dict[str, str]
    earlier: dict[int, dict[str, float]]


class Tracker(Callback):
    """Keeps a run's numbers where another program shows them; it never changes or stops the run.

    A tracker writes the numbers of every evaluation (`metrics/...`, as in `metrics.jsonl`), the time of training so far
    (`time/...`), the final summary (`summary/...`), the configuration and a few tags. Subclasses say how, in `begin`,
    `log`, `finish` and `close`. If one of these fails, the tracker says so once and is out; the run goes on.

    Args:
        folder: where to write; by default beside the run's other files.
        say: takes that one note; by default it becomes a warning.
    """

    key: ClassVar[str]
    packages: ClassVar[tuple[str, ...]]

    def __init__(self, folder: str | Path | None = None, *, say: Callable[[str], None] | None = None) -> None:
        self.require()
        self.folder = None if folder is None else Path(folder).expanduser()
        self.say = say
        self.directory: RunDirectory | None = None
        self.failed = self.complete = False

    @classmethod
    def require(cls) -> None:
        """Refuse if a package is missing; nothing is imported yet."""
        for package in cls.packages:
            if find_spec(package) is None:
                raise RequestError(
                    f"track={cls.key} needs {package}, which is not installed: pip install 'panacea-fl[tracking]'"
                )

    # --- what a subclass writes --------------------------------------------------------------------------------

    def begin(self, run: TrackedRun) -> None:
        """Open this tracker's run, or the one it had before a stop; nothing in it may come twice."""
        raise NotImplementedError

    def log(self, round: int, numbers: dict[str, float]) -> None:
        """Keep the numbers of one evaluation."""
        raise NotImplementedError

    def log_clients(self, round: int, values: dict[str, np.ndarray[Any, np.dtype[np.float64]]]) -> None:
        """Keep one value per client, where the tracker can show that."""

    def finish(self, numbers: dict[str, float], files: dict[str, Path]) -> None:
        """Keep the summary, and the files worth keeping, by their names in the run's directory."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of everything; `self.complete` says whether the run came to its end."""
        raise NotImplementedError

    # --- the callback ------------------------------------------------------------------------------------------

    def on_start(self, experiment: Experiment, directory: RunDirectory | None) -> None:
        """Begin, or go on."""
        if self.folder is None and directory is None:
            raise RequestError(f"track={self.key}: there is no folder to write to; give out=FOLDER")
        self.directory, self.failed, self.complete = directory, False, False
        self._guarded(lambda: self.begin(_tracked(experiment, directory)))

    def on_evaluation(self, experiment: Experiment, line: dict[str, Any]) -> None:
        """Keep its numbers."""
        round, history = int(line["round"]), experiment.history
        self._guarded(self.log, round, _line_numbers(line, history.numbers["train_seconds"]))
        if history.last is not None:
            values = {"metric": history.last.test.metric[history.honest], "novel_metric": history.last.novel.metric}
            finite = {name: kept for name, all in values.items() if len(kept := all[np.isfinite(all)])}
            self._guarded(self.log_clients, round, finite)

    def on_end(self, experiment: Experiment, summary: dict[str, Any]) -> None:
        """Keep the summary and the files."""
        self._guarded(lambda: self.finish(numbers_of("summary", summary), _files(self.directory)))
        self.complete = True

    def on_close(self) -> None:
        """Close also where the run failed or was interrupted."""
        if self.failed:
            with suppress(Exception):  # said already
                self.close()
        else:
            self._guarded(self.close)

    def _guarded(self, step: Callable[Given, None], *given: Given.args, **named: Given.kwargs) -> None:
        if self.failed:
            return
        try:
            step(*given, **named)
        except Exception as error:
            self.failed = True
            why = " ".join(str(error).split()) or type(error).__name__
            note = f"{self.key} failed and keeps no more of this run, which goes on: {why[:300]}"
            if self.say is None:
                warnings.warn(note, stacklevel=2)
            else:
                self.say(note)


def numbers_of(group: str, values: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers among some values, named ``group/key``.

    >>> numbers_of("metrics", {"round": 10, "mean": 0.5, "novel_mean": None, "method": "fedavg", "ok": True})
    {'metrics/mean': 0.5}
    """
    return {
        f"{group}/{key}": float(value)
        for key, value in values.items()
        if key != "round" and isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }


def _line_numbers(line: Mapping[str, Any], seconds: float) -> dict[str, float]:
    """A line of `metrics.jsonl`, and the seconds of training up to it."""
    time = {"train_seconds": seconds, "rounds_per_second": line["round"] / seconds if seconds else None}
    return numbers_of("metrics", line) | numbers_of("time", time)


def _tracked(experiment: Experiment, directory: RunDirectory | None) -> TrackedRun:
    config, method = experiment.config, experiment.method.name
    tags = {"method": method, "data": config.data.name, "seed": config.seed, "attack": config.attack.name}
    tags |= {"defence": config.defence.name, "commit": commit(), "version": panacea.__version__}
    return TrackedRun(
        name=RunDirectory.of(config, method).path.name if directory is None else directory.path.name,
        directory=directory,
        round=experiment.state.round,
        config={key: value for key, value in flatten(nested(config)).items() if value is not None},
        tags={key: str(value) for key, value in tags.items() if value is not None},
        earlier={} if directory is None else _earlier(directory, experiment.state.round),
    )


def _earlier(directory: RunDirectory, round: int) -> dict[int, dict[str, float]]:
    """What was evaluated before a stop."""
    timings = read_lines(directory.timings, round)
    lines = read_lines(directory.metrics, round)
    spent = {line["round"]: sum(t["train"] for t in timings if t["round"] <= line["round"]) for line in lines}
    return {line["round"]: _line_numbers(line, spent[line["round"]]) for line in lines}


def _files(directory: RunDirectory | None) -> dict[str, Path]:
    """What a person may want to open from the tracker's own pages."""
    if directory is None:
        return {}
    single = (directory.report, directory.config_file, directory.summary, directory.clients)
    paths = [path for path in (*single, *sorted(directory.figures.glob("*"))) if path.is_file()]
    return {str(path.relative_to(directory.path)): path for path in paths}
