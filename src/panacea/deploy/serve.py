"""The server of a federation: runs or resumes an experiment to its end over a transport."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from panacea.deploy.orders import Transport
from panacea.deploy.roster import Roster
from panacea.experiment.config import ExperimentConfig
from panacea.experiment.runner import Callback

__all__ = ["Patience", "serve"]


@dataclass(frozen=True)
class Patience:
    """How long a server waits, and for how many.

    Attributes:
        deadline: seconds from sending a round's orders until those who did not answer are left out.
        quorum: share of a round's cohort whose replies must be sound; at least one must be.
        attempts: how often a round below the quorum is tried again, with those that failed asked again.
        pause: seconds before it is.
        longest_backoff: most rounds in a row for which a client that failed is not asked.
        start: seconds to wait for clients at the start (`hello`), trying again.
    """

    deadline: float = 60.0
    quorum: float = 0.5
    attempts: int = 5
    pause: float = 10.0
    longest_backoff: int = 16
    start: float = 600.0


def serve(
    config: ExperimentConfig,
    roster: Roster,
    transport: Transport,
    directory: Path | None = None,
    callbacks: Sequence[Callback] = (),
    patience: Patience | None = None,
) -> dict[str, Any]:
    """Run to the last round, or go on with the run that the directory holds; returns the summary.

    Args:
        config: the run's, as `panacea.experiment.config.build_config` makes it; `data` names the roster's data set,
            `engine`, `device` and `checkpoint_every` are set here.
        roster: who takes part.
        transport: how they are reached.
        directory: the run's own directory; by default ``config.out/<data>-<method>-s<seed>-<identity>``.
        callbacks: as of `panacea.experiment.runner.run_experiment`; `on_start` gets the directory.
        patience: waiting; see the class.

    Raises:
        RequestError: a key is wrong, or clients' data do not fit the roster's task.
        RunFailure: too few clients answered (the run is saved and can be resumed), or training diverged.
        Interrupted: a signal asked to stop; the state was saved first.
    """
    raise NotImplementedError
