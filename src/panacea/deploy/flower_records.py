"""Orders and replies as Flower's records, both ways. Arrays stay ``.npy`` bytes: nothing here decodes one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import cast

from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from panacea.deploy.orders import ASKED, Asked, Failure, Order, Packed, Reply

__all__ = ["WRONG", "nonce_of", "order_of", "order_records", "reply_of", "reply_records"]

NUMPY = "numpy.ndarray"  # Flower's word for arrays that travel as .npy bytes
WRONG = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
"""What reading a record that is not as it should be can raise."""

_MOST_ARRAYS = 10_000
_HEADER = 1024  # bytes of an .npy header, at most
_BYTES = {
    "bool": 1, "uint8": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "float16": 2, "float32": 4, "float64": 8,
}  # fmt: skip


def _to_arrays(packed: Mapping[str, Packed]) -> ArrayRecord:
    return ArrayRecord({n: Array(dtype=p.dtype, shape=p.shape, stype=NUMPY, data=p.data) for n, p in packed.items()})


def _to_packed(records: RecordDict) -> dict[str, Packed]:
    """Arrays as they came: how many, what they are declared to be and their size are looked at before any byte."""
    arrays = records.array_records["arrays"]
    if len(arrays) > _MOST_ARRAYS:
        raise ValueError(f"{len(arrays)} arrays")
    for name, array in arrays.items():
        if array.stype != NUMPY:
            raise ValueError(f"array {name!r} is of the kind {array.stype!r}")
        if not all(type(n) is int and n >= 0 for n in array.shape):
            raise ValueError(f"array {name!r} has no shape")
        size = math.prod(array.shape) * _bytes_each(name, array.dtype)
        if not size < len(array.data) <= size + _HEADER:
            raise ValueError(f"array {name!r} has {len(array.data)} bytes where {size} and a header are declared")
    return {name: Packed(array.dtype, tuple(array.shape), bytes(array.data)) for name, array in arrays.items()}


def _bytes_each(name: str, dtype: object) -> int:
    if dtype not in _BYTES:
        raise ValueError(f"array {name!r} has the type {dtype!r}")
    return _BYTES[str(dtype)]


def order_records(order: Order, nonce: str = "") -> RecordDict:
    """An order, ready to send, with a number that nobody can guess: an answer must have it."""
    words = ConfigRecord({
        "client": order.client, "name": order.name, "round": order.round, "asks": [str(what) for what in order.asks],
        "settings": order.settings, "nonce": nonce,
    })  # fmt: skip
    return RecordDict({"order": words, "arrays": _to_arrays(order.arrays)})


def order_of(records: RecordDict) -> Order:
    """An order that came; raises one of `WRONG` if it is none."""
    words = records.config_records["order"]
    asks = cast("list[Asked]", words["asks"])
    if not set(asks) <= set(ASKED):
        raise ValueError(f"asked for {', '.join(map(str, asks))}")
    client, name, round, settings = (words[key] for key in ("client", "name", "round", "settings"))
    if not (isinstance(client, int) and isinstance(round, int) and isinstance(name, str) and isinstance(settings, str)):
        raise TypeError("a field of the order has another type")
    return Order(client, name, round, tuple(asks), settings, _to_packed(records))


def nonce_of(records: RecordDict) -> str:
    """The number of an order that came; nothing if it has none."""
    try:
        return str(records.config_records["order"]["nonce"])
    except WRONG:
        return ""


def reply_records(reply: Reply | Failure, name: str, nonce: str = "") -> RecordDict:
    """An answer, ready to send, with the name of the client that gives it and the number of the order."""
    if isinstance(reply, Failure):
        return RecordDict({"reply": ConfigRecord({"name": name, "nonce": nonce, "failure": reply.reason})})
    return RecordDict({
        "reply": ConfigRecord({"name": name, "nonce": nonce, "text": reply.text}),
        "numbers": MetricRecord({key: float(value) for key, value in reply.numbers.items()}),
        "arrays": _to_arrays(reply.arrays),
    })  # fmt: skip


def reply_of(records: RecordDict) -> tuple[str, str, Reply | Failure]:
    """The name that an answer claims, the number that it echoes, and the answer; raises one of `WRONG` if none."""
    words = records.config_records["reply"]
    name, nonce = words["name"], words["nonce"]
    if not (isinstance(name, str) and isinstance(nonce, str)):
        raise TypeError("the name is not text")
    if "failure" in words:
        return name, nonce, Failure(" ".join(str(words["failure"]).split())[:300])
    numbers = records.metric_records["numbers"]
    if any(isinstance(value, list) for value in numbers.values()):
        raise TypeError("a number is a list")
    plain = {key: float(cast("float", value)) for key, value in numbers.items()}
    return name, nonce, Reply(_to_packed(records), plain, str(words["text"]))
