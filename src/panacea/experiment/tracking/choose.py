"""The trackers a configuration asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from panacea.experiment.config import ExperimentConfig
from panacea.experiment.tracking.mlflow_tracker import MlflowTracker
from panacea.experiment.tracking.tensorboard_tracker import TensorBoardTracker
from panacea.experiment.tracking.tracker import Tracker
from panacea.experiment.tracking.wandb_tracker import WandbTracker

__all__ = ["TRACKERS", "require_packages", "trackers_of"]

TRACKERS: dict[str, type[Tracker]] = {
    tracker.key: tracker for tracker in (TensorBoardTracker, MlflowTracker, WandbTracker)
}
"""Every tracker, by its name in `track=`."""


def trackers_of(config: ExperimentConfig, say: Callable[[str], None] | None = None) -> list[Tracker]:
    """The callbacks of `track=`. They go last, after the one that writes the report, which they keep.

    Args:
        config: of the run.
        say: takes the one note of a tracker that failed; by default it becomes a warning.

    Raises:
        RequestError: a package is not installed.
    """
    return [TRACKERS[name](say=say) for name in config.track]


def require_packages(names: Iterable[str]) -> None:
    """Find out before anything is trained (or loaded) that a tracker's package is missing.

    Raises:
        RequestError: naming the package and how to install it.
    """
    for name in names:
        TRACKERS[name].require()
