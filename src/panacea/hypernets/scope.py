"""Scope: which tensors of the target network the hypernetwork generates, and what happens to the others."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from panacea.core.parameters import Layout
from panacea.errors import RequestError, nearest

__all__ = ["Scope", "all_but_last"]


@dataclass(frozen=True)
class Scope:
    """A division of the flat model vector into a generated part and the rest.

    Attributes:
        size: P, of the whole vector.
        generated: ``[P_g]`` positions of generated entries, None for all.
        rest: ``[P - P_g]`` positions of the others.
    """

    size: int
    generated: Tensor | None
    rest: Tensor | None

    @classmethod
    def of(cls, layout: Layout, scope: str) -> Scope:
        """From the key: ``all``, ``last`` (the last layer), or prefixes of tensor names joined by ``+``.

        >>> layout = Layout.of({"hidden.0.weight": torch.zeros(2, 3), "fc.weight": torch.zeros(1, 2)})
        >>> Scope.of(layout, "last").generated
        tensor([6, 7])
        """
        if scope == "all":
            return cls(layout.size, None, None)
        last = layout.names[-1].rpartition(".")[0] or "+".join(layout.names)  # a bare layer's tensors have no prefix
        prefixes = (last if scope == "last" else scope).split("+")
        chosen = torch.zeros(layout.size, dtype=torch.bool)
        if not all(prefixes) and len(layout.names) > 1:
            raise RequestError(f"method.scope='{scope}' has an empty name; allowed: all, last, or names joined by '+'")
        for prefix in prefixes:
            names = [name for name in layout.names if name == prefix or name.startswith(prefix + ".")]
            if not names:
                heads = list(dict.fromkeys(part for name in layout.names for part in _prefixes(name)))
                close = nearest(prefix, heads)
                hint = f"did you mean '{close}'? " if close else ""
                raise RequestError(
                    f"method.scope={scope}: no tensor of the network begins with '{prefix}'; {hint}"
                    f"allowed: all, last, or names joined by '+' out of {', '.join(heads[:12])}"
                )
            for name in names:
                chosen[layout.slices[name]] = True
        if bool(chosen.all()):
            return cls(layout.size, None, None)
        return cls(layout.size, chosen.nonzero().squeeze(-1), (~chosen).nonzero().squeeze(-1))

    @property
    def generated_size(self) -> int:
        """P_g."""
        return self.size if self.generated is None else len(self.generated)

    def split(self, params: Tensor) -> tuple[Tensor, Tensor | None]:
        """``[..., P]`` into the generated part and the rest (None if there is none)."""
        if self.generated is None or self.rest is None:
            return params, None
        return params[..., self.generated.to(params.device)], params[..., self.rest.to(params.device)]

    def join(self, generated: Tensor, rest: Tensor | None) -> Tensor:
        """The inverse of `split`; leading dims are broadcast."""
        if self.generated is None or self.rest is None or rest is None:
            return generated
        lead = torch.broadcast_shapes(generated.shape[:-1], rest.shape[:-1])
        both = torch.cat([generated.expand(*lead, -1), rest.expand(*lead, -1)], dim=-1)
        order = torch.argsort(torch.cat([self.generated, self.rest]))
        return both[..., order.to(both.device)]


def all_but_last(layout: Layout) -> str:
    """The scope of everything but the last layer.

    >>> all_but_last(Layout.of({"hidden.0.weight": torch.zeros(2, 3), "fc.weight": torch.zeros(1, 2)}))
    'hidden.0.weight'
    """
    last = layout.names[-1].rpartition(".")[0]
    body = [name for name in layout.names if name.rpartition(".")[0] != last]
    if not body:
        raise RequestError(f"the network has a single layer ('{last}'); without it nothing is left to generate")
    return "+".join(body)


def _prefixes(name: str) -> list[str]:
    words = name.split(".")
    return [".".join(words[: i + 1]) for i in range(len(words))]
