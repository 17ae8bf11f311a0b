"""A run's numbers in a local MLflow store."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from panacea.core.files import write_json
from panacea.experiment.tracking.tracker import TrackedRun, Tracker

if TYPE_CHECKING:
    from mlflow import MlflowClient

__all__ = ["MlflowTracker"]

_QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_LOGGING_LEVEL": "WARNING"}
"""Without the first, MLflow reports its use over the network; it is read when MLflow is imported."""
_EVERY = 2.0
"""Seconds between writes: a transaction takes longer than an evaluation of small models."""
_MOST_METRICS, _MOST_PARAMS, _LONGEST = 1000, 100, 6000
"""MLflow's own limits of one call and of one value."""


class MlflowTracker(Tracker):
    """Metrics, parameters, tags and artefacts (report, figures, tables) in ``<out>/mlflow.db`` and ``<out>/mlruns``.

    The run's directory remembers which MLflow run is its own (`mlflow.json`). After a stop that one goes on: rounds it
    has are not written again (a resumed run gives the same numbers), rounds it lacks are taken from the run's own
    files. `MLFLOW_TRACKING_URI` and `MLFLOW_EXPERIMENT_NAME` count where they are set.

    Args:
        folder: where `mlflow.db` and `mlruns` go; by default the folder that holds the run's directory.
        experiment: MLflow's name for a group of runs.
        say: takes the one note if MLflow fails; by default it becomes a warning.
    """

    key = "mlflow"
    packages = ("mlflow", "sqlalchemy", "alembic")

    def __init__(
        self, folder: str | Path | None = None, *, experiment: str = "panacea", say: Callable[[str], None] | None = None
    ) -> None:
        super().__init__(folder, say=say)
        self.experiment = experiment

    def begin(self, run: TrackedRun) -> None:
        """Open the store, and the run in it."""
        folder = self.folder or (Path() if run.directory is None else run.directory.path.parent)
        if self.say is not None and "MLFLOW_TRACKING_URI" not in os.environ and not (folder / "mlflow.db").exists():
            self.say(f"mlflow makes {folder / 'mlflow.db'}, which takes some seconds, once")
        self.client = _open_store(folder.absolute())
        self.run_id = self._own_run(run, folder.absolute())
        self.known = {metric.step for metric in self.client.get_metric_history(self.run_id, "time/train_seconds")}
        self.waiting: dict[int, tuple[int, dict[str, float]]] = {}
        self.written = time.monotonic()
        for round, numbers in run.earlier.items():
            self.log(round, numbers)

    def log(self, round: int, numbers: dict[str, float]) -> None:
        """Keep for the next write, unless MLflow has it."""
        if round not in self.known:
            self.known.add(round)
            self.waiting[round] = (_now(), numbers)
        if time.monotonic() - self.written > _EVERY:
            self._write()

    def finish(self, numbers: dict[str, float], files: dict[str, Path]) -> None:
        """The summary as metrics of the last round, the files as artefacts."""
        from mlflow.entities import Metric  # noqa: PLC0415

        self._write()
        self.client.log_batch(self.run_id, [Metric(name, value, _now(), 0) for name, value in numbers.items()])
        for name, path in files.items():
            parent = str(Path(name).parent)
            self.client.log_artifact(self.run_id, str(path), None if parent == "." else parent)

    def close(self) -> None:
        """Write what waits; then the run is finished, or can be resumed."""
        self._write()
        self.client.set_terminated(self.run_id, "FINISHED" if self.complete else "KILLED")

    def _write(self) -> None:
        """All that waits, in as few transactions as the limit of one allows; no evaluation is split between two."""
        from mlflow.entities import Metric  # noqa: PLC0415

        batch: list[Metric] = []
        for round, (when, numbers) in self.waiting.items():
            if len(batch) + len(numbers) > _MOST_METRICS:
                self.client.log_batch(self.run_id, batch)
                batch = []
            batch += [Metric(name, value, when, round) for name, value in numbers.items()]
        if batch:
            self.client.log_batch(self.run_id, batch)
        self.waiting, self.written = {}, time.monotonic()

    def _own_run(self, run: TrackedRun, folder: Path) -> str:
        """The MLflow run of this run's directory, or a new one."""
        from mlflow.entities import Param  # noqa: PLC0415

        memory = None if run.directory is None else run.directory.path / "mlflow.json"
        if memory is not None and memory.exists():
            found = str(json.loads(memory.read_text(encoding="utf-8"))["run_id"])
            if self._is_there(found):
                self.client.update_run(found, "RUNNING")
                return found
        created = self.client.create_run(self._experiment_id(folder), tags=run.tags, run_name=run.name)
        run_id = str(created.info.run_id)
        params = [Param(key, str(value)[:_LONGEST]) for key, value in run.config.items()]
        for start in range(0, len(params), _MOST_PARAMS):
            self.client.log_batch(run_id, params=params[start : start + _MOST_PARAMS])
        if memory is not None:
            write_json(memory, {"run_id": run_id})
        return run_id

    def _is_there(self, run_id: str) -> bool:
        """Whether the store has a run; it may have been deleted, or be another store than last time."""
        from mlflow import MlflowException  # noqa: PLC0415

        try:
            return bool(self.client.get_run(run_id).info.lifecycle_stage == "active")
        except MlflowException:
            return False

    def _experiment_id(self, folder: Path) -> str:
        from mlflow import MlflowException  # noqa: PLC0415

        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", self.experiment)
        place = None if "MLFLOW_TRACKING_URI" in os.environ else (folder / "mlruns").as_uri()
        found = self.client.get_experiment_by_name(name)
        if found is None:
            try:
                return str(self.client.create_experiment(name, artifact_location=place))
            except MlflowException:  # another process of a comparison was faster
                found = self.client.get_experiment_by_name(name)
                if found is None:
                    raise
        return str(found.experiment_id)


def _open_store(folder: Path) -> MlflowClient:
    """The local data base, made where there is none; or the store that the user's environment names."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient  # noqa: PLC0415

    own = os.environ.get("MLFLOW_TRACKING_URI")
    if own is not None:
        return MlflowClient(tracking_uri=own)
    folder.mkdir(parents=True, exist_ok=True)
    base, part = folder / "mlflow.db", folder / ".mlflow.db.part"
    with (folder / ".mlflow.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two processes that make or update the tables at once damage them
        if not base.exists():
            part.unlink(missing_ok=True)  # of a kill while it was being made
            MlflowClient(tracking_uri=f"sqlite:///{part}").search_experiments()
            part.replace(base)
        return MlflowClient(tracking_uri=f"sqlite:///{base}")


def _now() -> int:
    """Milliseconds, as MLflow counts time."""
    return int(time.time() * 1000)
