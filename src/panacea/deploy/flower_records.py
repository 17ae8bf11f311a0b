"""Orders and replies as Flower's records, both ways. Arrays stay ``.npy`` bytes: nothing here decodes one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from panacea.deploy.orders import ASKED, Asked, Failure, Order, Packed, Reply

__all__ = ["WRONG", "order_of", "order_records", "reply_of", "reply_records"]

NUMPY = "numpy.ndarray"  # Flower's word for arrays that travel as .npy bytes
WRONG = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
"""What reading a record that is not as it should be can raise."""


def _to_arrays(packed: Mapping[str, Packed]) -> ArrayRecord:
    return ArrayRecord({n: Array(dtype=p.dtype, shape=p.shape, stype=NUMPY, data=p.data) for n, p in packed.items()})


def _to_packed(records: RecordDict) -> dict[str, Packed]:
    packed = {}
    for name, array in records.array_records["arrays"].items():
        if array.stype != NUMPY:
            raise ValueError(f"array {name!r} is of the kind {array.stype!r}")
        packed[name] = Packed(str(array.dtype), tuple(int(n) for n in array.shape), bytes(array.data))
    return packed


def order_records(order: Order) -> RecordDict:
    """An order, ready to send."""
    words = ConfigRecord({
        "client": order.client, "name": order.name, "round": order.round, "asks": [str(what) for what in order.asks],
        "settings": order.settings,
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


def reply_records(reply: Reply | Failure, name: str) -> RecordDict:
    """An answer, ready to send, with the name of the client that gives it."""
    if isinstance(reply, Failure):
        return RecordDict({"reply": ConfigRecord({"name": name, "failure": reply.reason})})
    return RecordDict({
        "reply": ConfigRecord({"name": name, "text": reply.text}),
        "numbers": MetricRecord({key: float(value) for key, value in reply.numbers.items()}),
        "arrays": _to_arrays(reply.arrays),
    })  # fmt: skip


def reply_of(records: RecordDict) -> tuple[str, Reply | Failure]:
    """The name that an answer claims, and the answer; raises one of `WRONG` if it is none."""
    words = records.config_records["reply"]
    name = words["name"]
    if not isinstance(name, str):
        raise TypeError("the name is not text")
    if "failure" in words:
        return name, Failure(" ".join(str(words["failure"]).split())[:300])
    numbers = records.metric_records["numbers"]
    if any(isinstance(value, list) for value in numbers.values()):
        raise TypeError("a number is a list")
    plain = {key: float(cast("float", value)) for key, value in numbers.items()}
    return name, Reply(_to_packed(records), plain, str(words["text"]))
