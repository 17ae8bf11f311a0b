"""`engine=ray`: the rows of a cohort over the workers of a Ray cluster, each of which is a vectorised engine.

The server's work and all state stay in this process: a worker is sent rows (downloads, kept states, statistics) and
sends rows back, so that it can be replaced at any moment. Rows do not touch each other; numbers differ from those of
one process in the last float bits only, where products of fewer rows are summed in another order.
"""

from __future__ import annotations

import hashlib
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from panacea.core.method import Method
from panacea.core.records import Tree, tree_index
from panacea.core.round import Trained
from panacea.core.types import ClientIds, Cohort, Steps
from panacea.engines.base import Samples, Scores
from panacea.engines.ray_pool import Cluster, RayPool
from panacea.engines.ray_worker import (
    Answer,
    Parcel,
    Programme,
    Scoring,
    Shelf,
    StoredSamples,
    Training,
    packed,
    unpacked,
)
from panacea.engines.requests import joined
from panacea.errors import RequestError, RunFailure

__all__ = ["RayEngine"]

_METHODS = 8  # kept in the store at a time
_PLAIN = (str, int, float, bool, tuple, Tensor, type(None))


class RayEngine:
    """Rows over Ray workers.

    Attributes:
        programme: what every worker's engine is made of.
        cluster: where they are.
        note: told what a user should know; warns by default.
        pool: the workers; started when there is something to do.
    """

    name = "ray"

    def __init__(self, programme: Programme, samples: Samples, cluster: Cluster) -> None:
        if samples.device.type != "cpu":
            raise RequestError(f"engine=ray works on CPUs; give device=cpu instead of device={samples.device.type}")
        self.programme, self.samples, self.cluster = programme, samples, cluster
        self.target, self.local, self.home = programme.target, programme.local, programme.target.initial
        self.gradient_evaluations = 0
        self.note: Callable[[str], None] = _warn
        self._pool: RayPool | None = None
        self._programme = Parcel("", (None,))
        self._lost: weakref.finalize[Any, Any] | None = None
        self._methods: OrderedDict[str, tuple[Parcel, Method, bytes]] = OrderedDict()
        self._samples: list[tuple[Samples, bool, Parcel]] = []
        self._inputs: list[tuple[Tensor, Parcel]] = []
        self._said: set[str] = set()

    @property
    def pool(self) -> RayPool:
        """The workers; the first call starts them."""
        if self._pool is None:
            pool = RayPool(self.cluster, self.note)
            self._pool, self._lost = pool, weakref.finalize(self, pool.session.forget)
            self._lost.atexit = False
            pool.start(self.note)
            self._programme = pool.stored(self.programme)
        return self._pool

    def close(self) -> None:
        """Let go of the workers; they end, and a private Ray with them, unless somebody else in this process has it."""
        if self._pool is not None and self._lost is not None and self._lost.detach():
            self._methods.clear()
            self._samples.clear()
            self._inputs.clear()
            session, self._pool = self._pool.session, None
            session.release()

    def train(
        self,
        method: Method,
        downloads: Tree,
        kept: Tree,
        statistics: Tensor,
        cohort: Cohort,
        *,
        steps: Steps = None,
        purpose: str = "train",
    ) -> Trained:
        """Train the cohort, a share of it on every worker."""
        what, samples = self._stored_method(method), self._stored_samples(self.samples)
        orders = []
        for rows in self._shares(len(cohort)):
            sent, found, numbers = packed(tree_index((downloads, kept, statistics), rows))
            counts, trust = packed((cohort.counts[rows], cohort.trust[rows]))
            own = replace(cohort, ids=cohort.ids[rows], counts=counts, trust=trust)
            counted = steps[rows] if isinstance(steps, np.ndarray) else steps
            orders.append(Training(self._programme, what, samples, sent, found, numbers, own, counted, purpose))
        parts = []
        for order, answer in zip(orders, self._answers("train", orders), strict=True):
            trained, size = answer.result, len(order.cohort)
            assert isinstance(trained, Trained)
            rows_of = (trained.uploads, trained.kept, trained.statistics, trained.loss)
            parts.append(Trained(*(unpacked(part, size) for part in rows_of)))
            self.gradient_evaluations += answer.evaluations
        return joined(parts)

    def evaluate(
        self, params: Tensor, statistics: Tensor, ids: ClientIds, split: str, samples: Samples | None = None
    ) -> Scores:
        """Score all clients, a share of them on every worker."""
        stored = self._stored_samples(self.samples if samples is None else samples)
        orders = [
            Scoring(self._programme, stored, packed(params[rows]), packed(statistics[rows]), ids[rows], split)
            for rows in self._shares(len(ids))
        ]
        found = [answer.result for answer in self._answers("evaluate", orders)]
        scores = [one for one in found if isinstance(one, Scores)]
        return Scores(np.concatenate([s.metric for s in scores]), np.concatenate([s.loss for s in scores]))

    def _shares(self, rows: int) -> Iterator[slice]:
        """Which rows each worker gets: as equal as can be, and the same every time."""
        shares = min(self.pool.size, max(rows, 1))
        ends = [rows * (number + 1) // shares for number in range(shares)]
        return (slice(first, end) for first, end in zip([0, *ends], ends, strict=False))

    def _answers(self, what: str, orders: Sequence[Any]) -> list[Answer]:
        """All answers; the first failure is raised as one process would have, the notes are told once."""
        answers = self.pool.ask(what, orders, self.note)
        for note in dict.fromkeys(note for answer in answers for note in answer.notes):
            if note not in self._said:
                self._said.add(note)
                self.note(note)
        for answer in answers:
            if answer.failure:
                raise (RequestError if answer.wrong else RunFailure)(answer.failure)
        return answers

    # --- what lies in the store ---------------------------------------------------------------------------------------

    def _stored_method(self, method: Method) -> Parcel:
        """Stored once, and again when something has changed that its clients may look at."""
        pickled: Callable[[object], bytes] = self.pool.session.ray.cloudpickle.dumps
        seen = pickled([type(method).__qualname__, method.parameters.model_dump(), _visible(method)])
        for parcel, known, before in self._methods.values():
            if known is method and before == seen:
                return parcel
        if type(method).__module__ == "__main__":
            raise RequestError(f"engine=ray: workers cannot import {type(method).__name__}; put it into a file")
        name = hashlib.sha256(pickled(method)).hexdigest()
        if name not in self._methods:
            self._methods[name] = (self.pool.stored(method, name), method, seen)
            while len(self._methods) > _METHODS:
                self._methods.popitem(last=False)
        return self._methods[name][0]

    def _stored_samples(self, samples: Samples) -> Parcel:
        """Stored once, and again when they were poisoned; the inputs only once."""
        for known, poisoned, parcel in self._samples:
            if known is samples and poisoned == samples.poisoned:
                return parcel
        x = next((parcel for known, parcel in self._inputs if known is samples.x), None)
        if x is None:
            x = self.pool.stored(Shelf.of(samples.x))
            self._inputs.append((samples.x, x))
        self._samples = [one for one in self._samples if one[0] is not samples]
        parcel = self.pool.stored(StoredSamples.of(samples, x))
        self._samples.append((samples, samples.poisoned, parcel))
        return parcel


def _warn(note: str) -> None:
    warnings.warn(note, stacklevel=3)


def _visible(method: Method) -> dict[str, Any]:
    """Numbers, masks and inner methods, which clients may look at; a server's own objects do not reach them."""
    own = {k: value for k, value in vars(method).items() if k != "parameters" and not k.startswith("_")}
    plain = {name: value for name, value in own.items() if isinstance(value, _PLAIN)}
    return plain | {name: _visible(value) for name, value in own.items() if isinstance(value, Method)}
