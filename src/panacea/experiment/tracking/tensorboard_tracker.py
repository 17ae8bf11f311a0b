"""A run's numbers as TensorBoard event files."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Any

import numpy as np

from panacea.experiment.table import markdown_table
from panacea.experiment.tracking.tracker import TrackedRun, Tracker

__all__ = ["TensorBoardTracker"]

_PREFIX = "events.out.tfevents."
_BINS = "auto"
"""NumPy's choice by the values: clients' accuracies are percentages, for which TensorBoard's own bins are coarse."""


class TensorBoardTracker(Tracker):
    """Scalars, a histogram over clients per evaluation, the configuration as text, and a row of the HPARAMS page.

    Written to ``<run directory>/tensorboard``, or to ``<folder>/<name of the run>``. After a stop the run goes on in
    a new file of the same folder, whose first event tells TensorBoard to forget every step after the checkpoint: what
    is trained again is shown once. A run that begins anew loses its old files.
    """

    key = "tensorboard"
    packages = ("tensorboard",)

    file: _EventFile | None = None

    def begin(self, run: TrackedRun) -> None:
        """Open a file; where there was none, earlier evaluations are taken from the run's own files."""
        from torch.utils.tensorboard import summary  # noqa: PLC0415

        self.run, path = run, self._path(run)
        path.mkdir(parents=True, exist_ok=True)
        old = sorted(path.glob(f"{_PREFIX}*"))
        if run.round == 0:
            for file in old:
                file.unlink()
            old = []
        self.file = _EventFile(path, old, run.round + 1)
        if not old:
            rows = [[key, f"`{value}`"] for key, value in (run.tags | run.config).items()]
            self.file.add(summary.text("configuration", markdown_table(["key", "value"], rows)), 0)
            for round, numbers in run.earlier.items():
                self.log(round, numbers)

    def log(self, round: int, numbers: dict[str, float]) -> None:
        """One scalar each."""
        from torch.utils.tensorboard import summary  # noqa: PLC0415

        if self.file is not None:
            for name, value in numbers.items():
                self.file.add(summary.scalar(name, value), round)
            self.file.flush()  # a checkpoint must not be ahead of the file

    def log_clients(self, round: int, values: dict[str, np.ndarray[Any, np.dtype[np.float64]]]) -> None:
        """A histogram over clients."""
        from torch.utils.tensorboard import summary  # noqa: PLC0415

        if self.file is not None:
            for name, array in values.items():
                self.file.add(summary.histogram(f"clients/{name}", array, _BINS), round)
            self.file.flush()

    def finish(self, numbers: dict[str, float], files: dict[str, Path]) -> None:
        """The summary, and a row of the HPARAMS page; files stay in the run's directory."""
        from torch.utils.tensorboard import summary  # noqa: PLC0415

        if self.file is not None:
            plain = {k: v if isinstance(v, bool | int | float) else str(v) for k, v in self.run.config.items()}
            for part in summary.hparams(plain, numbers):
                self.file.add(part, 0)
            self.log(int(self.run.config["rounds"]), numbers)

    def close(self) -> None:
        """Close the file."""
        file, self.file = self.file, None
        if file is not None:
            file.close()

    def _path(self, run: TrackedRun) -> Path:
        if self.folder is not None or run.directory is None:
            return (self.folder or Path()) / run.name
        return run.directory.path / "tensorboard"


class _EventFile:
    """Events written at once. TensorBoard's own writer has a thread, which prints a traceback when the disk is full."""

    def __init__(self, folder: Path, old: list[Path], first_round: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog  # noqa: PLC0415
        from tensorboard.summary.writer.record_writer import RecordWriter  # noqa: PLC0415

        self.event = Event
        times = [int(path.name.removeprefix(_PREFIX).partition(".")[0]) for path in old]
        number = max([int(time.time()), *(one + 1 for one in times)])  # files are read in the order of their names
        name = f"{_PREFIX}{number:010d}.{socket.gethostname()}.{os.getpid()}.0"
        self.file = (folder / name).open("wb")
        self.records = RecordWriter(self.file)
        self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))
        if old:
            start = SessionLog(status=SessionLog.START)
            self._write(Event(wall_time=time.time(), step=first_round, session_log=start))
        self.flush()

    def add(self, summary: Any, round: int) -> None:
        """One summary of one round."""
        self._write(self.event(wall_time=time.time(), step=round, summary=summary))

    def flush(self) -> None:
        """Hand over to the operating system, which keeps it also after a kill."""
        self.file.flush()

    def close(self) -> None:
        """Write the rest."""
        self.file.close()

    def _write(self, event: Any) -> None:
        self.records.write(event.SerializeToString())
