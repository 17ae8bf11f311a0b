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
_LOOK = 0.05  # seconds between looks for clients that are not connected, at least


class _Away(Refused):
    """There is no way to the client at present."""


class Desk:
    """The server's counter: everything between an order and a reply that may be used."""

    def __init__(self, transport: Transport, names: Sequence[str], patience: Patience, log: FederationLog) -> None:
        self.transport, self.names, self.patience, self.log = transport, names, patience, log
        self.backoff = BackOff(patience.longest_backoff)
        self.heard: set[int] = set()  # who answered soundly, ever
        self._away: set[int] = set()

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
            except _Away as away:
                reasons[client] = plain(away, _REASON)
                self._miss(client, reasons[client])
            except Refused as refused:
                reasons[client] = plain(refused, _REASON)
                self._away.discard(client)  # it is there, and fails
                pause = self.backoff.missed(client)
                self.log.note("failed", f"{reasons[client]}; left out of the next {pause}", self.names[client])
            else:
                self.heard.add(client)
                if self.backoff.answered(client) or client in self._away:
                    self._away.discard(client)
                    self.log.note("back", "it answers again", self.names[client])
        return found, reasons

    def ask_enough(
        self,
        orders: Mapping[int, Order],
        check: Callable[[int, Reply], _T],
        needed: int,
        *,
        everyone: bool = False,
        found: Mapping[int, _T] | None = None,
        reasons: Mapping[int, str] | None = None,
    ) -> tuple[dict[int, _T], dict[int, str]]:
        """As `ask`, and those again whose replies are missing, until enough are sound or patience is at its end.

        Args:
            orders: one for each client.
            check: as of `ask`.
            needed: how many are enough; who calls must look whether there are.
            everyone: as of `ask`; from the second time on, everyone is asked.
            found: what is there already.
            reasons: of those who were asked already and did not answer.
        """
        sound, missing = dict(found or {}), dict(reasons or {})

        def again(clients: list[int], everyone: bool) -> None:
            came, why = self.ask({client: orders[client] for client in clients}, check, everyone=everyone)
            sound.update(came)
            missing.update(why)
            for client in came:
                missing.pop(client, None)

        again([client for client in orders if client not in sound and client not in missing], everyone)
        end, attempts, waited = time.monotonic() + self.patience.start, 0, False
        while len(sound) < needed:
            said = f"{len(sound)} of {len(orders)} clients answered soundly, {needed} are needed"
            away, left = sorted(self._away & set(missing)), end - time.monotonic()
            if away and left > 0:
                if not waited:
                    self.log.note("waiting", f"{said}; {len(away)} are not connected")
                waited = True
                time.sleep(min(max(self.patience.pause, _LOOK), left))
                again(away, True)
                continue
            if attempts >= self.patience.attempts:
                break
            self.log.note("below quorum", f"{said}; asking again")
            attempts += 1
            self.rest()
            again(sorted(missing), True)
        return sound, missing

    def _miss(self, client: int, reason: str) -> None:
        """Nobody waits for one that is not connected, so it is asked the next time as well; noted once."""
        if client not in self._away:
            self._away.add(client)
            self.log.note("away", reason, self.names[client])

    def _reply(self, came: object, wait: float) -> Reply:
        if came is None:
            raise Refused(f"no reply in {wait:g} s")
        if isinstance(came, Failure) and came.away:
            raise _Away(plain(came.reason, _REASON) or "not connected")
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
