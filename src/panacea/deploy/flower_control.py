"""What the operator's side asks of a running SuperLink, and a client's supervisor of its own session.

Flower's own commands (`flwr run`, `flwr supernode register`) start an interpreter each; these are their calls.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import httpx
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from flwr.cli.build import build_fab_from_disk
from flwr.cli.cli_client_interceptor import CliClientHttpInterceptor
from flwr.common.constant import Status
from flwr.common.serde import fab_to_proto
from flwr.proto.control_pb2 import (
    ListNodesRequest,
    ListRunsRequest,
    RegisterNodeRequest,
    StartRunRequest,
    StopRunRequest,
    UnregisterNodeRequest,
)
from flwr.proto.fleet_pb2 import DeactivateNodeRequest
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.error import FlowerError
from flwr.supercore.fab import Fab
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.protobuf.client import ProtobufClient
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from panacea.errors import RunFailure

__all__ = ["Control", "Node", "connect", "end_session", "is_ready", "wait_until_ready", "why_unreachable"]

Node = dict[str, Any]
"""`node_id`, `public_key` (PEM bytes), `name`, `status` of a registered SuperNode."""

_Client = TypeVar("_Client", bound=ProtobufClient)


def is_ready(address: str, root: Path | None) -> bool:
    """Whether a SuperLink answers at an address; without a root certificate, in plain text."""
    scheme, verify = ("http", True) if root is None else ("https", str(root))
    try:
        return httpx.get(f"{scheme}://{address}/health", verify=verify, timeout=5).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False


def why_unreachable(address: str, root: Path | None) -> str:
    """Why no connection to a server comes about, in the words of TLS; nothing if one does, whatever it answers."""
    scheme, verify = ("http", True) if root is None else ("https", str(root))
    try:
        httpx.get(f"{scheme}://{address}/", verify=verify, timeout=3)
    except (httpx.HTTPError, OSError) as error:
        return f"{address}: {error or type(error).__name__}"
    return ""


@contextmanager
def _opened(kind: type[_Client], address: str, root: Path | None, *extra: Any) -> Iterator[_Client]:
    client = kind.from_server_address(
        address, root is None, None if root is None else root.read_bytes(),
        [CliClientHttpInterceptor(), RuntimeVersionHttpInterceptor(component_name="panacea"), *extra],
    )  # fmt: skip
    try:
        yield client
    except httpx.HTTPStatusError as error:
        known = FlowerError.from_json(error.response.text)
        why = f"{known.message} (code {known.code})" if known else f"HTTP status {error.response.status_code}"
        raise RunFailure(f"the server at {address} refused: {why}") from error
    except httpx.HTTPError as error:
        raise RunFailure(f"no answer from the server at {address} ({error})") from error
    finally:
        client.close()


class Control:
    """The control interface of a SuperLink; for its operator, on the server's machine."""

    def __init__(self, client: ControlHttpClient) -> None:
        self._client = client

    def nodes(self) -> list[Node]:
        """All registered SuperNodes."""
        found = self._client.ListNodes(ListNodesRequest()).nodes_info
        return [{"node_id": n.node_id, "public_key": n.public_key, "name": n.name, "status": n.status} for n in found]

    def register(self, public_key: bytes, name: str) -> int:
        """Let the owner of a key in; its node id."""
        reply = self._client.RegisterNode(RegisterNodeRequest(public_key=public_key, name=name))
        return int(reply.node_id)

    def unregister(self, node: int) -> None:
        """Let a node's key in no longer."""
        self._client.UnregisterNode(UnregisterNodeRequest(node_id=node))

    def submit(self, app: Path) -> int:
        """Start the app of a folder; the run's id."""
        content = build_fab_from_disk(app)
        fab = Fab(hashlib.sha256(content).hexdigest(), content, {})
        return int(self._client.StartRun(StartRunRequest(fab=fab_to_proto(fab))).run_id)

    def stop_runs(self) -> None:
        """End what is left of runs: clients wait no longer for what their processes did not finish sending."""
        for number, run in self._client.ListRuns(ListRunsRequest()).run_dict.items():  # the newest
            if run.status.status != Status.FINISHED:
                self._client.StopRun(StopRunRequest(run_id=number))

    def status(self, run: int) -> str:
        """Of a run: pending, starting, running, finished:completed, finished:failed, ...; or unknown."""
        found = self._client.ListRuns(ListRunsRequest(run_id=run)).run_dict
        if run not in found:
            return "unknown"
        state = found[run].status
        return f"{state.status}:{state.sub_status}" if state.sub_status else str(state.status)


@contextmanager
def connect(address: str, root: Path | None) -> Iterator[Control]:
    """The control interface at an address.

    Raises:
        RunFailure: nobody answers there, or what was asked is refused.
    """
    with _opened(ControlHttpClient, address, root) as client:
        yield Control(client)


def end_session(address: str, root: Path, key: Path, node: int) -> bool:
    """Tell the SuperLink that a client's session has ended, with the client's own key; whether it was open.

    A SuperNode that was killed cannot say so itself, and its successor would be refused for a minute.
    """
    secret = cast("EllipticCurvePrivateKey", serialization.load_ssh_private_key(key.read_bytes(), None))
    proof = NodeAuthHttpInterceptor(secret, secret.public_key())
    try:
        with _opened(FleetHttpClient, address, root, proof) as client:
            client.DeactivateNode(DeactivateNodeRequest(node_id=node))
    except RunFailure:
        return False
    return True


def wait_until_ready(address: str, root: Path | None, seconds: float, alive: Any) -> bool:
    """Wait for a SuperLink; gives up when its time is over or `alive()` is false."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and alive():
        if is_ready(address, root):
            return True
        time.sleep(0.2)
    return False
