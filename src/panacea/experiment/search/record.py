"""What runs left behind: their validation curves, and the search's own notes of which run is where."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from panacea.core.files import append_line, read_lines
from panacea.errors import RequestError
from panacea.experiment.batch import STOPPED_EARLY, Finished, Job, Listener
from panacea.experiment.config import WITHOUT_EFFECT, ExperimentConfig
from panacea.experiment.rundir import RunDirectory
from panacea.experiment.search.stopping import ranked

__all__ = ["Notes", "NotingListener", "Outcome", "has_diverged", "run_key", "validation_so_far"]


@dataclass(frozen=True)
class Outcome:
    """How far one run came.

    Attributes:
        score: best validation metric up to the round asked for; None before the first evaluation.
        loss: validation loss at that round.
        rounds: the last evaluated round, at most the one asked for.
        seconds: of training and evaluation up to there.
        error: why it cannot go on, if so.
        directory: where it is, once it is known.
        summary: of a finished run.
    """

    score: float | None = None
    loss: float = math.inf
    rounds: int = 0
    seconds: float = 0.0
    error: str | None = None
    directory: Path | None = None
    summary: Mapping[str, Any] | None = None


def validation_so_far(directory: Path, until: int | None, higher_is_better: bool) -> Outcome:
    """The best validation value of a run's evaluations up to a round (None: all), and what it cost to get there."""
    run, best, rounds = RunDirectory(directory), None, 0
    for line in read_lines(run.metrics, until):
        rounds = line["round"]
        if line["val_mean"] is not None:
            standing = (line["val_mean"], math.inf if line["val_loss"] is None else line["val_loss"])
            best = standing if ranked([best, standing], higher_is_better)[0] == 1 else best
    score, loss = best or (None, math.inf)
    seconds = sum(line["train"] + line.get("evaluate", 0.0) for line in read_lines(run.timings, until))
    summary = run.read_summary() if run.finished else None
    return Outcome(score, loss, rounds, seconds, None, directory, summary)


def run_key(config: ExperimentConfig) -> str:
    """Names a run before its data are loaded (its directory's name needs them)."""
    content = config.model_dump(mode="json", exclude=set(WITHOUT_EFFECT))
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


class Notes:
    """`runs.jsonl` in the folder of a search: the directory of every run begun, and the runs that diverged.

    With it a search that was stopped finds everything again without building a single experiment. It is a convenience:
    without the file, runs are found by their configuration, as always, and only the diverged ones are repeated.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "runs.jsonl"
        self.known: dict[str, dict[str, Any]] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for line in read_lines(self.path) if self._mended() else ():
                self.known[line["run"]] = line
        except OSError as error:
            raise RequestError(f"out: {folder} cannot be written ({error.strerror or error})") from error
        except (ValueError, KeyError, TypeError) as error:
            raise RequestError(f"{self.path} cannot be read; delete it, runs are found without it too") from error

    def _mended(self) -> bool:
        """Half a line, left by a kill, must not join the next one."""
        if not self.path.exists():
            return False
        content = self.path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:
            with self.path.open("r+b") as file:
                file.truncate(len(whole))
                os.fsync(file.fileno())
        return True

    def add(self, key: str, directory: Path, error: str | None) -> None:
        """A run's place, and why it ended if it did."""
        line = {"run": key, "directory": str(directory), "error": error, "round": 0}
        if self.known.get(key) != line:
            self.known[key] = line
            append_line(self.path, line)

    def find(self, key: str, until: int | None, higher_is_better: bool) -> Outcome | None:
        """What is known of a run, if that is enough: it is finished, has diverged, or came at least to `until`."""
        line = self.known.get(key)
        if line is None or not Path(line["directory"]).exists():
            return None
        found = validation_so_far(Path(line["directory"]), until, higher_is_better)
        if line["error"] is not None:
            return replace(found, error=line["error"])
        reached = found.summary is not None if until is None else found.rounds >= until
        return found if reached else None


def has_diverged(error: str | None) -> bool:
    """Whether a run ended because its numbers left the finite: another attempt would end the same way."""
    return error is not None and "diverged" in error  # the runner's word


class NotingListener(Listener):
    """Writes down each run as soon as it ends, so that a kill costs nothing that is done; passes all on to another."""

    def __init__(self, notes: Notes, keys: Sequence[str], outer: Listener | None) -> None:
        self.notes, self.keys, self.outer = notes, keys, outer or Listener()

    def on_start(self, jobs: Sequence[Job]) -> None:
        """Pass on."""
        self.outer.on_start(jobs)

    def on_progress(self, number: int, line: Mapping[str, Any]) -> None:
        """Pass on."""
        self.outer.on_progress(number, line)

    def on_note(self, number: int, note: str) -> None:
        """Pass on."""
        self.outer.on_note(number, note)

    def on_finish(self, number: int, finished: Finished) -> None:
        """Note what can be read again: a finished run, one stopped early, one that diverged."""
        error = finished.error if has_diverged(finished.error) else None
        if finished.summary is not None or finished.error == STOPPED_EARLY or error is not None:
            self.notes.add(self.keys[number], finished.directory, error)
        self.outer.on_finish(number, finished)
