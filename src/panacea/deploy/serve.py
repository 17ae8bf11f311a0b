"""The server of a federation: runs or resumes an experiment to its end over a transport."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from panacea.core.method import Method
from panacea.data.registry import TrainingDefaults, dataset_names, find_dataset
from panacea.deploy.asking import Desk
from panacea.deploy.log import FederationLog
from panacea.deploy.orders import Transport
from panacea.deploy.patience import Patience
from panacea.deploy.roster import Roster
from panacea.deploy.session import Doorman, Session
from panacea.errors import RequestError
from panacea.experiment.config import EngineKeys, ExperimentConfig, Section
from panacea.experiment.interrupt import Interrupted
from panacea.experiment.resolving import changed, with_defaults
from panacea.experiment.runner import Callback, run_experiment
from panacea.methods import make_method

__all__ = ["Patience", "federated_config", "serve"]


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
    patience, log = patience or Patience(), FederationLog()
    desk = Desk(transport, roster.names, patience, log)
    session = Session(federated_config(config, roster), roster, desk, directory)
    session.begin()
    while True:
        doorman = Doorman(session.folder.path, lambda: bool(session.late()))
        experiment = session.experiment(doorman)
        try:
            return run_experiment(experiment, session.folder, [doorman, *callbacks])
        except Interrupted:
            if not doorman.stopping or any(callback.stopping for callback in callbacks):
                raise
        if session.late():
            session.greet_late(experiment)
        session.admit(experiment, doorman)


def federated_config(config: ExperimentConfig, roster: Roster) -> ExperimentConfig:
    """The configuration of a federation's run: what its clients and its safety fix is fixed.

    Keys that are left out have the defaults of the roster's data set, where it is one of ours.
    """
    if config.attack.name != "none":
        raise RequestError(f"attack={config.attack.name}: attacks are simulated, with `panacea run`")
    _refuse_models_of_the_store(make_method(config.method.name, config.method.keys))
    ours = roster.data in dataset_names()
    defaults = find_dataset(roster.data).defaults if ours else TrainingDefaults(rounds=100)
    config = with_defaults(config, defaults, None)
    changes: dict[str, Any] = {} if config.cohort else {"cohort": _usual_cohort(defaults, roster)}
    return changed(
        config,
        data=Section(name=roster.data),
        engine=Section(name="sequential", keys=EngineKeys().model_dump()),
        device="cpu",
        checkpoint_every=1,  # a server that is killed loses no round
        novel=None,
        data_digest=None,
        **changes,
    )


def _refuse_models_of_the_store(method: Method) -> None:
    """A method of a user's own may make personal models of all clients' states, which a simulation has in one place."""
    own = type(method)
    if own.init_client is not Method.init_client and own.personal is not Method.personal and not own.keeps_model:
        raise RequestError(
            f"method={method.name}: `personal` makes its clients' own models from what they keep, and no server of a "
            "federation has that; give it keeps_model and own_model (docs/own-method.md)"
        )


def _usual_cohort(defaults: TrainingDefaults, roster: Roster) -> int:
    return min(defaults.cohort, int((~roster.novel).sum()))
