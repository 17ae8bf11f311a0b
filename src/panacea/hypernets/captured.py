"""The server's steps as a captured CUDA graph.

K_s steps of a small hypernetwork are thousands of tiny kernels; launching them takes ten times as long as running them.
So one step is captured, on buffers that stay where they are, and replayed K_s times in every round (see
`panacea.engines.capture`, which does the same for the clients). What differs between rounds are values: the plan's
matrices, the targets, the rate. A round whose shapes were not seen before runs step by step.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from panacea.core.graphs import captured_in
from panacea.core.parameters import Layout
from panacea.hypernets.descent import Descent, Loss, Optimiser, descend
from panacea.hypernets.propagation import Block

__all__ = ["ServerGraphs"]

Outputs: TypeAlias = Sequence[Tensor]
Objective: TypeAlias = Callable[[Sequence[Tensor], Any], tuple[Loss, Outputs]]
"""Variables (in parts) and inputs in; the loss, and what to keep of the last step, out."""

_MOST_KINDS = 12


class ServerGraphs:
    """Captured steps of one server, by kind."""

    def __init__(self) -> None:
        self.graphs: OrderedDict[Hashable, _ServerGraph] = OrderedDict()
        self.seen: set[Hashable] = set()
        self.hopeless = False

    def descend(
        self,
        objective: Objective,
        inputs: Any,
        variables: Sequence[Tensor],
        moments: Sequence[Tensor],
        optimiser: Optimiser,
        rate: Tensor,
        steps: int,
        layouts: Sequence[Layout | None],
        factored: str | None,
    ) -> tuple[list[Tensor], list[Tensor], Outputs]:
        """See `descend`; `inputs` is all that the objective depends on and that changes from round to round.

        Where nothing can be captured (a CPU, sparse matrices) the steps are taken one by one.
        """
        tensors = list(_tensors(inputs))
        kind: Hashable = tuple((t.shape, t.dtype) for t in (*tensors, *variables, *moments))
        if self._possible(tensors, rate):
            if kind not in self.graphs and kind in self.seen:
                self._capture(kind, objective, inputs, variables, moments, optimiser, rate, layouts, factored)
            if kind in self.graphs:
                self.graphs.move_to_end(kind)
                return self.graphs[kind].replay(tensors, variables, moments, rate, steps)
            self.seen.add(kind)
        lr = rate if rate.is_cuda else float(rate)
        moved, memory, kept = descend(
            lambda leaves: objective(leaves, inputs), variables, moments, optimiser, lr, steps, layouts, factored
        )
        assert kept is not None
        return moved, memory, kept

    def _possible(self, tensors: Sequence[Tensor], rate: Tensor) -> bool:
        return rate.is_cuda and not self.hopeless and all(t.layout == torch.strided for t in tensors)

    def _capture(self, kind: Hashable, *arguments: Any) -> None:
        while len(self.graphs) >= _MOST_KINDS:
            self.graphs.popitem(last=False)
        try:
            self.graphs[kind] = _ServerGraph(*arguments)
        except Exception as error:  # whatever it was, the steps can be taken one by one
            torch.cuda.synchronize()
            self.hopeless = True
            warnings.warn(f"the server's steps are not captured ({str(error).splitlines()[0]})", stacklevel=2)


class _ServerGraph:
    """One captured step and its buffers."""

    def __init__(
        self,
        objective: Objective,
        inputs: Any,
        variables: Sequence[Tensor],
        moments: Sequence[Tensor],
        optimiser: Optimiser,
        rate: Tensor,
        layouts: Sequence[Layout | None],
        factored: str | None,
    ) -> None:
        self.inputs = [t.clone() for t in _tensors(inputs)]
        self.rate = rate.clone()
        self.descent = Descent(variables, moments, optimiser, layouts, factored)
        held = _rebuilt(inputs, iter(self.inputs))
        self.graph = torch.cuda.CUDAGraph()

        def step() -> Outputs:
            return self.descent.step(lambda leaves: objective(leaves, held), self.rate)

        with captured_in(self.graph, warm_up=step):
            self.kept = step()

    def replay(
        self, inputs: list[Tensor], variables: Sequence[Tensor], moments: Sequence[Tensor], rate: Tensor, steps: int
    ) -> tuple[list[Tensor], list[Tensor], Outputs]:
        """The steps of a round."""
        own = self.descent
        torch._foreach_copy_(
            [*self.inputs, *own.variables, *own.moments, self.rate], [*inputs, *variables, *moments, rate]
        )
        for _ in range(steps):
            self.graph.replay()
        return (
            [t.clone() for t in own.variables],
            [t.clone() for t in own.moments],
            [t.clone() for t in self.kept],
        )


def _tensors(value: Any) -> Iterator[Tensor]:
    """All tensors that a step reads; of a block the matrix, not the arcs it was made of."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Block):
        yield from _tensors((value.matrix, value.transposed, value.own))
    elif dataclasses.is_dataclass(value):
        yield from _tensors([getattr(value, field.name) for field in dataclasses.fields(value)])
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)


def _rebuilt(value: Any, tensors: Iterator[Tensor]) -> Any:
    """The same with other tensors, in the order of `_tensors`."""
    if isinstance(value, Tensor):
        return next(tensors)
    if isinstance(value, Block):
        matrix, transposed, own = _rebuilt((value.matrix, value.transposed, value.own), tensors)
        return dataclasses.replace(value, matrix=matrix, transposed=transposed, own=own)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        parts = _rebuilt([getattr(value, name) for name in names], tensors)
        return dataclasses.replace(value, **dict(zip(names, parts, strict=True)))
    if isinstance(value, list | tuple):
        return type(value)(_rebuilt(one, tensors) for one in value)
    return value
