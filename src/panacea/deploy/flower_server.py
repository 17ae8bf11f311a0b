"""The ServerApp: the simulator's loop over Flower's grid. See `panacea.deploy.serve`."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid, ServerApp

from panacea.deploy.deployment import Deployment
from panacea.deploy.flower_records import WRONG, order_records, reply_of
from panacea.deploy.orders import Failure, Log, Order, Reply
from panacea.deploy.roster import read_roster
from panacea.deploy.serve import serve
from panacea.errors import PanaceaError
from panacea.experiment.config import build_config
from panacea.experiment.experiment import Experiment
from panacea.experiment.keys import read_yaml
from panacea.experiment.rundir import RunBusy, RunDirectory
from panacea.experiment.runner import Callback
from panacea.report.run_page import ReportWriter

__all__ = ["DEPLOYMENT", "GridTransport", "app"]

DEPLOYMENT = "PANACEA_DEPLOYMENT"
"""The environment variable that names the deployment's folder."""

_POLL = 0.5  # seconds between looks for replies
_SLACK = 60.0  # seconds by which clocks of server and clients may differ
_BUSY = 120.0  # seconds to wait for the end of a run's previous process

app = ServerApp()


def _plain(words: object) -> str:
    """Somebody else's words on one short line of plain letters."""
    return " ".join(str(words).encode("ascii", "replace").decode().split())[:200]


def _keep_unreadable_apart() -> None:
    """A reply that cannot even be put together must not cost those of others that came with it.

    Flower pulls several at once and raises for one; what is put in its place answers nothing, so that its sender is
    one that did not answer.
    """
    from flwr.superlink.grid import http_grid  # noqa: PLC0415

    inflate = vars(http_grid)["inflate_object_from_contents"]

    def inflated(number: str, contents: Any) -> Any:
        try:
            made = inflate(number, contents)
        except Exception:  # whatever a stranger's bytes can raise
            made = None
        unreadable = RecordDict({"reply": ConfigRecord({"name": "", "failure": "unreadable"})})
        return made if isinstance(made, Message) else Message(unreadable, 1, MessageType.TRAIN)

    vars(http_grid).update(inflate_object_from_contents=inflated)


class GridTransport:
    """Orders to SuperNodes and their replies.

    A client is reached by the node id that its registered key has (`nodes.json`), never by a name that a node claims.
    """

    def __init__(self, grid: Grid, deployment: Deployment) -> None:
        self.grid, self.deployment = grid, deployment
        self.open = deployment.settings.insecure  # without keys, nodes are believed: loopback only
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
        for client, order in orders.items():
            node = nodes.get(order.name)
            if node is None or node not in online:
                out[client] = Failure("not connected")
                continue
            asked[client] = Message(
                order_records(order), node, MessageType.TRAIN, ttl=deadline + _SLACK, group_id=str(order.round)
            )
        for client, reply in self._replies(asked, end).items():
            out[client] = self._checked(orders[client].name, asked[client], reply)
        return out

    def _replies(self, asked: Mapping[int, Message], end: float) -> dict[int, Message | Failure]:
        """Replies by client, matched by the message they answer, never by the node they say they come from."""
        ids = dict(zip(self.grid.push_messages(list(asked.values())), asked, strict=False))
        waiting = {number: client for number, client in ids.items() if number}
        out: dict[int, Message | Failure] = {ids[number]: Failure("not connected") for number in ids if not number}
        while waiting and time.monotonic() < end:
            started = time.monotonic()
            for message in self.grid.pull_messages(list(waiting)):
                client = waiting.pop(message.metadata.reply_to_message_id, None)
                if client is not None:
                    out[client] = message
            if waiting:
                time.sleep(max(_POLL, 4 * (time.monotonic() - started)))  # at most a fifth of a core
        return out

    def _checked(self, name: str, asked: Message, reply: Message | Failure) -> Reply | Failure:
        """What a reply says, if it is one and from whom it should be."""
        if isinstance(reply, Failure):
            return reply
        if reply.has_error():
            gone = reply.error.code in (ErrorCode.NODE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE)
            return Failure("its connection ended" if gone else f"the client broke: {_plain(reply.error.reason)}")
        if reply.metadata.src_node_id != asked.metadata.dst_node_id:
            self.log.note("refused", "a reply that comes from another node", client=name)
            return Failure("the reply came from another node")
        try:
            claimed, content = reply_of(reply.content)
        except WRONG as error:
            return Failure(f"malformed reply: {type(error).__name__}, {_plain(error)}")
        if claimed != name:
            self.log.note("refused", f"its key is that of '{name}' but it claims to be '{claimed}'", client=name)
            return Failure(f"claims the name '{claimed}'")
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
            words = None if isinstance(reply, Failure) or reply.has_error() else reply.content.config_records["reply"]
            name = "" if words is None else str(words["name"])
            holder = next((n for n, known in self._claims.items() if known == name and n in online), None)
            if name in self.names and holder is None:
                self._claims[node] = name
                self.log.note("joined", f"node {node}", client=name)
            elif name:
                self._refused.add(node)
                why = f"'{name}' is node {holder} already" if holder else f"there is no client '{name}'"
                self.log.note("refused", f"node {node}: {why}")
        return {name: node for node, name in self._claims.items() if node in online}


class _RunNotes(Callback):
    """Keeps `run.json` up to date."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment

    def on_start(self, experiment: Experiment, directory: RunDirectory | None) -> None:
        """The run's directory is known."""
        if directory is not None:
            self.deployment.write_run(directory=str(directory.path))


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the deployment's experiment, or go on with it."""
    deployment = Deployment(Path(os.environ[DEPLOYMENT]))
    deployment.write_run(state="running", pid=os.getpid(), detail="", flower_run=context.run_id)
    deployment.note("run", "begins")
    _keep_unreadable_apart()
    try:
        _serve(grid, deployment)
    except BaseException as error:
        detail = str(error) if isinstance(error, PanaceaError) else f"{type(error).__name__}: {error}"
        deployment.write_run(state="failed", detail=detail)
        deployment.note("run", f"failed: {detail}")
        raise
    deployment.write_run(state="finished")
    deployment.note("run", "finished")


def _serve(grid: Grid, deployment: Deployment) -> None:
    config, roster = build_config(read_yaml(deployment.experiment)), read_roster(deployment.roster)
    end = time.monotonic() + _BUSY
    while True:
        try:
            transport = GridTransport(grid, deployment)
            watchers = [_RunNotes(deployment), ReportWriter()]
            serve(config, roster, transport, None, watchers, deployment.settings.patience)
            return
        except RunBusy:  # the process before this one is still ending
            if time.monotonic() > end:
                raise
            time.sleep(1)
