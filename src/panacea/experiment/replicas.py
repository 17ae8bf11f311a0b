"""Runs that advance together: several seeds (and rates) of one method, their clients as rows of the same calls.

Every run keeps its own experiment, directory and checkpoints, and does everything as if it were alone. Only local
training is shared: a run that wants its cohort trained stops there (each is a *greenlet*, a call stack that can be left
and entered again) until all others want theirs, and one call trains the rows of all of them. On a GPU five times the
rows cost little more, and what a run does alone goes into a lane of its own (`panacea.core.lanes`); on a CPU small
networks gain as well. Runs take turns in one thread, so nothing else changes: each run's numbers are those of the run
alone, to the last float bits (products of more rows may be summed in another order). A run that fails or ends leaves,
and the others go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import FunctionType
from typing import Any

import greenlet
import numpy as np
import torch
from torch import Tensor

from panacea.core.lanes import Lane, Mark, mark
from panacea.core.method import Method
from panacea.core.records import leaves
from panacea.core.round import Trained
from panacea.engines.vectorised import Request, VectorisedEngine
from panacea.experiment.experiment import Experiment
from panacea.experiment.interrupt import Interrupter

__all__ = ["Meeting", "run_together"]

_MOST_FOUND = 100  # pairs of programmes that are remembered


@dataclass
class _Run:
    """One that takes part.

    Attributes:
        stack: what it is doing.
        lane: where it does so, on a GPU.
        away: until when it waits for somebody outside.
    """

    stack: greenlet.greenlet
    lane: Lane
    away: float | None = None


class Meeting:
    """Where the runs of a group meet.

    Attributes:
        runs: those that are not over.
        wanted: what each of those that stopped wants to have trained, and up to where its lane must be done before.
        done: what became of it: the result, or the error.
        lane: of the shared calls.
        left: places in lanes that are left; they may still use what a shared call made.
        called: the end of the last shared call.
    """

    def __init__(self) -> None:
        self.runs: dict[int, _Run] = {}
        self.wanted: dict[int, tuple[VectorisedEngine, Request, Mark]] = {}
        self.done: dict[int, Trained | Exception] = {}
        self.lane = Lane()
        self.left: list[Mark] = []
        self.called: Mark = None
        self._centre = greenlet.getcurrent()
        self._found: dict[tuple[int, ...], tuple[bool, tuple[object, ...]]] = {}

    # --- what a run calls -----------------------------------------------------------------------------------------

    def join(self, number: int, experiment: Experiment) -> None:
        """Its local training is shared from now on; a run on an engine without rows stays alone."""
        engine = experiment.engine
        if isinstance(engine, VectorisedEngine):
            engine.together = partial(self.train, number, engine)
            if engine.home.device.type == "cpu":
                lane = self.runs[number].lane
                self.left.append(lane.mark())
                lane.used = False

    def pause(self, number: int, seconds: float) -> None:
        """Let the others go on while this run waits for somebody outside."""
        self.runs[number].away = time.monotonic() + seconds
        self._centre.switch()

    def train(self, number: int, engine: VectorisedEngine, request: Request) -> Trained:
        """Stop until the others want something, too; then the result."""
        lane = self.runs[number].lane
        self.wanted[number] = engine, request, lane.mark()
        self._centre.switch()
        lane.wait_for([self.called])
        result = self.done.pop(number)
        if isinstance(result, Exception):
            raise result
        return result

    # --- the centre -----------------------------------------------------------------------------------------------

    def add(self, number: int, run: Callable[[], None]) -> None:
        """One that takes part; it begins with `proceed`."""
        self.runs[number] = _Run(greenlet.greenlet(run), Lane())

    def proceed(self) -> None:
        """Let all of them run to their ends; what one raises ends all."""
        turns = list(self.runs)
        try:
            while self.runs:
                for number in turns:
                    self._advance(number)
                turns = self._back() or self._served()
        finally:
            for run in self.runs.values():
                run.stack.throw()  # so that files and locks are closed now

    def _advance(self, number: int) -> None:
        """Let one go on until it wants something, waits for somebody outside or is over."""
        run, threads = self.runs[number], torch.get_num_threads()
        with run.lane.entered():
            run.stack.switch()
            if run.stack.dead:
                self.left.append(run.lane.mark())
        if run.stack.dead:
            del self.runs[number]
            torch.set_num_threads(threads)  # it has put back what it found, but the others are not done

    def _back(self) -> list[int]:
        """Those that waited long enough; where nobody else has anything to do, the first that will have."""
        away = {number: run.away for number, run in self.runs.items() if run.away is not None}
        if away and not self.wanted:
            time.sleep(max(0.0, min(away.values()) - time.monotonic()))
        back = [number for number, until in away.items() if until <= time.monotonic()]
        for number in back:
            self.runs[number].away = None
        return back

    def _served(self) -> list[int]:
        """Train what is wanted; whose it was."""
        waiting, self.wanted = dict(sorted(self.wanted.items())), {}  # whoever came first, the rows are in one order
        groups: list[dict[int, tuple[VectorisedEngine, Request]]] = []
        for number, (engine, request, _) in waiting.items():
            for group in groups:
                if self._alike(next(iter(group.values())), (engine, request)):
                    group[number] = engine, request
                    break
            else:
                groups.append({number: (engine, request)})
        self.left.append(mark())  # what is queued outside of lanes
        with self.lane.entered():
            self.lane.wait_for([*(place for _, _, place in waiting.values()), *self.left])
            self.left.clear()
            for group in groups:
                self.done |= _trained(group)
            self.called = self.lane.mark()
        return list(waiting)

    def _alike(self, first: tuple[VectorisedEngine, Request], second: tuple[VectorisedEngine, Request]) -> bool:
        """Whether two requests can be one call: the same programme on networks of one shape."""
        (engine, a), (other, b) = first, second
        compared = engine, other, a.method, b.method
        key = tuple(map(id, compared))  # of what is kept beside the answer, so that it stays theirs
        if key not in self._found:
            if len(self._found) >= _MOST_FOUND:  # programmes of evaluations never come again
                self._found.clear()
            self._found[key] = _same_network(engine, other) and same_programme(a.method, b.method), compared
        return self._found[key][0] and _same_local(a, b) and _same_shapes(a, b)


def _trained(group: dict[int, tuple[VectorisedEngine, Request]]) -> dict[int, Trained | Exception]:
    """The result of every run; where training them together fails, each by itself, so that an error finds its run."""
    engines = [engine for engine, _ in group.values()]
    try:
        before = engines[0].gradient_evaluations
        results = engines[0].train_together([request for _, request in group.values()])
        each = engines[0].gradient_evaluations - before
        engines[0].gradient_evaluations = before
        rows = np.array([int(request.counts.sum()) for _, request in group.values()])
        for engine, share in zip(engines, rows * each // max(int(rows.sum()), 1), strict=True):
            engine.gradient_evaluations += int(share)
        return dict(zip(group, results, strict=True))
    except Exception as error:  # told to whom it belongs
        if len(group) == 1:
            return dict.fromkeys(group, error)
    return {number: result for number, one in group.items() for result in _trained({number: one}).values()}


def _same_network(engine: VectorisedEngine, other: VectorisedEngine) -> bool:
    return (
        engine.target.task == other.target.task
        and engine.target.layout == other.target.layout
        and engine.target.statistics_layout == other.target.statistics_layout
        and type(engine.target.original) is type(other.target.original)
        and engine.forward.kind == other.forward.kind
    )


def _same_local(a: Request, b: Request) -> bool:
    names = ("batch_size", "momentum", "weight_decay", "clip", "frozen_statistics")
    return a.local is b.local or all(getattr(a.local, name) == getattr(b.local, name) for name in names)


def _same_shapes(a: Request, b: Request) -> bool:
    shapes = [
        [(leaf.shape[1:], leaf.dtype) for leaf in leaves((one.downloads, one.kept, one.statistics))] for one in (a, b)
    ]
    return shapes[0] == shapes[1]


def same_programme(a: Method, b: Method) -> bool:
    """Whether two methods do the same on a client: of one class, with the same numbers where clients look at them."""
    if type(a) is not type(b) or a.draws != b.draws:
        return False
    fields = type(a.parameters).model_fields
    names = fields if a.client_parameters is None else fields.keys() & set(a.client_parameters)
    if any(getattr(a.parameters, name) != getattr(b.parameters, name) for name in names):
        return False
    own = [{k: v for k, v in vars(one).items() if k != "parameters" and not k.startswith("_")} for one in (a, b)]
    return own[0].keys() == own[1].keys() and all(_same(value, own[1][name]) for name, value in own[0].items())


def _same(a: Any, b: Any) -> bool:
    """Numbers, masks, functions and inner methods must agree; a server's own objects do not reach its clients.

    That they do not is a rule of the method interface, tested for every method.
    """
    if isinstance(a, Method) and isinstance(b, Method):
        return same_programme(a, b)
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.shape == b.shape and bool((a == b).all())
    if isinstance(a, FunctionType) and isinstance(b, FunctionType):
        held = [[cell.cell_contents for cell in one.__closure__ or ()] for one in (a, b)]
        same = a.__code__ is b.__code__ and a.__defaults__ == b.__defaults__
        return same and all(x is y for x, y in zip(*held, strict=True))
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(value, b[name]) for name, value in a.items())
    simple = isinstance(a, str | int | float | None) or isinstance(b, str | int | float | None)
    return a is b or a == b if simple or callable(a) else type(a) is type(b)


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
        for number in numbers:
            meeting.add(number, partial(one, number))
        try:
            meeting.proceed()
        finally:
            torch.set_num_threads(threads)
    if failed:
        raise failed[0]
