"""A run on the server between its files and its rounds: how it begins, goes on, and takes in clients that join."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np

from panacea.core.types import Cohort
from panacea.deploy.asking import Desk
from panacea.deploy.fitting import newcomer_notes, refuse_unfit, run_settings
from panacea.deploy.greeting import Known, Ledger, counted, greet, samples_of
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
    """Looks after every round whether somebody is new; then the run stops, takes them in and goes on.

    Args:
        folder: the run's, where requests to join are.
        late: whether somebody answered for the first time who was absent at the start.
    """

    def __init__(self, folder: Path, late: Callable[[], bool] = lambda: False) -> None:
        self.folder, self.late = folder, late

    def on_round(self, experiment: Experiment, report: object) -> None:
        """Before the evaluation of the round, which then asks for nothing ahead."""
        self.stopping = bool(pending(self.folder)) or self.late()


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
            RequestError: the run was under way, but its files do not say with whom.
            RunFailure: too few clients answer.
        """
        self.folder.claim(self.base)
        self.desk.log.open(self.folder.path / "federation.jsonl")
        checkpoint, damaged = self.folder.checkpoints.load()
        found = None if checkpoint is None else self.ledger.read(self.start, len(checkpoint.tensors["visits"]))
        if found is None and (checkpoint is not None or damaged):
            raise RequestError(
                f"{self.ledger.path if checkpoint is not None else damaged[0]}: cannot be read, but the run is under "
                f"way; put it back, or delete {self.folder.path} to begin anew"
            )
        self.desk.transport.begin(self.start.names if found is None else found.roster.names, self.desk.log)
        if found is None:
            run = self.ledger.new_run()
            counts, guessed = greet(self.desk, self.start, run_settings(self._first, run).text())
            found = Known(run, self.start, counts, [], guessed=guessed)
        else:
            found = dataclasses.replace(found, starts=found.starts + 1)
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
        remote.settings = run_settings(made, self.known.run, self.known.starts).text()

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
                if request in self._joined():  # the server was killed between taking it in and this
                    path.unlink()
                    continue
                experiment = self._admitted(experiment, request)
            except PanaceaError as error:
                self.desk.names = self.known.roster.names
                self.desk.log.note("not admitted", str(error), path.stem)
                refuse_request(path, str(error))
            else:
                path.unlink()

    def _joined(self) -> list[Newcomer]:
        """Who joined and takes part."""
        return self.known.joined[: len(self.known.roster.names) - len(self.start.names)]

    def late(self) -> list[int]:
        """Clients that were absent at the start, and have answered since."""
        names = self.known.roster.names
        return [client for client in sorted(self.desk.heard) if names[client] in self.known.guessed]

    def greet_late(self, experiment: Experiment) -> None:
        """Ask them how many samples they have; it counts from the next round on."""
        late, known = self.late(), self.known
        settings = run_settings(experiment, known.run, known.starts).text()
        names, counts, round = known.roster.names, known.counts.copy(), experiment.state.round
        orders = {client: Order(client, names[client], round, ("hello",), settings) for client in late}
        for client, said in self.desk.ask(orders, samples_of, everyone=True)[0].items():
            counts[client] = counted(client, said, [*counts[:, 0].tolist(), said[0]], known.roster, self.desk)
            self.desk.log.note("greeted", f"has {counts[client].tolist()} samples", names[client])
        guessed = tuple(name for name in known.guessed if name not in {names[client] for client in late})
        self.known = dataclasses.replace(known, counts=counts, guessed=guessed)
        self.ledger.write(self.known)

    def _admitted(self, old: Experiment, newcomer: Newcomer) -> Experiment:
        roster = self.known.roster.joined(newcomer)
        number, before = len(roster.names) - 1, self.known
        self.desk.names = roster.names
        self.desk.transport.begin(roster.names, self.desk.log)
        settings = run_settings(old, before.run, before.starts).model_copy(update={"clients": len(roster.names)}).text()
        order = Order(number, newcomer.name, old.state.round, ("hello",), settings)
        found, reasons = self.desk.ask({number: order}, samples_of, everyone=True)
        if number not in found:
            raise RequestError(f"client '{newcomer.name}' does not answer: {reasons[number]}")
        every = [*before.counts[:, 0].tolist(), found[number][0]]
        own = np.array([counted(number, found[number], every, roster, self.desk)], np.int64)
        counts, joined = np.concatenate([before.counts, own]), [*self._joined(), newcomer]
        self.known = dataclasses.replace(before, roster=roster, counts=counts, joined=joined)
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
