"""The server of a federation: runs or resumes an experiment to its end over a transport."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from panacea.data.registry import TrainingDefaults, dataset_names, find_dataset
from panacea.deploy.asking import Desk
from panacea.deploy.greeting import Ledger, greet
from panacea.deploy.log import FederationLog
from panacea.deploy.orders import Transport
from panacea.deploy.patience import Patience
from panacea.deploy.remote import RemoteEngine
from panacea.deploy.roster import Roster
from panacea.deploy.settings import RunSettings, TaskSettings
from panacea.engines.base import LocalSettings
from panacea.errors import RequestError
from panacea.experiment.config import EngineKeys, ExperimentConfig, Section
from panacea.experiment.experiment import Experiment
from panacea.experiment.resolving import changed, with_defaults
from panacea.experiment.rundir import RunDirectory
from panacea.experiment.runner import Callback, run_experiment
from panacea.models.target import TargetModel

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
    config = federated_config(config, roster)

    def engine(config: ExperimentConfig, target: TargetModel, local: LocalSettings) -> RemoteEngine:
        return RemoteEngine(config, target, local, desk)

    experiment = Experiment(config, roster.federation(), engine=engine)  # nobody has said hello yet
    _refuse_unfit(experiment)
    folder = (
        RunDirectory.of(experiment.config, experiment.method.name) if directory is None else RunDirectory(directory)
    )
    folder.claim(experiment.config)
    log.path = folder.path / "federation.jsonl"
    ledger = Ledger(folder.path / "federation.json")
    transport.begin(roster.names, log)
    known = ledger.read(roster.names) if folder.checkpoints.rounds() else None
    if known is None:
        run = ledger.new_run()
        counts = greet(desk, roster, run_settings(experiment, run).text())
        ledger.write(run, roster.names, counts)
    else:
        run, counts = known
    experiment = Experiment(config, roster.federation(counts), engine=engine)
    remote = experiment.engine
    assert isinstance(remote, RemoteEngine)
    remote.settings, remote.plan = run_settings(experiment, run).text(), experiment.cohort
    log.note("started" if known is None else "resumed", f"{experiment.method.name}, {len(roster.names)} clients")
    return run_experiment(experiment, folder, callbacks)


def federated_config(config: ExperimentConfig, roster: Roster) -> ExperimentConfig:
    """The configuration of a federation's run: what its clients and its safety fix is fixed.

    Keys that are left out have the defaults of the roster's data set, where it is one of ours.
    """
    if config.attack.name != "none":
        raise RequestError(f"attack={config.attack.name}: attacks are simulated, with `panacea run`")
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


def _usual_cohort(defaults: TrainingDefaults, roster: Roster) -> int:
    return min(defaults.cohort, int((~roster.novel).sum()))


def run_settings(experiment: Experiment, run: str) -> RunSettings:
    """What clients must know of a run."""
    c, task = experiment.config, experiment.federation.task
    return RunSettings(
        run=run, seed=c.seed, clients=len(experiment.federation), rounds=c.rounds or 1, task=TaskSettings.of(task),
        method=c.method.name, method_keys=c.method.keys, model=c.model.name, model_keys=c.model.keys, lr=c.lr or 0.0,
        local_steps=c.local_steps, local_epochs=c.local_epochs, batch_size=c.batch_size or 1, momentum=c.momentum,
        weight_decay=c.weight_decay, clip=c.clip, buffers=c.buffers, dtype=c.dtype,
    )  # fmt: skip


def _refuse_unfit(experiment: Experiment) -> None:
    """A method must say what a download looks like, and make models that depend on a client's state at the client."""
    from panacea.core.method import Method  # noqa: PLC0415
    from panacea.core.records import leaves, named_leaves, tree_index  # noqa: PLC0415
    from panacea.core.types import Cohort, Origin  # noqa: PLC0415

    method, target, federation = experiment.method, experiment.target, experiment.federation
    first = Cohort.of(federation.train_ids[:1], federation.counts("train"), 1, experiment.engine.home)
    download = method.download(experiment.state.server, first)
    origin = Origin(target.initial, target.layout, target.statistics_layout)
    shapes = [
        [(name, leaf.shape, leaf.dtype) for name, leaf in named_leaves(tree)]
        for tree in (tree_index(download, 0), method.template(origin, 1))
    ]
    if shapes[0] != shapes[1]:
        raise RequestError(f"method={method.name}: its `template` is not like what it sends (`download`)")
    keeps = bool(leaves(method.init_client(download)))
    if keeps and not method.keeps_model and type(method).personal is not Method.personal:
        raise RequestError(
            f"method={method.name}: its clients keep a state and it has a `personal` of its own; in a federation that "
            "needs keeps_model and own_model"
        )
