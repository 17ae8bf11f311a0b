"""Hundreds of messages that are no uploads, from one that is: what a liar, a bug or a bad line may send."""

from __future__ import annotations

import collections
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

Upload = dict[str, Tensor]
Maker = Callable[[Upload], object]


class Evil(Tensor):
    """Does something nasty when touched."""

    @classmethod
    def __torch_function__(cls, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("touched")


class Lying(Tensor):
    """Says that everything is fine."""

    @property
    def shape(self) -> Any:  # type: ignore[override]
        return torch.Size([1])


class NoItems(dict[str, Any]):
    """A dictionary that cannot be walked through."""

    def items(self) -> Any:
        raise RuntimeError("no items")

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("no walk")


class NoValue(dict[str, Any]):
    """A dictionary that does not give out what it holds."""

    def __getitem__(self, name: str) -> Any:
        raise MemoryError


class Endless(Mapping[str, Any]):
    """A mapping with no end."""

    def __getitem__(self, name: str) -> Any:
        return None

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[str]:
        number = 0
        while True:
            yield f"{number}"
            number += 1


class Unprintable:
    """Cannot be shown."""

    def __repr__(self) -> str:
        raise ValueError("no")

    def __eq__(self, other: object) -> bool:
        raise ValueError("no")

    __hash__ = object.__hash__


def _emptied(value: Tensor) -> Tensor:
    """A tensor whose memory was taken away."""
    gone = value.clone()
    gone.untyped_storage().resize_(0)
    return gone


def _values() -> dict[str, Callable[[Tensor], object]]:
    """What may stand in a tensor's place."""

    def holding(value: float, where: Any) -> Callable[[Tensor], Tensor]:
        def make(tensor: Tensor) -> Tensor:
            changed = tensor.clone()
            changed.view(-1)[where] = value
            return changed

        return make

    made: dict[str, Callable[[Tensor], object]] = {}
    bad = (torch.nan, torch.inf, -torch.inf, 1e30, -1e30, 3e38, 1.1e10, -1e12, 1e17)
    places = (
        ("first", 0),
        ("second", 1),
        ("last", -1),
        ("middle", slice(1, -1)),
        ("all", slice(None)),
        ("every second", slice(None, None, 2)),
    )
    for value in bad:
        for name, where in places:
            made[f"{value} {name}"] = holding(value, where)
    for dtype in (
        torch.float16, torch.bfloat16, torch.float32, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64,
        torch.bool, torch.complex64, torch.complex128, torch.float8_e4m3fn,
    ):  # fmt: skip
        made[f"{dtype}"] = lambda t, dtype=dtype: t.to(dtype)
    shapes: dict[str, Callable[[Tensor], Tensor]] = {
        "0-d": lambda t: t.reshape(-1)[0],
        "empty": lambda t: t.reshape(-1)[:0],
        "one value": lambda t: t.reshape(-1)[:1],
        "one short": lambda t: t[:-1],
        "one more": lambda t: torch.cat([t, t[:1]]),
        "twice": lambda t: torch.cat([t, t]),
        "axis before": lambda t: t[None],
        "axis after": lambda t: t[..., None],
        "two axes before": lambda t: t[None, None],
        "many axes": lambda t: t.reshape(*[1] * 40, -1),
        "no rows": lambda t: t[None][:0],
        "claims a million": lambda t: t.reshape(-1)[:1].expand(10**6),
        "claims 1e15": lambda t: t.reshape(-1)[:1].expand(10**15),
        "claims rows": lambda t: t.expand(10**9, *t.shape),
        "square": lambda t: torch.outer(t.reshape(-1), t.reshape(-1)),
        "half": lambda t: t[: len(t) // 2],
    }
    made |= {f"shape {name}": change for name, change in shapes.items()}
    made |= {f"array {name}": lambda t, change=change: change(t).numpy() for name, change in shapes.items()}
    arrays: dict[str, Callable[[Any], object]] = {
        "object": lambda a: a.astype(object),
        "objects": lambda a: np.array([object()] * len(a)),
        "text": lambda a: a.astype(str),
        "bytes": lambda a: a.astype("S8"),
        "half": lambda a: a.astype(np.float16),
        "single": lambda a: a.astype(np.float32),
        "long double": lambda a: a.astype(np.longdouble),
        "big-endian": lambda a: a.astype(">f8"),
        "integer": lambda a: a.astype(np.int64),
        "bool": lambda a: a.astype(bool),
        "complex": lambda a: a.astype(complex),
        "dates": lambda a: a.astype("datetime64[s]"),
        "record": lambda a: a.view([("x", "f8")]),
        "matrix": np.asmatrix,
        "masked": lambda a: np.ma.masked_array(a, a > 0),
        "scalar": lambda a: np.float64(a.reshape(-1)[0]),
        "NaN": lambda a: a * np.nan,
        "infinite": lambda a: a * 0 + np.inf,
        "huge": lambda a: a * 0 - 1e30,
        "backwards NaN": lambda a: (a * np.nan)[::-1],
        "bytes of it": lambda a: a.tobytes(),
        "list": lambda a: a.tolist(),
    }
    made |= {f"an array: {name}": lambda t, change=change: change(t.numpy().copy()) for name, change in arrays.items()}
    made |= {
        "sparse": lambda t: t.to_sparse(),
        "csr": lambda t: t.reshape(1, -1).to_sparse_csr(),
        "nested": lambda t: torch.nested.nested_tensor([t, t]),
        "quantised": lambda t: torch.quantize_per_tensor(t.float(), 0.1, 0, torch.qint8),
        "meta": lambda t: t.to("meta"),
        "meta parameter": lambda t: nn.Parameter(t.to("meta")),
        "evil": lambda t: t.as_subclass(Evil),
        "lying": lambda t: t.as_subclass(Lying),
        "emptied": _emptied,
        "requires grad, NaN": lambda t: t.clone().requires_grad_() * torch.nan,
        "zero stride, NaN": lambda t: torch.full((1,), torch.nan, dtype=t.dtype).expand(t.shape),
        "module": lambda t: nn.Linear(2, 2),
        "generator": lambda t: (x for x in t),
        "function": lambda t: t.sum,
        "tensor class": lambda t: Tensor,
        "storage": lambda t: t.untyped_storage(),
        "list of tensors": lambda t: [t],
        "tuple": lambda t: (t,),
        "dict": lambda t: {"value": t},
        "none": lambda t: None,
        "text": lambda t: "0.5",
        "number": lambda t: 0.5,
        "integer": lambda t: 1,
        "true": lambda t: True,
        "bytes": lambda t: b"\x00" * 8,
        "bytearray": lambda t: bytearray(8),
        "memory": lambda t: memoryview(t.numpy().copy()),
        "set": lambda t: {1.0},
        "unprintable": lambda t: Unprintable(),
        "exception": lambda t: ValueError("x"),
        "range": lambda t: range(3),
    }
    return made


def _wholes() -> dict[str, Maker]:
    """What may stand in the place of the whole message; the first tensor's name is given a twist."""

    def renamed(change: Callable[[str], Any]) -> Maker:
        return lambda u: {change(name) if i == 0 else name: value for i, (name, value) in enumerate(u.items())}

    long, odd = "x" * 10_000, "\ud800\x00\n\u202e"
    made: dict[str, Maker] = {
        "missing": lambda u: dict(list(u.items())[1:]),
        "empty": lambda u: {},
        "nothing": lambda u: None,
        "pairs": lambda u: list(u.items()),
        "values": lambda u: list(u.values()),
        "tensor": lambda u: next(iter(u.values())),
        "array": lambda u: next(iter(u.values())).numpy(),
        "text": lambda u: "params",
        "long text": lambda u: long,
        "bytes": lambda u: b"\x80\x04",
        "number": lambda u: 3,
        "NaN": lambda u: float("nan"),
        "true": lambda u: True,
        "class": lambda u: dict,
        "set": set,
        "names": tuple,
        "items": lambda u: u.items(),
        "lambda": lambda u: lambda: u,
        "object": lambda u: object(),
        "unprintable": lambda u: Unprintable(),
        "namespace": lambda u: types.SimpleNamespace(**{"params": 1}),
        "nested": lambda u: {"upload": u},
        "nested under its name": lambda u: {name: {name: value} for name, value in u.items()},
        "dotted": renamed(lambda name: f".{name}"),
        "capital": renamed(str.upper),
        "plural": renamed(lambda name: f"{name}s"),
        "spaced": renamed(lambda name: f" {name}"),
        "unsent": lambda u: {**u, "start": next(iter(u.values()))},
        "extra": lambda u: {**u, "extra": torch.zeros(1)},
        "extra none": lambda u: {**u, "extra": None},
        "extra empty name": lambda u: {**u, "": torch.zeros(1)},
        "extra number": lambda u: {**u, 0: torch.zeros(1)},
        "extra tuple": lambda u: {**u, (1, 2): torch.zeros(1)},
        "extra nothing": lambda u: {**u, None: torch.zeros(1)},
        "extra bytes": lambda u: {**u, b"params": torch.zeros(1)},
        "extra unprintable": lambda u: {**u, Unprintable(): torch.zeros(1)},
        "extra long": lambda u: {**u, long: torch.zeros(1)},
        "extra odd": lambda u: {**u, odd: torch.zeros(1)},
        "ten thousand extra": lambda u: {**u, **{str(i): torch.zeros(1) for i in range(10_000)}},
        "no items": NoItems,
        "no value": NoValue,
        "default dict": lambda u: collections.defaultdict(lambda: torch.zeros(3)),
        "counter": lambda u: collections.Counter(u.keys()),
        "ordered, renamed": lambda u: collections.OrderedDict((f"{name}_", value) for name, value in u.items()),
        "proxy, empty": lambda u: types.MappingProxyType({}),
        "chain, extra": lambda u: collections.ChainMap(u, {"extra": torch.zeros(1)}),
        "endless": lambda u: Endless(),
        "module's": lambda u: nn.Linear(3, 2).state_dict(),
        "module": lambda u: nn.Linear(3, 2),
    }
    return made


def garbage() -> dict[str, Maker]:
    """By name: a message made from a good one that no server may use."""

    def one(change: Callable[[Tensor], object], last: bool) -> Maker:
        def make(upload: Upload) -> object:
            name = list(upload)[-1 if last else 0]
            return {**upload, name: change(upload[name])}

        return make

    made = {f"whole: {name}": maker for name, maker in _wholes().items()}
    return made | {f"value: {name}": one(change, i % 2 == 1) for i, (name, change) in enumerate(_values().items())}


def oddities() -> dict[str, Maker]:
    """Unusual messages that say the same as the good one."""

    def every(change: Callable[[Tensor], object]) -> Maker:
        return lambda upload: {name: change(value) for name, value in upload.items()}

    def frozen(value: Tensor) -> object:
        array = value.numpy().copy()
        array.flags.writeable = False
        return array

    return {
        "as it is": lambda u: u,
        "other order": lambda u: dict(reversed(list(u.items()))),
        "ordered": collections.OrderedDict,
        "proxy": types.MappingProxyType,
        "chain": collections.ChainMap,
        "requires grad": every(lambda t: t.clone().requires_grad_()),
        "parameter": every(lambda t: nn.Parameter(t.clone())),
        "with a history": every(lambda t: t.clone().requires_grad_() * 1),
        "array": every(lambda t: t.numpy().copy()),
        "read-only array": every(frozen),
        "negative strides": every(lambda t: t.numpy()[::-1].copy()[::-1]),
        "strided": every(lambda t: torch.stack([t, t], dim=-1)[..., 0]),
        "strided array": every(lambda t: np.stack([t.numpy(), t.numpy()], axis=-1)[..., 0]),
        "in a large storage": every(lambda t: torch.cat([t, t, t])[len(t) : 2 * len(t)]),
    }
