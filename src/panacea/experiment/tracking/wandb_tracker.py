"""A run's numbers as an offline run of Weights & Biases."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from panacea.experiment.tracking.tracker import TrackedRun, Tracker

if TYPE_CHECKING:
    import wandb

__all__ = ["WandbTracker"]

_LONGEST_TAG = 64


class WandbTracker(Tracker):
    """History, summary, configuration, tags and files in ``<run directory>/wandb/offline-run-*``; nothing is sent.

    A run has one offline folder. After a stop it is written anew, under the same W&B id, from the run's own files,
    which lose nothing: W&B cannot go on with an offline run. `wandb sync FOLDER` sends it when you want that.
    Only where you set `WANDB_MODE` yourself is that mode used. `WANDB_PROJECT` counts where it is set.

    Args:
        folder: the `wandb` folder goes into ``<folder>/<name of the run>``; by default into the run's directory.
        project: W&B's name for a group of runs.
        say: takes the one note if W&B fails; by default it becomes a warning.
    """

    key = "wandb"
    packages = ("wandb",)

    run: wandb.Run | None = None

    def __init__(
        self, folder: str | Path | None = None, *, project: str = "panacea", say: Callable[[str], None] | None = None
    ) -> None:
        super().__init__(folder, say=say)
        self.project = project

    def begin(self, run: TrackedRun) -> None:
        """Start W&B's service, and write what was evaluated before a stop."""
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # W&B reports its own errors over the network
        import wandb  # noqa: PLC0415

        mode = os.environ.get("WANDB_MODE") or "offline"
        path = (self.folder or Path()) / run.name if run.directory is None or self.folder else run.directory.path
        path.mkdir(parents=True, exist_ok=True)
        old = [] if run.directory is None else _earlier_folders(path / "wandb")
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", self.project),
            name=run.name,
            id=old[-1].name.rpartition("-")[2] if old else None,
            dir=str(path),
            mode=cast(Any, mode),
            resume="allow" if mode == "online" else None,
            reinit="create_new",
            config={**run.config, **{f"run.{key}": value for key, value in run.tags.items()}},
            tags=[f"{key}={value}"[:_LONGEST_TAG] for key, value in run.tags.items()],
            settings=wandb.Settings(
                silent=True, console="off", disable_git=True, save_code=False, x_disable_stats=True
            ),
        )
        for round, numbers in run.earlier.items():
            self.log(round, numbers)
        for folder in old if mode == "offline" else ():
            if folder.name.startswith("replaced-"):
                shutil.rmtree(folder)

    def log(self, round: int, numbers: dict[str, float]) -> None:
        """One step of the history."""
        if self.run is not None:
            self.run.log(numbers, step=round)

    def finish(self, numbers: dict[str, float], files: dict[str, Path]) -> None:
        """The summary, and copies of the files."""
        if self.run is not None:
            self.run.summary.update(numbers)
            for name, path in files.items():
                copy = Path(self.run.dir) / name
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)  # otherwise W&B links it, and says so for every file
                self.run.save(str(copy), base_path=self.run.dir, policy="now")

    def close(self) -> None:
        """End W&B's run."""
        run, self.run = self.run, None
        if run is not None:
            run.finish(exit_code=0 if self.complete else 1)


def _earlier_folders(folder: Path) -> list[Path]:
    """Where this run was written before, oldest first; offline ones are put aside, for they are written anew."""
    found = sorted(folder.glob("*run-*_*-*"), key=lambda path: path.name.removeprefix("replaced-"))
    return [
        path.rename(path.with_name(f"replaced-{path.name}")) if path.name.startswith("offline-run-") else path
        for path in found
    ]
