"""The generated nginx configuration with a real nginx and a real SuperLink: what passes, and what does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra federation")

import httpx

from panacea.deploy.deployment import Deployment
from panacea.deploy.deployment_files import body_limit, folder_name
from panacea.deploy.flower_control import connect, end_session, is_ready
from panacea.deploy.processes import free_port
from panacea.deploy.security import make_authority, make_certificate, make_key
from panacea.errors import RunFailure
from tests.network.stage import Stage, proxied, write_deployment

pytestmark = pytest.mark.network


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A server behind its proxy, and one client that comes through it."""
    folder = tmp_path_factory.mktemp("proxy")
    deployment = write_deployment(folder, "rounds=1", clients=2, public=f"localhost:{free_port()}")
    with proxied(deployment), Stage(deployment, only=(next(iter(deployment.read_nodes())),)) as stage:
        yield stage


def post(deployment: Deployment, path: str, content: bytes = b"") -> int:
    return httpx.post(
        f"https://{deployment.settings.public}{path}", content=content, verify=str(deployment.authority), timeout=20
    ).status_code


def test_a_client_comes_through(stage: Stage) -> None:
    node = next(iter(stage.nodes.values()))
    stage.wait(lambda: node.state == "connected")


def test_only_the_fleet_passes(stage: Stage) -> None:
    deployment = stage.deployment
    assert post(deployment, "/v1/fleet/pull-messages") not in (403, 404, 413, 502)  # SuperLink itself answers
    for path in ("/v1/control/list-nodes", "/v1/control/start-run", "/v1/runtime/pull-messages", "/health", "/"):
        assert post(deployment, path) == 403, path
    assert post(deployment, "/v1/fleet/../control/list-nodes") == 403
    assert post(deployment, "/v1/fleet/%2e%2e/control/list-nodes") == 403


def test_large_bodies_are_refused(stage: Stage) -> None:
    text = stage.deployment.proxy.read_text()
    limit = int(text.partition("client_max_body_size ")[2].partition(";")[0])
    assert limit <= body_limit(10**9)
    assert post(stage.deployment, "/v1/fleet/push-object", b"0" * (limit + 1)) == 413
    assert post(stage.deployment, "/v1/fleet/push-object", b"0" * (limit - 1)) not in (413, 500, 502)
    refused = (stage.deployment.home / "nginx-error.log").read_text()
    assert "Permission denied" not in refused  # a body is put into a file of the owner's folder on its way


def test_plain_text_and_other_authorities(stage: Stage, tmp_path: Path) -> None:
    deployment = stage.deployment
    for address in (deployment.settings.public, deployment.settings.address):
        assert is_ready(address, None) is False  # no TLS
        make_authority(tmp_path / "ca.crt", tmp_path / "ca.key")
        assert is_ready(address, tmp_path / "ca.crt") is False  # another authority
    assert is_ready(deployment.settings.address, deployment.authority)
    make_certificate(
        tmp_path / "ca.crt", tmp_path / "ca.key", tmp_path / "server.crt", tmp_path / "server.key", ["localhost"]
    )
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"https://{deployment.settings.address}/health", verify=str(tmp_path / "server.crt"))


def test_keys_that_nobody_registered(stage: Stage, tmp_path: Path) -> None:
    """Neither a stranger nor another registered client can end a client's session."""
    deployment = stage.deployment
    make_key(tmp_path / "key", tmp_path / "key.pub")
    nodes = deployment.read_nodes()
    (name, entry), (other, _) = nodes.items()
    stage.wait(lambda: stage.nodes[name].state == "connected")
    for address in (deployment.settings.public, deployment.settings.address):
        for key in (tmp_path / "key", deployment.client(folder_name(other)) / "key"):
            assert end_session(address, deployment.authority, key, entry["node_id"]) is False
    with connect(deployment.settings.address, deployment.root) as control:
        assert {node["node_id"]: node["status"] for node in control.nodes()}[entry["node_id"]] == "online"
    stage.wait(lambda: "refused: " in deployment.log.read_text(), 20)


def test_without_a_key(stage: Stage) -> None:
    """Over TLS, with the right authority, and nothing to prove who it is: no request of the fleet is answered."""
    for address in (stage.deployment.settings.public, stage.deployment.settings.address):
        for path in ("activate-node", "register-node", "pull-messages", "push-messages", "pull-object", "push-object"):
            found = httpx.post(
                f"https://{address}/v1/fleet/{path}", content=b"", verify=str(stage.deployment.authority), timeout=20
            )
            assert found.status_code in (400, 401, 403, 412, 415, 422), (path, found.status_code)


def test_control_asks_for_an_answer(tmp_path: Path) -> None:
    make_authority(tmp_path / "ca.crt", tmp_path / "ca.key")
    with pytest.raises(RunFailure, match="no answer"), connect(f"127.0.0.1:{free_port()}", tmp_path / "ca.crt") as it:
        it.nodes()
