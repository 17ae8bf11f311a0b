"""Scope: some tensors of the target network, and the rest of it; training one part while the other rests."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from panacea.core.local import Iterate, Local
from panacea.core.method import Method, Model
from panacea.core.parameters import Layout
from panacea.core.records import Tree
from panacea.core.transfer import beside
from panacea.core.types import Batch
from panacea.errors import RequestError, nearest

__all__ = ["Part", "Scope", "TrainPart", "all_but_last", "part_step"]

Part: TypeAlias = Literal["chosen", "rest"]


@dataclass(frozen=True)
class Scope:
    """A division of the flat model vector into a chosen part and the rest.

    Attributes:
        size: P, of the whole vector.
        chosen: ``[P_c]`` positions of chosen entries, None for all.
        rest: ``[P - P_c]`` positions of the others.
    """

    size: int
    chosen: Tensor | None
    rest: Tensor | None

    @classmethod
    def of(cls, layout: Layout, scope: str, key: str = "method.scope") -> Scope:
        """From a key's value: ``all``, ``last`` (the last layer), or prefixes of tensor names joined by ``+``.

        >>> layout = Layout.of({"hidden.0.weight": torch.zeros(2, 3), "fc.weight": torch.zeros(1, 2)})
        >>> Scope.of(layout, "last").chosen
        tensor([6, 7])
        """
        if scope == "all":
            return cls(layout.size, None, None)
        last = layout.names[-1].rpartition(".")[0] or "+".join(layout.names)  # a bare layer's tensors have no prefix
        prefixes = (last if scope == "last" else scope).split("+")
        inside = torch.zeros(layout.size, dtype=torch.bool)
        if not all(prefixes) and len(layout.names) > 1:
            raise RequestError(f"{key}='{scope}' has an empty name; allowed: all, last, or names joined by '+'")
        for prefix in prefixes:
            names = [name for name in layout.names if name == prefix or name.startswith(prefix + ".")]
            if not names:
                heads = list(dict.fromkeys(part for name in layout.names for part in _prefixes(name)))
                close = nearest(prefix, heads)
                hint = f"did you mean '{close}'? " if close else ""
                raise RequestError(
                    f"{key}={scope}: no tensor of the network begins with '{prefix}'; {hint}"
                    f"allowed: all, last, or names joined by '+' out of {', '.join(heads[:12])}"
                )
            for name in names:
                inside[layout.slices[name]] = True
        if bool(inside.all()):
            return cls(layout.size, None, None)
        return cls(layout.size, inside.nonzero().squeeze(-1), (~inside).nonzero().squeeze(-1))

    @property
    def chosen_size(self) -> int:
        """P_c."""
        return self.size if self.chosen is None else len(self.chosen)

    def split(self, params: Tensor) -> tuple[Tensor, Tensor | None]:
        """``[..., P]`` into the chosen part and the rest (None if there is none)."""
        if self.chosen is None or self.rest is None:
            return params, None
        return params[..., beside(self.chosen, params)], params[..., beside(self.rest, params)]

    def join(self, chosen: Tensor, rest: Tensor | None) -> Tensor:
        """The inverse of `split`; leading dims are broadcast."""
        if self.chosen is None or self.rest is None or rest is None:
            return chosen
        lead = torch.broadcast_shapes(chosen.shape[:-1], rest.shape[:-1])
        both = torch.cat([chosen.expand(*lead, -1), rest.expand(*lead, -1)], dim=-1)
        return both[..., beside(self._order, both)]

    @cached_property
    def _order(self) -> Tensor:
        """Where every parameter is when the rest stands behind the chosen part."""
        assert self.chosen is not None
        assert self.rest is not None
        return torch.argsort(torch.cat([self.chosen, self.rest]))


def all_but_last(layout: Layout) -> str:
    """The scope of everything but the last layer.

    >>> all_but_last(Layout.of({"hidden.0.weight": torch.zeros(2, 3), "fc.weight": torch.zeros(1, 2)}))
    'hidden.0.weight'
    """
    last = layout.names[-1].rpartition(".")[0]
    body = [name for name in layout.names if name.rpartition(".")[0] != last]
    if not body:
        raise RequestError(f"the network has a single layer ('{last}'); without it nothing is left")
    return "+".join(body)


def _prefixes(name: str) -> list[str]:
    words = name.split(".")
    return [".".join(words[: i + 1]) for i in range(len(words))]


class TrainPart(Method):
    """A local programme: SGD on the chosen part of a model or on the rest, the other stays as it is."""

    def __init__(self, scope: Scope, part: Part) -> None:
        super().__init__()
        self.scope, self.part = scope, part

    def step(self, carry: Iterate, download: Model, client: Tree, batches: tuple[Batch, ...], local: Local) -> Iterate:
        """Only its part moves."""
        return part_step(self.scope, self.part, carry, batches, local)


def part_step(
    scope: Scope, part: Part, carry: Iterate, batches: tuple[Batch, ...], local: Local, track: bool = True
) -> Iterate:
    """One step in which the other part has no gradient, is not decayed and does not count in clipping.

    With `track` BatchNorm's running statistics follow.
    """
    place = 0 if part == "chosen" else 1

    def only(moving: Tensor, fixed: Tensor) -> Tensor:
        parts = [scope.split(fixed)[0], scope.split(fixed)[1]]
        parts[place] = scope.split(moving)[place]
        assert parts[0] is not None
        return scope.join(parts[0], parts[1])

    gradient = local.grad(carry.params, batches[0], track=track)
    stepped = local.sgd(carry, only(gradient, torch.zeros_like(gradient)))
    return Iterate(only(stepped.params, carry.params), stepped.velocity)
