"""Orders over Flower's grid. A client is reached by the node id of its registered key, never by a claimed name."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from queue import Empty, SimpleQueue

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from panacea.deploy.deployment import Deployment
from panacea.deploy.flower_pulling import Arrived, Parcel, fetch, look
from panacea.deploy.flower_records import WRONG, order_records, reply_of
from panacea.deploy.orders import Failure, Log, Order, Reply
from panacea.deploy.wire import plain

__all__ = ["GridTransport"]

_POLL = 0.5  # seconds between looks for replies
_GRACE = 2.0  # seconds beyond the deadline for what was announced before it
_SLACK = 60.0  # seconds for which a message outlives its deadline
_WORDS = 160  # characters of a stranger's

_AWAY = Failure("not connected", away=True)
_Queue = SimpleQueue[tuple[str, "Arrived | Failure"]]


class GridTransport:
    """Orders to SuperNodes and their replies; see `panacea.deploy.orders.Transport`."""

    def __init__(self, grid: Grid, deployment: Deployment) -> None:
        self.grid, self.deployment = grid, deployment
        self.open = deployment.settings.insecure  # without keys, nodes are believed: loopback only
        self.most = deployment.settings.largest_reply
        self._refused: set[int] = set()
        self._claims: dict[int, str] = {}

    def begin(self, names: Sequence[str], log: Log) -> None:
        """Remember where to log."""
        self.names, self.log = list(names), log

    def exchange(self, orders: Mapping[int, Order], deadline: float) -> Mapping[int, Reply | Failure]:
        """Send all orders, wait, and return what came; see `Transport`."""
        end = time.monotonic() + deadline
        nodes, online = self._nodes(end)
        out: dict[int, Reply | Failure] = {}
        asked: dict[int, Message] = {}
        nonces: dict[int, str] = {}
        for client, order in orders.items():
            node = nodes.get(order.name)
            if node is None or node not in online:
                out[client] = _AWAY
                continue
            nonces[client] = secrets.token_hex(16)
            asked[client] = Message(
                order_records(order, nonces[client]), node, MessageType.TRAIN, ttl=deadline + _SLACK,
                group_id=str(order.round),
            )  # fmt: skip
        for client, reply in self._replies(asked, end).items():
            out[client] = self._checked(orders[client].name, asked[client], nonces[client], reply)
        return out

    def _replies(self, asked: Mapping[int, Message], end: float) -> dict[int, Arrived | Failure]:
        """Replies by client, matched by the message that the SuperLink holds them to answer."""
        sent = list(zip(self.grid.push_messages(list(asked.values())), asked, strict=False))
        out: dict[int, Arrived | Failure] = {client: _AWAY for number, client in sent if not number}
        waiting = {number: client for number, client in sent if number}
        unseen, queue = set(waiting), _Queue()
        while waiting:
            started = time.monotonic()
            last = started >= end  # one look at the deadline itself
            for parcel in look(self.grid, sorted(unseen)) if unseen else ():
                if parcel.answers in unseen:
                    unseen.discard(parcel.answers)
                    self._fetch(parcel, max(end, started + _GRACE), queue)
            now = time.monotonic()
            pause = max(_POLL, 4 * (now - started))  # at most a fifth of a core
            _collect(queue, waiting, out, unseen, now + _GRACE if last else min(end, now + pause), idle=not last)
            if last:
                break
        for number in set(waiting) - unseen:
            out[waiting[number]] = Failure("its reply was not complete in time")
        return out

    def _fetch(self, parcel: Parcel, end: float, queue: _Queue) -> None:
        """Fetch a reply in a thread of its own: whoever delays it delays nobody else, and the process can end."""

        def work() -> None:
            queue.put((parcel.answers, fetch(self.grid, parcel, end, self.most)))

        threading.Thread(target=work, daemon=True, name=f"fetch-{parcel.answers[:8]}").start()

    def _checked(self, name: str, asked: Message, nonce: str, came: Arrived | Failure) -> Reply | Failure:
        """What a reply says, if it is one and from whom it should be."""
        if isinstance(came, Failure):
            return came
        reply = came.message
        if reply.has_error():
            gone = reply.error.code in (ErrorCode.NODE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE)
            return Failure("its connection ended" if gone else f"the client broke: {plain(reply.error.reason, _WORDS)}")
        if came.node != asked.metadata.dst_node_id:
            self.log.note("refused", "a reply that comes from another node", client=name)
            return Failure("the reply came from another node")
        try:
            claimed, echoed, content = reply_of(reply.content)
        except WRONG as error:
            return Failure(f"malformed reply: {type(error).__name__}, {plain(error, _WORDS)}")
        if echoed != nonce:  # whoever answers must have read the order
            self.log.note("refused", "a reply without the number that its order had", client=name)
            content = Failure("the reply answers another order")
        elif claimed != name:
            self.log.note("refused", f"its key is that of '{name}' but it claims to be '{plain(claimed)}'", client=name)
            content = Failure(f"claims the name '{plain(claimed)}'")
        return content

    # --- who is who ---------------------------------------------------------------------------------------------

    def _nodes(self, end: float) -> tuple[dict[str, int], set[int]]:
        """The node of every client that has one, and the nodes that are online."""
        online = set(self.grid.get_node_ids())
        if self.open:
            return self._claimed(online, end), online
        table = {name: entry.get("node_id") for name, entry in self.deployment.read_nodes().items()}
        for node in sorted(online - set(table.values()) - self._refused):
            self._refused.add(node)
            self.log.note("refused", f"node {node} is not in nodes.json")
        return {name: node for name, node in table.items() if node is not None}, online

    def _claimed(self, online: set[int], end: float) -> dict[str, int]:
        """Without authentication a node is asked for its name; the first to claim one has it while it is online."""
        new = [node for node in sorted(online) if node not in self._claims and node not in self._refused]
        question = RecordDict({"who": ConfigRecord({"ask": "name"})})
        asked = {node: Message(question, node, MessageType.QUERY, ttl=end - time.monotonic() + _SLACK) for node in new}
        for node, reply in self._replies(asked, end).items():
            name = _claim(reply)
            holder = next((n for n, known in self._claims.items() if known == name and n in online), None)
            if name in self.names and holder is None:
                self._claims[node] = name
                self.log.note("joined", f"node {node}", client=name)
            elif name:
                self._refused.add(node)
                why = f"'{plain(name)}' is node {holder} already" if holder else f"there is no client '{plain(name)}'"
                self.log.note("refused", f"node {node}: {why}")
        return {name: node for node, name in self._claims.items() if node in online}


def _claim(came: Arrived | Failure) -> str:
    """The name that a node says it has; nothing if it says none."""
    if isinstance(came, Failure) or came.message.has_error():
        return ""
    try:
        return str(came.message.content.config_records["reply"]["name"])
    except WRONG:
        return ""


def _collect(
    queue: _Queue, waiting: dict[str, int], out: dict[int, Arrived | Failure], unseen: set[str], until: float, *,
    idle: bool,
) -> None:  # fmt: skip
    """Take what was fetched out of `waiting` until a moment, or nothing more can come.

    Args:
        queue: of what was fetched.
        waiting: clients by message.
        out: where it is put.
        unseen: messages whose replies were not announced yet.
        until: moment of `time.monotonic`.
        idle: wait for the moment although nothing is being fetched.
    """
    while waiting and (idle or len(waiting) > len(unseen)):
        try:
            number, reply = queue.get(timeout=max(0.0, until - time.monotonic()))
        except Empty:
            return
        out[waiting.pop(number)] = reply
