"""A run's numbers as TensorBoard event files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from panacea.experiment.table import markdown_table
from panacea.experiment.tracking.tracker import TrackedRun, Tracker

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

__all__ = ["TensorBoardTracker"]

_EVENTS = "events.out.tfevents.*"


class TensorBoardTracker(Tracker):
    """Scalars, a histogram over clients per evaluation, the configuration as text, and a row of the HPARAMS page.

    Written to ``<run directory>/tensorboard``, or to ``<folder>/<name of the run>``. After a stop the run goes on in
    a new file of the same folder. Its first event tells TensorBoard to forget every step after the checkpoint
    (`purge_step`), so what is trained again is shown once. A run that begins anew loses its old files.
    """

    key = "tensorboard"
    packages = ("tensorboard",)

    writer: SummaryWriter | None = None

    def begin(self, run: TrackedRun) -> None:
        """Open a file; earlier evaluations that no file has are taken from the run's own."""
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415

        self.run, path = run, self._path(run)
        files = list(path.glob(_EVENTS))
        if run.round == 0:
            for file in files:
                file.unlink()
            files = []
        self.writer = SummaryWriter(str(path), purge_step=run.round + 1 if files else None)
        if not files:
            rows = [[key, f"`{value}`"] for key, value in (run.tags | run.config).items()]
            self.writer.add_text("configuration", markdown_table(["key", "value"], rows), 0)
            for round, numbers in run.earlier.items():
                self._scalars(self.writer, round, numbers)
        self.writer.flush()

    def log(self, round: int, numbers: dict[str, float]) -> None:
        """One scalar each; flushed, so that no checkpoint is ahead of the file."""
        if self.writer is not None:
            self._scalars(self.writer, round, numbers)
            self.writer.flush()

    def log_clients(self, round: int, values: dict[str, np.ndarray[Any, np.dtype[np.float64]]]) -> None:
        """A histogram over clients."""
        if self.writer is not None:
            for name, array in values.items():
                self.writer.add_histogram(f"clients/{name}", array, round)
            self.writer.flush()

    def finish(self, numbers: dict[str, float], files: dict[str, Path]) -> None:
        """A row of the HPARAMS page: the configuration and the summary; files stay in the run's directory."""
        if self.writer is not None:
            plain = {k: v if isinstance(v, bool | int | float) else str(v) for k, v in self.run.config.items()}
            self.writer.add_hparams(plain, numbers, run_name=".", global_step=self.run.config["rounds"])

    def close(self) -> None:
        """Close the file."""
        writer, self.writer = self.writer, None
        if writer is not None:
            writer.close()

    def _path(self, run: TrackedRun) -> Path:
        if self.folder is not None or run.directory is None:
            return (self.folder or Path()) / run.name
        return run.directory.path / "tensorboard"

    def _scalars(self, writer: SummaryWriter, round: int, numbers: dict[str, float]) -> None:
        for name, value in numbers.items():
            writer.add_scalar(name, value, round)
