"""Asking clients: orders out, replies in, each checked; who failed is remembered and left alone for a while."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from panacea.deploy.backoff import BackOff
from panacea.deploy.log import FederationLog
from panacea.deploy.orders import Failure, Order, Reply, Transport
from panacea.deploy.patience import Patience
from panacea.deploy.wire import Refused, plain

__all__ = ["Desk"]

_T = TypeVar("_T")
_REASON = 160  # characters


class Desk:
    """The server's counter: everything between an order and a reply that may be used."""

    def __init__(self, transport: Transport, names: Sequence[str], patience: Patience, log: FederationLog) -> None:
        self.transport, self.names, self.patience, self.log = transport, names, patience, log
        self.backoff = BackOff(patience.longest_backoff)

    def ask(
        self,
        orders: Mapping[int, Order],
        check: Callable[[int, Reply], _T],
        *,
        everyone: bool = False,
        deadline: float | None = None,
    ) -> tuple[dict[int, _T], dict[int, str]]:
        """What came and was sound, and why there is nothing from the others; by client.

        Args:
            orders: one for each client.
            check: what is made of a client's reply; raises `Refused`.
            everyone: ask those as well who are to be left alone.
            deadline: seconds; by default as patience has it.
        """
        wait = self.patience.deadline if deadline is None else deadline
        found: dict[int, _T] = {}
        reasons: dict[int, str] = {}
        for client in orders:
            if not everyone and self.backoff.skipped(client):
                reasons[client] = "not asked, as it failed before"
                self.log.note("skipped", reasons[client], self.names[client])
        asked = {client: order for client, order in orders.items() if client not in reasons}
        came = self.transport.exchange(asked, wait) if asked else {}
        for client in asked:
            try:
                found[client] = check(client, self._reply(came.get(client), wait))
            except Refused as refused:
                reasons[client] = plain(refused, _REASON)
                pause = self.backoff.missed(client)
                self.log.note("failed", f"{reasons[client]}; left out of the next {pause}", self.names[client])
            else:
                if self.backoff.answered(client):
                    self.log.note("back", "it answers again", self.names[client])
        return found, reasons

    def _reply(self, came: object, wait: float) -> Reply:
        if came is None:
            raise Refused(f"no reply in {wait:g} s")
        if isinstance(came, Failure):
            raise Refused(plain(came.reason, _REASON) or "it failed")
        if type(came) is not Reply:
            raise Refused("not a reply")
        return came

    def told(self, client: int, reply: Reply) -> None:
        """Log what a client says of itself."""
        if reply.text:
            self.log.note("told", reply.text, self.names[client])

    def rest(self) -> None:
        """Before another attempt."""
        time.sleep(self.patience.pause)
