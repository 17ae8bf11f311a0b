"""What two runs have in common: whether their clients can be rows of one call."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from torch import Tensor

from panacea.core.method import Method
from panacea.core.records import leaves
from panacea.engines.requests import Request
from panacea.engines.vectorised import VectorisedEngine

__all__ = ["same_local", "same_network", "same_programme", "same_shapes"]


def same_network(engine: VectorisedEngine, other: VectorisedEngine) -> bool:
    """Whether their networks have one shape, one task, and are run alike."""
    return (
        engine.target.task == other.target.task
        and engine.target.layout == other.target.layout
        and engine.target.statistics_layout == other.target.statistics_layout
        and type(engine.target.original) is type(other.target.original)
        and engine.forward.kind == other.forward.kind
    )


def same_local(a: Request, b: Request) -> bool:
    """Whether they train alike, but for the rate and the number of steps."""
    names = ("batch_size", "momentum", "weight_decay", "clip", "frozen_statistics")
    return a.local is b.local or all(getattr(a.local, name) == getattr(b.local, name) for name in names)


def same_shapes(a: Request, b: Request) -> bool:
    """Whether what their clients are given could be rows of the same tensors."""
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
