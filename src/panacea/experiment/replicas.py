"""Runs that advance together: several seeds (and rates) of one method, their clients as rows of the same calls.

Every run keeps its own experiment, directory and checkpoints, and does everything as if it were alone. Only local
training is shared: a run that wants its cohort trained stops there (each is a *greenlet*, a call stack that can be left
and entered again) until all others want theirs, and one call trains the rows of all of them; on a CPU small networks
gain by it, and on a GPU five times the rows cost little more. Runs take turns in one thread, so nothing else changes:
each run's numbers are those of the run alone, to the last float bits (products of more rows may be summed in another
order). A run that fails or ends leaves, and the others go on.

A GPU idles while the runs aggregate one after the other. Where they are many they therefore form two *sides*: while
the GPU trains the one, the other does everything else. (Few runs are better off in one call: two that overlap take
longer than one with all rows.) What a run or a side has the GPU do goes into a lane of its own (`panacea.core.lanes`).
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import greenlet
import torch

from panacea.core.lanes import Lane, Mark, mark
from panacea.core.round import Trained
from panacea.engines.requests import Request
from panacea.engines.vectorised import VectorisedEngine
from panacea.experiment.experiment import Experiment
from panacea.experiment.interrupt import Interrupter
from panacea.experiment.shared_call import Asked, SharedCall
from panacea.experiment.sharing import same_local, same_network, same_programme, same_shapes

__all__ = ["Meeting", "run_together"]

_TWO_SIDES = 8  # runs; measured on an H200: five are slower in two sides (W2) or alike, ten alike or faster (W1)


@dataclass
class _Side:
    """Runs whose rows are trained in one call.

    Attributes:
        lane: of its calls.
        wanted: what each run that stopped wants to have trained, and up to where its lane must be done before.
        left: places in lanes that are left; they may still use what a call made.
        called: the end of the last call.
    """

    lane: Lane = field(default_factory=Lane)
    wanted: dict[int, tuple[VectorisedEngine, Request, Mark]] = field(default_factory=dict)
    left: list[Mark] = field(default_factory=list)
    called: Mark = None


@dataclass
class _Run:
    """One that takes part.

    Attributes:
        stack: what it is doing.
        lane: where it does so, on a GPU.
        side: with whom it is trained.
        experiment: what it does, once it has joined.
        ahead: whether it can do something while it is trained.
        away: until when it waits for somebody outside.
    """

    stack: greenlet.greenlet
    side: _Side
    lane: Lane = field(default_factory=Lane)
    experiment: Experiment | None = None
    ahead: bool = False
    away: float | None = None


class Meeting:
    """Where the runs of a group meet.

    Attributes:
        runs: those that are not over.
        done: what became of what they wanted: the result, or the error.
    """

    def __init__(self) -> None:
        self.runs: dict[int, _Run] = {}
        self.done: dict[int, Trained | Exception] = {}
        self._sides = (_Side(), _Side())
        self._begun: deque[tuple[_Side, list[SharedCall]]] = deque()
        self._centre = greenlet.getcurrent()
        self._found: dict[tuple[int, int], bool] = {}  # whether the methods of two runs are alike

    # --- what a run calls -----------------------------------------------------------------------------------------

    def join(self, number: int, experiment: Experiment) -> None:
        """Its local training is shared from now on; a run on an engine without rows stays alone."""
        engine, run = experiment.engine, self.runs[number]
        if not isinstance(engine, VectorisedEngine):
            return
        engine.together = partial(self.train, number, engine)
        run.experiment, run.ahead = experiment, _works_beside(engine)
        if not run.ahead:
            run.side = self._sides[0]

    def pause(self, number: int, seconds: float) -> None:
        """Let the others go on while this run waits for somebody outside."""
        self.runs[number].away = time.monotonic() + seconds
        self._centre.switch()

    def train(self, number: int, engine: VectorisedEngine, request: Request) -> Trained:
        """Stop until the others of its side want something, too; then the result."""
        run = self.runs[number]
        run.side.wanted[number] = engine, request, run.lane.mark()
        self._centre.switch()
        run.lane.wait_for([run.side.called])
        result = self.done.pop(number)
        if isinstance(result, Exception):
            raise result
        return result

    # --- the centre -----------------------------------------------------------------------------------------------

    def add(self, number: int, run: Callable[[], None], side: int) -> None:
        """One that takes part; it begins with `proceed`."""
        self.runs[number] = _Run(greenlet.greenlet(run), self._sides[side])

    def proceed(self) -> None:
        """Let all of them run to their ends; what one raises ends all."""
        turns = list(self.runs)
        try:
            while self.runs:  # each has just stopped: it wants something, is away, or is over
                for number in turns:
                    self._advance(number)
                for side in self._sides:
                    self._begin(side)
                turns = self._back() or self._finish()
        finally:
            for run in self.runs.values():
                run.stack.throw()  # so that files and locks are closed now

    def _advance(self, number: int) -> None:
        """Let one go on until it wants something, waits for somebody outside or is over."""
        run, threads = self.runs[number], torch.get_num_threads()
        with run.lane.entered():
            run.stack.switch()
            over = run.stack.dead
            if over or (run.lane.used and not _needs_lane(run)):
                run.side.left.append(run.lane.mark())
                run.lane.used = False  # from its next turn on
        if over:
            del self.runs[number]
            torch.set_num_threads(threads)  # it has put back what it found, but the others are not done

    def _back(self) -> list[int]:
        """Those that waited long enough; where nobody else has anything to do, the first that will have."""
        away = {number: run.away for number, run in self.runs.items() if run.away is not None}
        if away and not self._begun:
            time.sleep(max(0.0, min(away.values()) - time.monotonic()))
        back = [number for number, until in away.items() if until <= time.monotonic()]
        for number in back:
            self.runs[number].away = None
        return back

    def _begin(self, side: _Side) -> None:
        """Begin to train what all runs of a side want, in as few calls as can be; nothing while one of them is busy."""
        here = [number for number, run in self.runs.items() if run.side is side and run.away is None]
        if not side.wanted or not all(number in side.wanted for number in here):
            return
        waiting, side.wanted = dict(sorted(side.wanted.items())), {}  # whoever came first, the rows are in one order
        side.left.append(mark())  # what is queued outside of lanes
        with side.lane.entered():
            side.lane.wait_for([*(place for _, _, place in waiting.values()), *side.left])
            side.left.clear()
            asked = {number: (engine, request) for number, (engine, request, _) in waiting.items()}
            self._begun.append((side, [SharedCall(group) for group in self._groups(asked)]))
        for number in waiting:
            self._look_ahead(self.runs[number])

    def _groups(self, waiting: dict[int, Asked]) -> list[dict[int, Asked]]:
        """Those that can be one call each."""
        groups: list[dict[int, Asked]] = []
        for number, asked in waiting.items():
            for group in groups:
                if self._alike(next(iter(group.items())), (number, asked)):
                    group[number] = asked
                    break
            else:
                groups.append({number: asked})
        return groups

    @staticmethod
    def _look_ahead(run: _Run) -> None:
        """What fails here fails again where the run itself wants it."""
        if run.ahead and run.experiment is not None:
            with run.lane.entered(), contextlib.suppress(Exception):
                run.experiment.look_ahead()

    def _finish(self) -> list[int]:
        """Wait for the calls that began first; whose they were."""
        if not self._begun:
            return []
        side, calls = self._begun.popleft()
        with side.lane.entered():
            for call in calls:
                self.done |= call.results()
            side.called = side.lane.mark()
        return [number for call in calls for number in call.group]

    def _alike(self, first: tuple[int, Asked], second: tuple[int, Asked]) -> bool:
        """Whether two requests can be one call: the same programme on networks of one shape."""
        (one, (engine, a)), (two, (other, b)) = first, second
        if not (same_local(a, b) and same_shapes(a, b)):
            return False
        if not all(_own(self.runs[n], request) for n, request in ((one, a), (two, b))):
            return same_network(engine, other) and same_programme(a.method, b.method)
        if (one, two) not in self._found:  # programmes of an evaluation never come again, a run's method always does
            self._found[one, two] = same_network(engine, other) and same_programme(a.method, b.method)
        return self._found[one, two]


def _own(run: _Run, request: Request) -> bool:
    """Whether it is the run's method that is to be trained."""
    return run.experiment is not None and request.method is run.experiment.method


def _needs_lane(run: _Run) -> bool:
    """Whether it has anything to do on a GPU by itself worth the name: its server, that is."""
    return run.experiment is None or run.experiment.engine.home.device.type != "cpu"


def _works_beside(engine: VectorisedEngine) -> bool:
    """Whether training goes on while this process does something else."""
    return engine.samples.device.type != "cpu"


def run_together(numbers: Sequence[int], run: Callable[[int, Meeting, Callable[[], bool]], None]) -> None:
    """Run all of them; returns when the last is over.

    Args:
        numbers: of the runs.
        run: does one run; it joins the meeting itself, and asks whether to stop. What it raises is raised here, after
            the others are done; a second Ctrl-C ends all of them at once.
    """
    meeting, failed = Meeting(), list[BaseException]()

    def one(number: int) -> None:
        try:
            run(number, meeting, lambda: interrupter.requested)
        except (KeyboardInterrupt, greenlet.GreenletExit):
            raise
        except BaseException as error:  # raised again below
            failed.append(error)

    threads = torch.get_num_threads()
    with Interrupter() as interrupter:
        for place, number in enumerate(numbers):
            side = 2 * place // len(numbers) if len(numbers) >= _TWO_SIDES else 0
            meeting.add(number, partial(one, number), side)
        try:
            with torch.inference_mode(False), torch.enable_grad():  # whatever the caller is doing
                meeting.proceed()
        finally:
            torch.set_num_threads(threads)
    if failed:
        raise failed[0]
