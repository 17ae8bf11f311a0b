"""Runs that advance together: several seeds (and rates) of one method, their clients as rows of the same calls.

Every run keeps its own thread, experiment, directory and checkpoints, and does everything as if it were alone. Only
local training is shared: a run that wants its cohort trained waits at a *meeting* until all others want theirs, and one
call trains the rows of all of them. On a GPU five times the rows cost little more, and what a run does alone goes into
a lane of its own (`panacea.core.lanes`); on a CPU small networks gain as well. Only one thread runs at a time, so
nothing else changes: each run's numbers are those of the run alone, to the last float bits (products of more rows may
be summed in another order). A run that fails or ends leaves the meeting, and the others go on.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import FunctionType
from typing import Any

import numpy as np
from torch import Tensor

from panacea.core.lanes import Lane, Mark, mark, wait_for
from panacea.core.method import Method
from panacea.core.records import leaves
from panacea.core.round import Trained
from panacea.engines.vectorised import Request, VectorisedEngine
from panacea.experiment.experiment import Experiment
from panacea.experiment.interrupt import Interrupter

__all__ = ["Baton", "Meeting", "run_together"]


class Baton:
    """Held by the one thread that runs, and handed on to the next in line.

    A condition variable would wake all threads at once, of which all but one go back to sleep. In line there is one
    thread to wake, and the order of the runs is always the same.
    """

    def __init__(self) -> None:
        self._guard, self._free = threading.Lock(), True
        self._line: deque[threading.Lock] = deque()

    def __enter__(self) -> Baton:
        """Wait for it, behind all others who do."""
        place = self.place()
        self.line_up([place])
        place.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        """Hand it on."""
        with self._guard:
            if self._line:
                self._line.popleft().release()
            else:
                self._free = True

    @staticmethod
    def place() -> threading.Lock:
        """Something to wait at: who acquires it goes on when it was lined up and its turn has come."""
        place = threading.Lock()
        place.acquire()
        return place

    def line_up(self, places: Iterable[threading.Lock]) -> None:
        """Their turns come one after the other; the first at once, if nobody holds the baton."""
        with self._guard:
            self._line.extend(places)
            if self._free and self._line:
                self._free = False
                self._line.popleft().release()


@dataclass
class Meeting:
    """Where the runs of a group meet.

    Attributes:
        baton: held by the one thread that runs; who waits for the others hands it on.
        present: runs that take part now.
        wanted: what each of those that wait wants to have trained, and up to where its lane must be done before.
        places: where those that wait do so.
        done: what became of it: the result, or the error.
        lane: of the shared calls.
        left: places in the lanes of runs that are over; they may still use what a shared call made.
        called: the end of the last shared call.
    """

    baton: Baton = field(default_factory=Baton)
    present: set[int] = field(default_factory=set)
    wanted: dict[int, tuple[VectorisedEngine, Request, Mark]] = field(default_factory=dict)
    places: dict[int, threading.Lock] = field(default_factory=dict)
    done: dict[int, Trained | Exception] = field(default_factory=dict)
    lane: Lane = field(default_factory=Lane)
    left: list[Mark] = field(default_factory=list)
    called: Mark = None

    def join(self, number: int, experiment: Experiment) -> None:
        """Its local training is shared from now on; a run on an engine without rows stays alone."""
        engine = experiment.engine
        if isinstance(engine, VectorisedEngine):
            engine.together = partial(self.train, number, engine)
        else:
            self.leave(number)

    def leave(self, number: int) -> None:
        """It is over; nobody waits for it any more."""
        self.present.discard(number)
        self.left.append(mark())
        self._serve()

    def pause(self, number: int, seconds: float) -> None:
        """Let the others go on while this run waits for somebody outside."""
        self.leave(number)
        self.baton.__exit__()
        time.sleep(seconds)
        self.baton.__enter__()
        self.present.add(number)

    def train(self, number: int, engine: VectorisedEngine, request: Request) -> Trained:
        """Wait for the others, then the result."""
        self.wanted[number] = engine, request, mark()
        self._serve()
        if number not in self.done:
            place = self.places[number] = self.baton.place()
            self.baton.__exit__()
            place.acquire()
        wait_for([self.called])
        result = self.done.pop(number)
        if isinstance(result, Exception):
            raise result
        return result

    def _serve(self) -> None:
        """Train once everybody who is here wants something."""
        if not self.wanted or len(self.wanted) < len(self.present):
            return
        waiting, self.wanted = dict(sorted(self.wanted.items())), {}  # whoever came first, the rows are in one order
        groups: list[dict[int, tuple[VectorisedEngine, Request]]] = []
        for number, (engine, request, _) in waiting.items():
            for group in groups:
                if _alike(next(iter(group.values())), (engine, request)):
                    group[number] = engine, request
                    break
            else:
                groups.append({number: (engine, request)})
        with self.lane.entered():
            wait_for([*(place for _, _, place in waiting.values()), *self.left])
            self.left.clear()
            for group in groups:
                self.done |= _trained(group)
            self.called = mark()
        self.baton.line_up(self.places.pop(number) for number in waiting if number in self.places)


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


def _alike(first: tuple[VectorisedEngine, Request], second: tuple[VectorisedEngine, Request]) -> bool:
    """Whether two requests can be one call: the same programme on networks of one shape."""
    (engine, a), (other, b) = first, second
    same_network = (
        engine.target.task == other.target.task
        and engine.target.layout == other.target.layout
        and engine.target.statistics_layout == other.target.statistics_layout
        and type(engine.target.original) is type(other.target.original)
        and engine.forward.kind == other.forward.kind
    )
    same_local = all(
        getattr(a.local, name) == getattr(b.local, name)
        for name in ("batch_size", "momentum", "weight_decay", "clip", "frozen_statistics")
    )
    return same_network and same_local and _same_shapes(a, b) and same_programme(a.method, b.method)


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
    """Run all of them, each in its own thread; returns when the last is over.

    Args:
        numbers: of the runs.
        run: does one run; it joins the meeting itself, and asks whether to stop (Ctrl-C reaches the main thread only).
            What it raises is raised here, after the others are done.
    """
    meeting = Meeting(present=set(numbers))  # nothing is trained before everybody had a chance to join

    failed: list[BaseException] = []

    def thread(number: int) -> None:
        with meeting.baton, Lane().entered():
            try:
                run(number, meeting, lambda: interrupter.requested)
            except BaseException as error:  # raised again below: nobody hears a thread
                failed.append(error)
            finally:
                meeting.leave(number)

    with Interrupter() as interrupter:
        threads = [threading.Thread(target=thread, args=(number,), daemon=True) for number in numbers]
        for one in threads:
            one.start()
        for one in threads:
            while one.is_alive():
                one.join(0.2)  # in pieces, so that a signal is heard; a second one ends everything at once
    if failed:
        raise failed[0]
