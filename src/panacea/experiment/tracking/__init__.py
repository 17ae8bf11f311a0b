"""Runs in TensorBoard, MLflow and Weights & Biases: `track=tensorboard,mlflow`, or callbacks from Python."""

from panacea.experiment.tracking.choose import require_packages, trackers_of
from panacea.experiment.tracking.mlflow_tracker import MlflowTracker
from panacea.experiment.tracking.tensorboard_tracker import TensorBoardTracker
from panacea.experiment.tracking.tracker import Tracker
from panacea.experiment.tracking.wandb_tracker import WandbTracker

__all__ = ["MlflowTracker", "TensorBoardTracker", "Tracker", "WandbTracker", "require_packages", "trackers_of"]
