"""A run on the server between its files and its rounds: how it begins, goes on, and takes in clients that join."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from panacea.core.types import Cohort
from panacea.deploy.asking import Desk
from panacea.deploy.fitting import newcomer_notes, refuse_unfit, run_settings
from panacea.deploy.greeting import Known, Ledger, greet, samples_of
from panacea.deploy.joining import enlarged, first_model, pending, refuse_request
from panacea.deploy.orders import Order
from panacea.deploy.remote import RemoteEngine
from panacea.deploy.roster import Newcomer, Roster
from panacea.engines.base import LocalSettings
from panacea.errors import PanaceaError, RequestError
from panacea.experiment.checkpoint import Checkpoint
from panacea.experiment.config import ExperimentConfig, Section
from panacea.experiment.experiment import Experiment
from panacea.experiment.resolving import changed
from panacea.experiment.rundir import RunDirectory
from panacea.experiment.runner import Callback
from panacea.models.target import TargetModel

__all__ = ["Doorman", "Session"]


class Doorman(Callback):
    """Looks after every round whether somebody wants to join; then the run stops, takes them in and goes on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_round(self, experiment: Experiment, report: object) -> None:
        """Before the evaluation of the round, which then asks for nothing ahead."""
        self.stopping = bool(pending(self.folder))


class Session:
    """See the module's docstring.

    Attributes:
        config: of all experiments of the run; `base` is how the run is called (its identity), whoever joins.
        folder: the run's directory.
        known: who takes part.
    """

    known: Known

    def __init__(self, config: ExperimentConfig, roster: Roster, desk: Desk, directory: Path | None) -> None:
        self.desk, self.start = desk, roster
        first = Experiment(config, roster.federation(), engine=self._engine)  # nobody has said hello yet
        refuse_unfit(first)
        self.base = first.config
        self.digest = roster.digest
        self.start = dataclasses.replace(roster, graph=first.federation.graph)
        self.config = changed(config, graph=Section(name="given"))
        own = RunDirectory.of(first.config, first.method.name)
        self.folder = own if directory is None else RunDirectory(directory)
        self.ledger = Ledger(self.folder.path / "federation.json")
        self._first = first

    def _engine(self, config: ExperimentConfig, target: TargetModel, local: LocalSettings) -> RemoteEngine:
        return RemoteEngine(config, target, local, self.desk)

    def begin(self) -> None:
        """Find out who is there: from the run's files, or by asking.

        Raises:
            RunFailure: too few clients answer.
        """
        self.folder.claim(self.base)
        self.desk.log.path = self.folder.path / "federation.jsonl"
        checkpoint, _ = self.folder.checkpoints.load()
        found = None if checkpoint is None else self.ledger.read(self.start, len(checkpoint.tensors["visits"]))
        self.desk.transport.begin(self.start.names if found is None else found.roster.names, self.desk.log)
        if found is None:
            run = self.ledger.new_run()
            counts = greet(self.desk, self.start, run_settings(self._first, run).text())
            found = Known(run, self.start, counts, [])
            self.ledger.write(found)
        self.known = found
        self.desk.names = found.roster.names
        what = "started" if checkpoint is None else "resumed"
        self.desk.log.note(what, f"{self._first.method.name}, {len(found.roster.names)} clients")

    def experiment(self, doorman: Doorman | None = None) -> Experiment:
        """The experiment of all that take part now."""
        config = self._same_width()
        federation = self.known.roster.federation(self.known.counts, self.digest)
        federation = dataclasses.replace(federation, notes=newcomer_notes(self._first))
        made = Experiment(config, federation, engine=self._engine)
        made.config = self.base
        remote = made.engine
        assert isinstance(remote, RemoteEngine)
        remote.settings = run_settings(made, self.known.run).text()

        def plan(round: int) -> Cohort | None:
            return None if doorman is not None and doorman.stopping else made.cohort(round)

        remote.plan = plan
        return made

    def _same_width(self) -> ExperimentConfig:
        """The keys at the start: a width that goes by the number of clients stays, whoever joins."""
        table = getattr(self._first.state.server, "table", None)
        section = self.config.method
        if table is None or len(self.known.roster.names) == len(self.start.names) or section.keys.get("embedding"):
            return self.config
        if "embedding" not in type(self._first.method.parameters).model_fields:
            return self.config
        return changed(
            self.config, method=Section(name=section.name, keys={**section.keys, "embedding": table.shape[1]})
        )

    def admit(self, experiment: Experiment, doorman: Doorman) -> None:
        """Take in all that want to join; one that cannot is refused, with a line in the log and beside its request."""
        for path, request in pending(doorman.folder):
            try:
                if not isinstance(request, Newcomer):
                    raise RequestError(request)
                experiment = self._admitted(experiment, request)
            except PanaceaError as error:
                self.desk.names = self.known.roster.names
                self.desk.log.note("not admitted", str(error), path.stem)
                refuse_request(path, str(error))
            else:
                path.unlink()

    def _admitted(self, old: Experiment, newcomer: Newcomer) -> Experiment:
        roster = self.known.roster.joined(newcomer)
        number, before = len(roster.names) - 1, self.known
        self.desk.names = roster.names
        self.desk.transport.begin(roster.names, self.desk.log)
        settings = run_settings(old, before.run).model_copy(update={"clients": len(roster.names)}).text()
        order = Order(number, newcomer.name, old.state.round, ("hello",), settings)
        found, reasons = self.desk.ask({number: order}, samples_of, everyone=True)
        if number not in found:
            raise RequestError(f"client '{newcomer.name}' does not answer: {reasons[number]}")
        counts = np.concatenate([before.counts, np.array([found[number]], np.int64)])
        joined = [*before.joined[: number - len(self.start.names)], newcomer]
        self.known = Known(before.run, roster, counts, joined)
        try:
            made = self.experiment()
            checkpoint = enlarged(old, made)
        except PanaceaError:
            self.known = before
            raise
        self.ledger.write(self.known)
        info = {**checkpoint.info, "metrics": self.folder.metrics_mark()}
        self.folder.checkpoints.save(Checkpoint(checkpoint.round, checkpoint.tensors, info))
        made.restore(checkpoint)
        self.desk.log.note("joined", f"linked to {', '.join(newcomer.links) or 'nobody'}", newcomer.name)
        first_model(old, made, number)
        return made
