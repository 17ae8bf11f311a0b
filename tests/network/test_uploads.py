"""Uploads that go wrong on their way: cut off in the middle, and far too large, with and without the proxy."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs the extra federation")

import httpx

from panacea.deploy import flower_node
from panacea.deploy.processes import Child, free_port
from tests.network.stage import Stage, cost, proxied, row, write_deployment

pytestmark = [pytest.mark.network, pytest.mark.paper]

DEADLINE = 20.0


def peak(stage: Stage) -> int:
    """MiB that the SuperLink had at most."""
    assert stage.link.link is not None
    status = Path(f"/proc/{stage.link.link.process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


def details(stage: Stage, client: str, event: str) -> list[str]:
    return [line["detail"] for line in stage.log if line["client"] == client and line["event"] == event]


def others_are_sound(stage: Stage, liar: str) -> None:
    """Nobody but the liar was refused, and every round was done."""
    assert [line for line in stage.log if line["client"] not in (liar, None) and line["event"] == "failed"] == []
    assert stage.round() == len(stage.seconds) == 8


def test_a_client_is_killed_in_the_middle_of_its_upload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = write_deployment(tmp_path, "rounds=8", "cohort=4", clients=4, deadline=DEADLINE)
    victim, mark = next(iter(deployment.read_nodes())), tmp_path / "now"

    class Dying(Child):
        def __init__(self, name: str, command: list[str], environment: Any, log: Path) -> None:
            if name == "SuperNode" and str(deployment.client(victim)) in str(log):
                command = [sys.executable, "-m", "tests.network.dying_node", str(mark), *command[1:]]
            super().__init__(name, command, environment, log)

    monkeypatch.setattr(flower_node, "Child", Dying)
    with Stage(deployment) as stage:
        stage.submit()
        stage.wait(lambda: stage.round() >= 2)
        mark.touch()
        stage.wait(lambda: not mark.exists(), 60)
        at = time.monotonic()
        stage.wait(lambda: stage.nodes[victim].state != "connected", 30)
        stage.wait(lambda: stage.nodes[victim].state == "connected", 120)
        back = time.monotonic() - at
        stage.wait(stage.finished, 400)
        cost(stage, f"a client killed in the middle of its upload (connected again after {back:.0f} s)")
        about = [f"{line['event']}: {line['detail']}" for line in stage.log if line["client"] == victim]
        row(f"| {about} |")
        assert any("its reply was not complete" in line or "its connection ended" in line for line in about)
        assert any(line.startswith("back") for line in about)
        assert max(stage.seconds) < DEADLINE + 10
        others_are_sound(stage, victim)


@pytest.mark.parametrize("way", ["proxy", "no_proxy"])
def test_replies_are_too_large_again_and_again(tmp_path: Path, way: str) -> None:
    """200 MB in every reply: refused, the client left out for longer and longer, the others go on."""
    public = {"public": f"localhost:{free_port()}"} if way == "proxy" else {}
    deployment = write_deployment(tmp_path, "rounds=8", "cohort=4", clients=4, deadline=DEADLINE, **public)
    stage = Stage(deployment)
    liar = stage.names[0]
    stage.workers[liar] = ("tests.network.liar", "huge")
    if way == "proxy":
        with proxied(deployment), stage:
            finish(stage, liar, "its reply was not complete in time")
            assert peak(stage) < 400  # it never saw any of it
        refused = (deployment.home / "nginx-error.log").read_text().splitlines()
        large = [line for line in refused if "client intended to send too large body" in line]
        row(f"| nginx refused {len(large)} requests | {large[0][:160]} |")
    else:
        with stage:
            finish(stage, liar, f"its reply is larger than {deployment.settings.largest_reply} bytes")


def finish(stage: Stage, liar: str, reason: str) -> None:
    """The whole run, and what it says of the liar."""
    stage.submit()
    stage.wait(stage.finished, 400)
    failed = details(stage, liar, "failed")
    cost(stage, f"200 MB in every reply: {failed} (SuperLink {peak(stage)} MiB at most)")
    assert [line.partition("; ")[0] for line in failed[:3]] == [reason] * 3
    assert [line.rpartition(" ")[2] for line in failed[:3]] == ["1", "2", "4"]
    assert len(details(stage, liar, "skipped")) >= 4
    others_are_sound(stage, liar)


def test_a_body_of_200_megabytes(tmp_path: Path) -> None:
    """In one request, while a run is under way: nginx refuses it at once, and nobody notices."""
    deployment = write_deployment(
        tmp_path, "rounds=8", "cohort=2", clients=2, deadline=DEADLINE, public=f"localhost:{free_port()}"
    )
    with proxied(deployment), Stage(deployment) as stage:
        stage.submit()
        stage.wait(lambda: stage.round() >= 1)
        before, at, codes = peak(stage), time.monotonic(), []
        with httpx.Client(verify=str(deployment.authority), timeout=60) as web:
            for path in ("push-object", "push-messages", "activate-node"):
                where = f"https://{deployment.settings.public}/v1/fleet/{path}"
                try:
                    codes.append(web.post(where, content=bytes(200 * 10**6)).status_code)
                except httpx.TransportError:  # nginx closes while the body is still being sent; its log says why
                    codes.append(0)
        taken = time.monotonic() - at
        stage.wait(stage.finished, 400)
        cost(stage, f"three bodies of 200 MB ({taken:.1f} s, answers {codes}; SuperLink {before} to {peak(stage)} MiB)")
        assert set(codes) <= {413, 0}
        assert peak(stage) < before + 50
        assert not [line for line in stage.log if line["event"] == "failed"]
        assert stage.round() == 8
    refused = (deployment.home / "nginx-error.log").read_text()
    assert refused.count("client intended to send too large body: 200000000 bytes") == 3
