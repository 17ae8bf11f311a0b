"""One job of a batch, and the process that does one after the other."""

from __future__ import annotations

import importlib
import os
import signal
import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from panacea.core.round import Report
from panacea.errors import PanaceaError, RequestError
from panacea.experiment.batch import STOPPED_EARLY, Finished, Given, Job
from panacea.experiment.experiment import Experiment
from panacea.experiment.interrupt import Interrupted
from panacea.experiment.notes import warnings_as_notes
from panacea.experiment.replicas import Meeting, run_together
from panacea.experiment.rundir import RunBusy, RunDirectory
from panacea.experiment.runner import Callback, run_experiment
from panacea.experiment.tracking import trackers_of

__all__ = ["Channel", "Outcome", "Relay", "do_jobs", "train_group", "train_job", "work"]

_PAGE_WRITER = ("panacea.report.run_page", "ReportWriter")  # by name: pages are a layer above experiments
_BUSY_SECONDS = 0.5


class Relay(Callback):
    """Passes on what a run says, and ends it when told to.

    Attributes:
        tell: gets every line of `metrics.jsonl`; its answer True ends this run early.
        note: gets what a user should know.
        place: gets the run's directory.
        asked: whether all runs are to stop; asked after every round.
        early: whether `tell` ended the run.
    """

    def __init__(
        self,
        tell: Callable[[Mapping[str, Any]], bool],
        note: Callable[[str], None],
        place: Callable[[Path], None] = lambda path: None,
        asked: Callable[[], bool] = lambda: False,
    ) -> None:
        self.tell, self.note, self.place, self.asked = tell, note, place, asked
        self.early = False

    def on_round(self, experiment: Experiment, report: Report) -> None:
        """Look for a request to stop."""
        self.stopping = self.stopping or self.asked()

    def on_evaluation(self, experiment: Experiment, line: dict[str, Any]) -> None:
        """Pass the line on."""
        if self.tell(line):
            self.early = self.stopping = True

    def on_note(self, note: str) -> None:
        """Pass the note on."""
        self.note(note)


def train_job(
    job: Job,
    relay: Relay,
    pages: bool,
    given: Given,
    join: Callable[[Experiment], None] = lambda experiment: None,
    pause: Callable[[float], None] = time.sleep,
) -> Finished:
    """Train, go on with, or read the run of a job.

    Args:
        job: the job.
        relay: told of progress.
        pages: see `run_batch`.
        given: see `run_batch`.
        join: gets the experiment before it begins, to run it together with others.
        pause: waits some seconds for somebody else who trains the same run.

    Raises:
        RequestError: the request is wrong.
        Interrupted: the run was asked to stop, and saved.
    """
    directory = None
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            experiment = Experiment(job.config, given.federation, given.module)
            join(experiment)
        for warning in caught:
            relay.note(str(warning.message))
        directory = RunDirectory.of(experiment.config, experiment.method.name)
        relay.place(directory.path)
        while True:
            if directory.finished:
                directory.claim(experiment.config)
                return Finished(job, directory.read_summary(), directory.path, reused=True)
            try:
                callbacks = [relay, *_page_writers(relay, pages), *trackers_of(experiment.config, relay.note)]
                summary = run_experiment(experiment, directory, callbacks)
            except RunBusy:  # somebody else's result will be ours, too
                if relay.asked():
                    raise Interrupted("interrupted while another process trains this run") from None
                pause(_BUSY_SECONDS)
            else:
                return Finished(job, summary, directory.path)
    except Interrupted:
        if not relay.early or directory is None:
            raise
        return Finished(job, None, directory.path, STOPPED_EARLY)
    except RequestError:
        raise
    except Exception as error:  # a run that fails costs itself only
        what = str(error) if isinstance(error, PanaceaError) else f"{type(error).__name__}: {error}"
        place = job.config.out if directory is None else directory.path
        return Finished(job, None, place, " ".join(what.split()))


def _page_writers(relay: Relay, pages: bool) -> list[Callback]:
    if not pages:
        return []
    module, name = _PAGE_WRITER
    writer: Callback = getattr(importlib.import_module(module), name)(relay.note)
    return [writer]


Outcome: TypeAlias = Finished | RequestError | Interrupted


def train_group(
    jobs: Mapping[int, Job],
    relay_of: Callable[[int], Relay],
    pages: bool,
    given: Given,
    settle: Callable[[int, Outcome], None],
) -> None:
    """Train jobs that advance together (see `replicas`), or a single one.

    Args:
        jobs: by number.
        relay_of: makes the relay of a job.
        pages: see `run_batch`.
        given: see `run_batch`.
        settle: gets what became of a job as soon as it is over.
    """

    def one(number: int, relay: Relay, **together: Callable[..., None]) -> None:
        try:
            settle(number, train_job(jobs[number], relay, pages, given, **together))
        except (RequestError, Interrupted) as error:
            settle(number, error)

    def among_others(number: int, meeting: Meeting, asked: Callable[[], bool]) -> None:
        relay = relay_of(number)
        told = relay.asked
        relay.asked = lambda: told() or asked()
        one(number, relay, join=partial(meeting.join, number), pause=partial(meeting.pause, number))

    first, *others = jobs
    with warnings_as_notes(relay_of(first).note):  # of whichever run: they take turns
        if others:
            run_together(list(jobs), among_others)
            return
        try:
            one(first, relay_of(first))
        except KeyboardInterrupt:  # the second one: at once, not saved
            settle(first, Interrupted("interrupted"))


class Channel(Protocol):
    """What a worker needs of its connection; `recv` raises EOFError where nobody is there any more."""

    def send(self, message: Any, /) -> None:
        """Send."""
        ...

    def recv(self) -> Any:
        """Wait for a message."""
        ...

    def poll(self) -> bool:
        """Whether there is one."""
        ...


# --- a process --------------------------------------------------------------------------------------------------------


def work(connection: Connection, asks: bool, pages: bool, given: Given) -> None:
    """Do the jobs that come through the connection, until it closes.

    Receives ``("jobs", jobs by number)``, ``("answer", stop early?)`` and ``("stop",)``. Sends ``(kind, number,
    content)``: a line, a note or a directory, and at the end of a job finished (a `Finished`), wrong or interrupted (a
    message).

    Args:
        connection: to the process that hands out jobs. Where it breaks, that process is gone: the run at hand is saved.
        asks: whether every line needs an answer.
        pages: see `run_batch`.
        given: see `run_batch`.
    """
    os.setsid()  # Ctrl-C at the terminal reaches the other end only, which then asks us to stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # forgets one that came before
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    do_jobs(connection, asks, pages, given)


def do_jobs(connection: Channel, asks: bool, pages: bool, given: Given) -> None:
    """What a process does with its connection, see `work`."""
    import torch  # noqa: PLC0415

    torch.set_num_threads(1)
    line = _Line(connection, asks)

    def relay_of(number: int) -> Relay:
        return Relay(
            partial(line.tell, number), partial(line.send, "note", number), partial(line.send, "directory", number),
            line.stopped,
        )  # fmt: skip

    def settle(number: int, outcome: Outcome) -> None:
        if isinstance(outcome, Finished):
            line.send("finished", number, outcome)
        else:
            line.send("wrong" if isinstance(outcome, RequestError) else "interrupted", number, str(outcome))

    while (message := line.receive()) is not None and message[0] == "jobs":
        train_group(message[1], relay_of, pages, given, settle)


class _Line:
    """The worker's end of its connection."""

    def __init__(self, connection: Channel, asks: bool) -> None:
        self.connection, self.asks, self.stop = connection, asks, False

    def receive(self) -> Any:
        """The next message; None where nobody is there any more, or all is to stop."""
        try:
            message = None if self.stop else self.connection.recv()
        except (EOFError, OSError):
            message = None
        self.stop = self.stop or message is None or message[0] == "stop"
        return None if self.stop else message

    def send(self, kind: str, number: int, content: object) -> None:
        try:
            self.connection.send((kind, number, content))
        except OSError:
            self.stop = True

    def stopped(self) -> bool:
        """Whether to stop; never waits."""
        while not self.stop and self.connection.poll():
            self.receive()
        return self.stop

    def tell(self, number: int, values: Mapping[str, Any]) -> bool:
        """Send a line; whether to end this run early."""
        self.send("line", number, dict(values))
        while self.asks and (message := self.receive()) is not None:
            if message[0] == "answer":
                return bool(message[1])
        return False
