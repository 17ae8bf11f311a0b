"""Local steps as captured CUDA graphs.

A small network on a GPU spends its time on launching kernels, a few microseconds each. A *captured graph* records the
kernels of some local steps once, with the addresses they read and write, and replays all of them with a single launch.
Methods need not know: a step is a pure function of tensors, so the engine gives it tensors that stay where they are
(*static buffers*), copies every call's values into them and replays.

    first call of a kind      run step by step (this also warms up what kernels need)
    second                    captured: static buffers, one graph of `length` steps, replayed K / length times
    from then on              copied in, replayed, copied out

A *kind* is everything that is not the value of a tensor: the method and its parameters, the shapes, the optimiser. What
cannot be captured (a step that looks at values on the host) goes on step by step; a note says so once.
"""

from __future__ import annotations

import itertools
import time
import warnings
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from pydantic import BaseModel
from torch import Tensor

from panacea.core.graphs import captured_in
from panacea.core.local import Local, fold_steps
from panacea.core.method import Method
from panacea.core.records import Tree, leaves, named_leaves, tree_map, tree_where
from panacea.core.types import Batch
from panacea.engines.gradients import RowGradient
from panacea.engines.rows import Stretch, largest_divisor

__all__ = ["StepGraphs"]

_MOST_KINDS = 24  # captured at a time; each holds the memory of a step
_MOST_SEEN = 1000  # kinds remembered
_LONGEST = 0.25  # seconds that the steps of one graph take when they are launched one by one


class StepGraphs:
    """The captured steps of one engine, by kind."""

    def __init__(self) -> None:
        self.graphs: OrderedDict[Hashable, _StepGraph] = OrderedDict()
        self.seen: dict[Hashable, float] = {}  # seconds of a step
        self.hopeless: set[Hashable] = set()

    def clear(self) -> None:
        """Forget all of them, and free their memory."""
        self.graphs.clear()

    def fold(
        self,
        method: Method,
        carry: Tree,
        download: Tree,
        client: Tree,
        stretches: Iterator[Stretch],
        local: Local,
        grad: RowGradient,
    ) -> Tree:
        """All steps; see `panacea.core.local.fold_steps`, whose numbers these are."""
        first, ready = 0, set[int]()  # graphs that have this visit's values
        fixed = _Fixed(download, client, local.sgd.lr, local.steps, grad.keys)
        for stretch in stretches:
            kind = _kind(method, carry, fixed, stretch, local)
            graph = self._graph(kind, method, carry, fixed, stretch, local, grad)
            if graph is not None:
                carry = graph.replay(carry, fixed, stretch, first, grad, fresh=id(graph) not in ready)
                ready.add(id(graph))
            else:
                begun: list[float] = []
                batches = _noted(grad.follow(stretch.batches(), first), begun)
                carry = fold_steps(method, carry, download, client, batches, local, first)
                if len(self.seen) >= _MOST_SEEN:  # programmes that hold something of one evaluation never come again
                    self.seen.clear()
                begun.append(time.perf_counter())
                self.seen[kind] = min(b - a for a, b in itertools.pairwise(begun))  # the first waits for libraries
            first += len(stretch.x)
        return carry

    def _graph(
        self,
        kind: Hashable,
        method: Method,
        carry: Tree,
        fixed: _Fixed,
        stretch: Stretch,
        local: Local,
        grad: RowGradient,
    ) -> _StepGraph | None:
        """The graph of this kind of step; None for the first of its kind and where there can be none."""
        if kind in self.graphs:
            self.graphs.move_to_end(kind)
            return self.graphs[kind]
        if kind in self.hopeless or kind not in self.seen:
            return None
        while len(self.graphs) >= _MOST_KINDS:
            self.graphs.popitem(last=False)
        try:
            length = largest_divisor(len(stretch.x), max(1, int(_LONGEST / self.seen[kind])))
            self.graphs[kind] = _StepGraph(method, carry, fixed, stretch, local, grad, length)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:  # whatever a step does, it can also be done without a graph
            torch.cuda.synchronize()
            if not self.hopeless:
                first: BaseException = error
                while first.__context__ is not None:  # what ends a capture hides what went wrong in it
                    first = first.__context__
                what = str(first).splitlines()[0] if str(first) else type(first).__name__
                warnings.warn(f"{type(method).__name__}: local steps are not captured ({what})", stacklevel=2)
            self.hopeless.add(kind)
            return None
        return self.graphs[kind]


@dataclass(frozen=True)
class _Fixed:
    """What the steps of one visit only read, beside the batches."""

    download: Tree
    client: Tree
    rate: float | Tensor
    steps: int | Tensor
    keys: Tensor | None

    def tensors(self) -> list[Tensor]:
        single = (self.rate, self.steps, self.keys)
        return [*leaves((self.download, self.client)), *(t for t in single if isinstance(t, Tensor))]


class _StepGraph:
    """One captured graph of some steps, and the buffers it works on."""

    def __init__(
        self,
        method: Method,
        carry: Tree,
        fixed: _Fixed,
        stretch: Stretch,
        local: Local,
        grad: RowGradient,
        length: int,
    ) -> None:
        self.length = length
        self.method = method  # its parameters are part of the graph, so it must not go
        self.carry, self.statistics, self.loss = _copied(carry), _copied(grad.statistics), _copied(grad.loss)
        self.place, self.step = (torch.zeros((), dtype=torch.int64, device=grad.loss.device) for _ in range(2))
        self.fixed = _Fixed(
            _copied(fixed.download), _copied(fixed.client), _copied(fixed.rate), _copied(fixed.steps),
            _copied(fixed.keys),
        )  # fmt: skip
        x, y, weight = (_copied(values[: self.length]) for values in (stretch.x, stretch.y, stretch.weight))
        self.batches = Stretch(x, y, weight, _copied(stretch.present), stretch.classes)
        self.ragged = isinstance(fixed.steps, Tensor)
        self.graph = torch.cuda.CUDAGraph()
        own = replace(local, sgd=replace(local.sgd, lr=self.fixed.rate), steps=self.fixed.steps)
        before = dict(vars(grad))
        try:
            with captured_in(self.graph, warm_up=lambda: self._steps(own, grad, 1)):
                grad.calls = grad.unscored = 0
                self._steps(own, grad, length)
            self.calls, self.unscored = grad.calls, grad.unscored
        finally:
            vars(grad).update(before)

    def _steps(self, local: Local, grad: RowGradient, length: int) -> None:
        """What is captured: the steps on the buffers, and their results back into them."""
        fixed, carry = self.fixed, self.carry
        grad.statistics, grad.loss, grad.noted, grad.keys = self.statistics, self.loss, [], fixed.keys
        grad.place = 0 if fixed.keys is None else self.place
        for number, drawn in enumerate(itertools.islice(self.batches.batches(), length)):
            if self.ragged:
                active = self.step + number < fixed.steps
                grad.still = ~active.squeeze(-1)
                new = self.method.step(carry, fixed.download, fixed.client, drawn, local)
                carry = tree_where(active, new, carry)
            else:
                carry = self.method.step(carry, fixed.download, fixed.client, drawn, local)
        grad.settle()
        _write([*leaves(self.carry), self.statistics, self.loss], [*leaves(carry), grad.statistics, grad.loss])
        if isinstance(grad.place, Tensor):
            self.place.copy_(grad.place)
        if self.ragged:
            self.step.add_(self.length)

    def replay(
        self, carry: Tree, fixed: _Fixed, stretch: Stretch, first: int, grad: RowGradient, *, fresh: bool
    ) -> Tree:
        """The steps of a stretch; returns the carry. The first one of a visit is `fresh`."""
        _write([*leaves(self.carry), self.statistics, self.loss], [*leaves(carry), grad.statistics, grad.loss])
        if fresh:
            _write(self.fixed.tensors(), fixed.tensors())
            _write(leaves(self.batches.present), leaves(stretch.present))
        place = grad.place + 0
        if self.fixed.keys is not None:
            self.place.fill_(place)
        if self.ragged:
            self.step.fill_(first)
        own, repeats = self.batches, len(stretch.x) // self.length
        for number in range(repeats):
            now = slice(number * self.length, (number + 1) * self.length)
            _write([own.x, own.y, own.weight], [stretch.x[now], stretch.y[now], stretch.weight[now]])
            self.graph.replay()
        grad.statistics, grad.loss = self.statistics.clone(), self.loss.clone()
        grad.calls += repeats * self.calls
        grad.unscored += repeats * self.unscored
        grad.place = place + repeats * self.calls
        return _copied(self.carry)


def _noted(batches: Iterator[tuple[Batch, ...]], begun: list[float]) -> Iterator[tuple[Batch, ...]]:
    """The same batches; notes when each step begins."""
    for drawn in batches:
        begun.append(time.perf_counter())
        yield drawn


def _copied(value: Any) -> Any:
    return tree_map(lambda t: t.detach().clone(memory_format=torch.contiguous_format), value)


def _write(buffers: list[Tensor], values: list[Tensor]) -> None:
    if buffers:
        torch._foreach_copy_(buffers, values)


# --- kinds ------------------------------------------------------------------------------------------------------------


_contents: WeakKeyDictionary[Method, Hashable] = WeakKeyDictionary()  # a method is the same for all of a run


def _kind(method: Method, carry: Tree, fixed: _Fixed, stretch: Stretch, local: Local) -> Hashable:
    """Everything that is not the value of a tensor."""
    trees = (carry, fixed.download, fixed.client, fixed.rate, fixed.steps, stretch.x, stretch.y, stretch.present)
    shapes = tuple((name, t.shape, t.dtype) for tree in trees for name, t in _named(tree))
    numbers = tuple(value for value in (fixed.rate, fixed.steps) if not isinstance(value, Tensor))
    if method not in _contents:
        _contents[method] = _content(method)
    return _contents[method], shapes, numbers, local.sgd.momentum, local.sgd.weight_decay, local.sgd.clip


def _named(tree: Tree) -> Iterator[tuple[str, Tensor]]:
    return iter(()) if isinstance(tree, float | int) else named_leaves(tree)


def _content(value: object, depth: int = 0) -> Hashable:
    """Equal for methods that do the same: programmes are made anew for every evaluation."""
    if isinstance(value, Method) and depth < 4:
        own = ((name, v) for name, v in sorted(vars(value).items()) if not name.startswith("_"))
        return type(value), tuple((name, _content(v, depth + 1)) for name, v in own)
    if isinstance(value, BaseModel):
        return type(value), value.model_dump_json()
    if isinstance(value, FunctionType) and depth < 4:
        cells = (cell.cell_contents for cell in value.__closure__ or ())
        held = (*cells, *(value.__defaults__ or ()))
        return value.__code__, tuple(_content(one, depth + 1) for one in held)
    return value if isinstance(value, str | int | float | bool | None) else id(value)
