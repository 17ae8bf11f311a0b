"""Clients in this very process, over real bytes: for tests, and to see what a federation would do."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from panacea.data.federation import Federation
from panacea.deploy.orders import Failure, Log, Order, Packed, Reply
from panacea.deploy.site import Site, answer, write_site
from panacea.deploy.site_data import write_client_data
from panacea.deploy.wire import array_bytes

__all__ = ["InProcess", "write_sites"]


def write_sites(federation: Federation, folder: Path) -> dict[str, Path]:
    """A folder for every client of a federation, with its samples and its `client.yaml`; by name.

    Folders are named by number and name, of which only plain characters are kept.
    """
    found = {}
    for client, name in enumerate(federation.names):
        plain = "".join(c if c.isalnum() or c in "-_" else "-" for c in name)[:40]
        own = folder / f"{client:04d}-{plain}"
        write_client_data(federation, client, own / "data")
        write_site(own, Site(name, own / "data", own / "state"))
        found[name] = own
    return found


class InProcess:
    """A transport without a network: every order and reply is turned into bytes and back.

    Attributes:
        sites: of the clients, by number.
        answers: how a client answers; tests put liars here.
        asked: how many orders each client was sent.
        bytes_down, bytes_up: of all arrays.
    """

    def __init__(self, sites: Sequence[Site], answers: Mapping[int, Callable[[Order], object]] | None = None) -> None:
        self.sites, self.answers = list(sites), dict(answers or {})
        self.asked = [0] * len(sites)
        self.bytes_down = self.bytes_up = 0

    def begin(self, names: Sequence[str], log: Log) -> None:
        """Nothing to connect."""

    def exchange(self, orders: Mapping[int, Order], deadline: float) -> Mapping[int, Reply | Failure]:
        """One client after the other; None as an answer is a client that never answers."""
        came: dict[int, Reply | Failure] = {}
        for client, order in orders.items():
            self.asked[client] += 1
            self.bytes_down += array_bytes(order.arrays)
            give = self.answers.get(client, lambda order, site=self.sites[client]: answer(order, site))
            reply = give(_order(_bytes(order)))
            if isinstance(reply, Reply):
                self.bytes_up += array_bytes(reply.arrays)
                came[client] = _reply(_bytes(reply))
            elif isinstance(reply, Failure):
                came[client] = reply
        return came


def _bytes(message: Order | Reply) -> bytes:
    """A line of JSON with all but the arrays' contents, and these behind it."""
    plain = {key: value for key, value in vars(message).items() if key != "arrays"}
    index = [[name, p.dtype, list(p.shape), len(p.data)] for name, p in message.arrays.items()]
    start = json.dumps({"plain": plain, "arrays": index}).encode()
    return start + b"\n" + b"".join(p.data for p in message.arrays.values())


def _parts(data: bytes) -> tuple[dict[str, object], dict[str, Packed]]:
    start, _, rest = data.partition(b"\n")
    read, arrays, place = json.loads(start), {}, 0
    for name, dtype, shape, size in read["arrays"]:
        arrays[name] = Packed(dtype, tuple(shape), rest[place : place + size])
        place += size
    return read["plain"], arrays


def _order(data: bytes) -> Order:
    plain, arrays = _parts(data)
    return Order(**{**plain, "asks": tuple(plain["asks"])}, arrays=arrays)  # type: ignore[arg-type]


def _reply(data: bytes) -> Reply:
    plain, arrays = _parts(data)
    return Reply(**plain, arrays=arrays)  # type: ignore[arg-type]
