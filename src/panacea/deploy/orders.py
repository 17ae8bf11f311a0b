"""What server and clients say to each other, and the transport that carries it. Imports neither torch nor Flower.

The server sends an `Order` to a client and gets a `Reply`, or a `Failure` with one line that says why there is none.
Nothing in them is code and nothing is unpickled: text, numbers, and arrays as ``.npy`` bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

__all__ = ["ASKED", "Asked", "Failure", "Log", "Order", "Packed", "Reply", "Transport"]

Asked: TypeAlias = Literal["hello", "train", "evaluate", "alternatives"]
ASKED: tuple[Asked, ...] = ("hello", "train", "evaluate", "alternatives")


@dataclass(frozen=True)
class Packed:
    """One array as it travels.

    Attributes:
        dtype: declared type, a NumPy name (``float32``). The sender chose it: `panacea.deploy.wire` checks it.
        shape: declared shape, likewise.
        data: the array as ``.npy`` bytes, which say type and shape a second time.
    """

    dtype: str
    shape: tuple[int, ...]
    data: bytes


@dataclass(frozen=True)
class Order:
    """What the server asks of one client, in one message.

    Attributes:
        client: the client's number in the roster, from 0.
        name: its name there; a client refuses an order for another name.
        round: the round's number: of the training if `train` is asked (from 1), else of the evaluated state (from 0).
        asks: one or more of `ASKED`. ``hello`` comes alone. With ``("evaluate", "train")`` the evaluation is of the
            state after round ``round - 1``, and comes first. ``alternatives`` (`Method.alternatives`) go with an
            evaluation.
        settings: the run's settings and the task as JSON text, the same for all clients and rounds of a run.
        arrays: by name; the name's head says what for: ``download`` is trained from, ``own`` or ``model`` (the first
            made into a model by the client itself) is evaluated, or ``download`` where it is the same; ``admitted`` is
            a newcomer's model; ``statistics`` are BatchNorm's.
    """

    client: int
    name: str
    round: int
    asks: tuple[Asked, ...]
    settings: str = "{}"
    arrays: Mapping[str, Packed] = field(default_factory=dict)


@dataclass(frozen=True)
class Reply:
    """What a client answers.

    Attributes:
        arrays: by name: ``upload.params``, ``statistics``, ...; empty if only numbers were asked for.
        numbers: by name: ``loss``, ``test.metric``, ``train.count``, ...; all finite floats, values that are missing
            (a split without samples) are left out.
        text: one short line for the log, where the client has something to say; or nothing.
    """

    arrays: Mapping[str, Packed] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)
    text: str = ""


@dataclass(frozen=True)
class Failure:
    """No reply, and why: one line, for the log and for `refused.jsonl`.

    Attributes:
        reason: the line.
        away: the transport knows that the client cannot be reached at all. Asking again costs nothing, so such a client
            is waited for and is not left alone for a while. Never set by what a client says.
    """

    reason: str
    away: bool = False


class Log(Protocol):
    """`federation.jsonl`; see `panacea.deploy.log`."""

    def note(self, event: str, detail: str = "", client: str | None = None, round: int | None = None) -> None:
        """Add a line with the time; the round is that at hand unless one is given."""
        ...


class Transport(Protocol):
    """How orders get to clients. It knows nothing of methods, and looks at no array."""

    def begin(self, names: Sequence[str], log: Log) -> None:
        """Called before the first exchange, and again with more names when a client joined.

        Args:
            names: of all clients; a client's number is its position.
            log: where to note what happens to connections: a client that came or left, an intruder, ...
        """
        ...

    def exchange(self, orders: Mapping[int, Order], deadline: float) -> Mapping[int, Reply | Failure]:
        """Send all orders at once, wait, and return what came; by client number.

        Args:
            orders: at most one a client.
            deadline: seconds to wait at most, from now.

        Returns:
            For each client its `Reply`, or a `Failure` where it is known that none will come (the client refused or
            broke, it is not connected). A client that is absent did not answer in time. Only answers to these very
            orders are returned: one that comes late, to an order of before, is dropped. Nothing a client sends or does
            raises an error here.
        """
        ...
