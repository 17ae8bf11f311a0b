"""A Ray worker: an ordinary vectorised engine in a process of its own, and what it is sent.

Orders hold rows of tensors. What all orders share (the network and the settings, the samples, the method) lies in Ray's
object store as *parcels*; a worker fetches each of them once.
"""

from __future__ import annotations

import copy
import os
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from panacea.core.method import Method
from panacea.core.records import Tree, tree_map
from panacea.core.round import Trained
from panacea.core.types import ClientIds, Cohort, Steps
from panacea.data.storage import contents
from panacea.engines.base import LocalSettings, Samples, Scores
from panacea.engines.compiling import compile_kernel
from panacea.engines.forward import prepare_for_loop
from panacea.engines.precision import Precision
from panacea.engines.sequential import SequentialEngine
from panacea.engines.vectorised import VectorisedEngine
from panacea.errors import PanaceaError, RequestError, RunFailure
from panacea.models.target import TargetModel

__all__ = ["Answer", "Parcel", "Programme", "RowWorker", "Scoring", "Shelf", "StoredSamples", "Training", "packed"]


@dataclass(frozen=True)
class Parcel:
    """Something in Ray's object store: its name, and the reference within a tuple, so that orders do not unpack it."""

    name: str
    place: tuple[Any]


@dataclass(frozen=True)
class Programme:
    """What makes every worker's engine the same: the arguments of `VectorisedEngine`, and the threads."""

    target: TargetModel
    local: LocalSettings
    block: int
    forward: str
    traced: bool
    precision: str
    deterministic: bool
    compiled: bool
    threads: int


@dataclass(frozen=True)
class Shelf:
    """A tensor as an array, which workers of one machine read where it lies; windows of a series stay views of it."""

    values: npt.NDArray[Any]
    shape: torch.Size
    stride: tuple[int, ...]

    @classmethod
    def of(cls, tensor: Tensor) -> Shelf:
        """Each stored value once."""
        values = contents(tensor)
        whole = len(values) == tensor.numel()
        stride = torch.empty(tensor.shape, device="meta").stride() if whole else tensor.stride()
        return cls(values.numpy(), tensor.shape, stride)

    def tensor(self) -> Tensor:
        """The tensor; it may not be written to."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that it cannot be written to is known
            return torch.from_numpy(self.values).as_strided(self.shape, self.stride)


@dataclass(frozen=True)
class StoredSamples:
    """All clients' samples: the large tensors apart, so that what a poisoned copy has in common is stored once."""

    rest: Samples
    x: Parcel
    y: Shelf
    rows: Shelf | None

    @classmethod
    def of(cls, samples: Samples, x: Parcel) -> StoredSamples:
        """Ready to be stored."""
        rest, nothing = copy.copy(samples), torch.empty(0)
        rest.x, rest.y, rest.rows = nothing, nothing, None
        return cls(rest, x, Shelf.of(samples.y), None if samples.rows is None else Shelf.of(samples.rows))

    def samples(self, x: Tensor) -> Samples:
        """As they were."""
        made = copy.copy(self.rest)
        made.x, made.y, made.rows = x, self.y.tensor(), None if self.rows is None else self.rows.tensor()
        return made


@dataclass(frozen=True)
class Training:
    """Rows to train; see `Engine.train`."""

    programme: Parcel
    method: Parcel
    samples: Parcel
    downloads: Tree
    kept: Tree
    statistics: Tensor
    cohort: Cohort
    steps: Steps
    purpose: str


@dataclass(frozen=True)
class Scoring:
    """Rows to score; see `Engine.evaluate`."""

    programme: Parcel
    samples: Parcel
    params: Tensor
    statistics: Tensor
    ids: ClientIds
    split: str


@dataclass(frozen=True)
class Answer:
    """What a worker made of an order.

    Attributes:
        result: rows; None where it failed.
        evaluations: of gradients.
        notes: warnings.
        failure: why it failed, in one line.
        wrong: whether the request is to blame.
    """

    result: Trained | Scores | None
    evaluations: int = 0
    notes: tuple[str, ...] = ()
    failure: str = ""
    wrong: bool = False


def packed(tree: Tree) -> Tree:
    """Rows ready to travel: pickling a view would send all it is a view of. One row for all goes as one row."""

    def pack(values: Tensor) -> Tensor:
        one = len(values) > 1 and values.stride(0) == 0
        return (values[:1] if one else values).detach().clone(memory_format=torch.contiguous_format)

    return tree_map(pack, tree)


def unpacked(tree: Tree, rows: int) -> Tree:
    """The inverse of `packed`."""
    return tree_map(lambda values: values.expand(rows, *values.shape[1:]) if len(values) == 1 else values, tree)


_PARCELS = 12  # kept at a time: methods of evaluations come and go


class RowWorker:
    """The actor; Ray makes one per worker."""

    def __init__(self) -> None:
        import ray  # noqa: PLC0415  (in a worker it is there)

        self._fetch: Callable[[Any], Any] = ray.get
        self._parcels: OrderedDict[str, Any] = OrderedDict()
        self._samples: dict[str, Samples] = {}
        self._source: Parcel | None = None
        self._engine: VectorisedEngine | None = None

    def process(self) -> int:
        """Its number."""
        return os.getpid()

    def train(self, order: Training) -> Answer:
        """Train some rows."""
        self._turn_to(order.programme)
        return self._answer(lambda: self._train(order), lambda error: self._failed_training(order, error))

    def evaluate(self, order: Scoring) -> Answer:
        """Score some rows."""
        self._turn_to(order.programme)

        def score() -> Scores:
            samples = self._samples_of(order.samples)
            params, statistics = unpacked((order.params, order.statistics), len(order.ids))
            engine = self._engine_on(order.programme, samples)
            return engine.evaluate(params, statistics, order.ids, order.split, samples)

        return self._answer(score, lambda error: f"{type(error).__name__}: {error}")

    def _answer(self, work: Callable[[], Trained | Scores], explained: Callable[[Exception], str]) -> Answer:
        before = 0 if self._engine is None else self._engine.gradient_evaluations
        result, failure, wrong = None, "", False
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            try:
                result = work()
            except PanaceaError as error:
                failure, wrong = str(error), isinstance(error, RequestError)
            except Exception as error:  # a user's code may raise anything; Ray's own traceback would help nobody
                failure = explained(error)
        after = before if self._engine is None else self._engine.gradient_evaluations
        notes = tuple(dict.fromkeys(str(warning.message) for warning in caught))
        return Answer(result, after - before, notes, failure, wrong)

    def _train(self, order: Training) -> Trained:
        method: Method = self._opened(order.method)
        given, further = self._arguments(order)
        engine = self._engine_on(order.programme, self._samples_of(order.samples))
        trained = engine.train(method, *given, order.cohort, **further)
        return Trained(*(packed(part) for part in (trained.uploads, trained.kept, trained.statistics, trained.loss)))

    @staticmethod
    def _arguments(order: Training) -> tuple[tuple[Tree, Tree, Tensor], Mapping[str, Any]]:
        given = unpacked((order.downloads, order.kept, order.statistics), len(order.cohort))
        return given, {"steps": order.steps, "purpose": order.purpose}

    def _failed_training(self, order: Training, error: Exception) -> str:
        """The reference engine's words, which name client and step; it fails where all rows together did."""
        method: Method = self._opened(order.method)
        samples, (given, further) = self._samples_of(order.samples), self._arguments(order)
        try:
            programme: Programme = self._fetch(order.programme.place[0])  # as sent: ours is in the middle of a pass
            prepare_for_loop(programme.target)
            one_by_one = SequentialEngine(programme.target, samples, programme.local)
            one_by_one.train(method, *given, order.cohort, **further)
        except RunFailure as named:
            return str(named)
        except Exception as other:  # the first error is the one to tell
            del other
        names = ", ".join(f"'{samples.names[client]}'" for client in order.cohort.ids[:5])
        names += ", ..." if len(order.cohort) > 5 else ""
        return (
            f"{method.name or type(method).__name__} failed for clients {names} in round {order.cohort.round}: "
            f"{type(error).__name__}: {error}"
        )

    def _turn_to(self, programme: Parcel) -> None:
        """Forget everything of the experiment before."""
        if self._source is None or self._source.name != programme.name:
            self._source, self._engine = programme, None
            self._parcels.clear()
            self._samples.clear()

    def _engine_on(self, programme: Parcel, samples: Samples) -> VectorisedEngine:
        """The engine with these samples; it is built when first asked, so that its warnings reach somebody."""
        if self._engine is None:
            p: Programme = self._opened(programme)
            torch.set_num_threads(p.threads)
            exactly = Precision(p.precision, samples.device, p.deterministic)
            engine = VectorisedEngine(p.target, samples, p.local, p.block, p.forward, p.traced, precision=exactly)
            if p.compiled:
                compile_kernel(engine)
            self._engine = engine
        self._engine.samples = samples
        return self._engine

    def _samples_of(self, parcel: Parcel) -> Samples:
        if parcel.name not in self._samples:
            stored: StoredSamples = self._opened(parcel)
            x: Shelf = self._opened(stored.x)
            self._samples[parcel.name] = stored.samples(x.tensor())
        return self._samples[parcel.name]

    def _opened(self, parcel: Parcel) -> Any:
        """What is in a parcel, fetched the first time."""
        if parcel.name not in self._parcels:
            self._parcels[parcel.name] = self._fetch(parcel.place[0])
            while len(self._parcels) > _PARCELS:
                self._parcels.popitem(last=False)
        self._parcels.move_to_end(parcel.name)
        return self._parcels[parcel.name]
