"""What goes wrong between machines, made to go wrong on this one. Each prints what it cost, for docs/federation.md."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra federation")

from panacea.deploy import flower_node
from panacea.deploy.deployment import Deployment
from panacea.deploy.deployment_files import add_client
from panacea.deploy.flower_node import NodeKeeper
from panacea.deploy.processes import Child
from panacea.deploy.roster import read_roster
from panacea.deploy.security import fingerprint, make_authority
from tests.network.stage import Stage, cost, processes_of, request, row, write_deployment
from tests.network.test_local import parameters, simulated

pytestmark = [pytest.mark.network, pytest.mark.paper]

DEADLINE = 20.0


@pytest.mark.parametrize("count", [1, 2], ids=["one_of_six", "two_of_six"])
def test_clients_are_killed_and_come_back(tmp_path: Path, count: int) -> None:
    deployment = write_deployment(tmp_path, "rounds=12", deadline=DEADLINE)
    with Stage(deployment) as stage:
        stage.submit()
        stage.wait(lambda: stage.round() >= 2)
        killed = stage.names[:count]
        for name in killed:
            stage.kill(name)
        at = time.monotonic()
        stage.wait(lambda: all(stage.nodes[name].state != "connected" for name in killed), 60)
        stage.wait(lambda: all(stage.nodes[name].state == "connected" for name in killed), 120)
        back = time.monotonic() - at
        stage.wait(stage.finished, 400)
        cost(stage, f"kill -9 of {count} of six clients (back after {back:.0f} s)")
        assert stage.round() == 12
        assert back < 45  # Flower alone refuses them for over a minute
        assert any(line["client"] in killed for line in stage.log)


def test_the_server_is_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    deployment = write_deployment(tmp_path, "rounds=8", "method=scaffold", deadline=90.0)  # nobody may miss a round
    with Stage(deployment) as stage:
        stage.submit()
        stage.wait(lambda: stage.round() >= 2)
        for harm in ("link", "run"):
            at, seen = time.monotonic(), stage.round()
            if harm == "link":
                os.kill(stage.link.link.process.pid, signal.SIGKILL)
            else:
                os.kill(stage.state["pid"], signal.SIGKILL)
            stage.wait(lambda seen=seen: stage.round() > seen + 1, 240)
            row(f"| kill -9 of the {harm} | two more rounds after {time.monotonic() - at:.0f} s |")
        stage.wait(stage.finished, 400)
        directory = stage.state["directory"]
        assert max(stage.seconds) < 35  # no client hung in an order of the run that died: that takes Flower over 40 s
    here = simulated(capsys, *request("data.clients=6", "rounds=8", "method=scaffold", f"out={tmp_path / 'here'}"))
    local = parameters(here["directory"])
    for name, value in parameters(directory).items():  # no round was lost, none applied twice, nobody's state forgotten
        np.testing.assert_allclose(value, local[name], rtol=1e-5, atol=1e-5, err_msg=name)


AT_ONCE = {
    "nan": "not finite",
    "shape": "declared shape (3, 3) instead of",
    "hidden": "bytes where 1416 and a header are declared",
    "garbage": "bytes where 1416 and a header are declared",
}
LATE = {
    "huge": "its reply is larger than 1093888 bytes",
    "nothing": "no reply in 20 s",
    "dies": "no reply in 20 s",
    "withheld": "its reply was not complete in time",
    "name=1": "claims to be '1'",
}


@pytest.mark.parametrize("lies", [AT_ONCE, *({how: said} for how, said in LATE.items())], ids="-".join)
def test_clients_lie(tmp_path: Path, lies: dict[str, str]) -> None:
    """Each lie is refused for what it is, and nobody else is; lies that need no waiting all in one federation."""
    deployment = write_deployment(tmp_path, "rounds=3", "cohort=6", deadline=DEADLINE, start=40.0, quorum=0.2)
    stage = Stage(deployment)
    liars = dict(zip(stage.names, lies, strict=False))
    stage.workers |= {name: ("tests.network.liar", how) for name, how in liars.items()}
    with stage:
        stage.submit()
        stage.wait(stage.finished, 400)
        cost(stage, f"clients send {', '.join(lies)}")
        for name, how in liars.items():
            about = [line for line in stage.log if line["client"] == name]
            bad = [f"{line['event']}, {line['detail']}" for line in about if line["event"] in ("failed", "refused")]
            row(f"| {how} | {bad[:1]} |")
            assert any(lies[how] in line for line in bad), (how, about)
        assert not any(line["client"] not in liars and line["event"] == "refused" for line in stage.log)
        assert stage.round() == 3


def test_who_may_not_come_in(tmp_path: Path) -> None:
    """A key that nobody registered, another authority, plain text, no key, and a second process with a client's key.

    The run goes on without them, and each leaves a line in one of our own logs.
    """
    deployment = write_deployment(tmp_path, "rounds=2", clients=2, deadline=DEADLINE)
    first = next(iter(deployment.read_nodes()))
    places = {name: outsider(deployment, name) for name in ("stranger", "misled", "plain", "nokey", "twin")}
    make_authority(places["misled"] / "ca.crt", places["misled"] / "ca.key")
    (places["plain"] / "connection.yaml").write_text(f"server: {deployment.settings.public}\ninsecure: true\n")
    (places["twin"] / "key").write_bytes((deployment.client(first) / "key").read_bytes())
    outsiders = {name: NodeKeeper(place) for name, place in places.items()}
    with Stage(deployment) as stage:
        stage.wait(lambda: all(node.state == "connected" for node in stage.nodes.values()))
        try:
            for name, node in outsiders.items():
                with without_key(name == "nokey"):
                    node.__enter__()
            stage.submit()
            end = time.monotonic() + 200
            done = False
            while not (done and all(heard(node) for node in outsiders.values())) and time.monotonic() < end:
                for name, node in outsiders.items():
                    with without_key(name == "nokey"):
                        node.tick()
                done = done or stage.finished()
                time.sleep(0.3)
            server = deployment.log.read_text()
            for name, node in outsiders.items():
                row(f"| {name} | {heard(node)} |")
            assert done
        finally:
            for node in outsiders.values():
                node.finish()
        assert all(node.state != "connected" for node in outsiders.values())
        assert stage.nodes[first].state == "connected"  # the second process did not take its place
    for line in server.splitlines():
        if "refused" in line:
            row(line[:200])
    assert "code 2004" in heard(outsiders["stranger"]) or "activate" in heard(outsiders["stranger"])
    assert "certificate verify failed" in heard(outsiders["misled"]).lower()
    assert heard(outsiders["plain"])
    assert heard(outsiders["twin"])
    assert f"a key that nobody registered, {fingerprint(deployment.public_key('stranger'))}" in server
    assert f"the key of '{first}' a second time" in server
    assert "brings no registered key" in server


def outsider(deployment: Deployment, name: str) -> Path:
    """A client's folder that the server knows nothing of."""
    folder = add_client(deployment, name, read_roster(deployment.roster).task)
    with deployment.changing_nodes() as nodes:
        del nodes[name]
    return folder


def heard(node: NodeKeeper) -> str:
    """What a client's own log says of why it is not let in."""
    lines = (node.home / "client.log").read_text().splitlines() if (node.home / "client.log").exists() else []
    return next((line for line in lines if "ended" in line or "starting: " in line), "")


@contextmanager
def without_key(wanted: bool) -> Iterator[None]:
    """Start SuperNodes over TLS, but without a key."""
    started = flower_node.Child

    def bare(name: str, command: list[str], *rest: Any) -> Child:
        if "--auth-supernode-private-key" in command:
            place = command.index("--auth-supernode-private-key")
            command = command[:place] + command[place + 2 :]
        return started(name, command, *rest)

    if wanted:
        flower_node.Child = bare
    try:
        yield
    finally:
        flower_node.Child = started


@pytest.mark.parametrize("how", ["tls", "insecure"])
def test_the_commands_themselves(tmp_path: Path, how: str) -> None:
    """init, server, client, submit, status: as an operator types them; the server is killed in between."""
    run = [sys.executable, "-m", "panacea"]
    from panacea.deploy.processes import free_port

    port = str(free_port())
    fed = tmp_path / "fed"
    where = ["--insecure"] if how == "insecure" else ["--public", f"localhost:{port}"]
    subprocess.run(
        [*run, "federate", "init", str(fed), *request("cohort=1", "rounds=6", f"out={tmp_path / 'runs'}"),
         "--clients", "2", "--port", port, *where],
        check=True, timeout=120,
    )  # fmt: skip
    started = [subprocess.Popen([*run, "federate", "server", str(fed)])]
    started += [subprocess.Popen([*run, "federate", "client", str(folder)]) for folder in (fed / "clients").iterdir()]
    try:
        subprocess.run([*run, "federate", "submit", str(fed)], check=True, timeout=60)
        end = time.monotonic() + 240
        while not list(tmp_path.glob("runs/*/timings.jsonl")) and time.monotonic() < end:
            time.sleep(0.5)
        os.kill(started[0].pid, signal.SIGKILL)
        started[0].wait()
        started.append(subprocess.Popen([*run, "federate", "server", str(fed)]))
        while not list(tmp_path.glob("runs/*/summary.json")) and time.monotonic() < end:
            time.sleep(0.5)
        said = subprocess.run([*run, "federate", "status", str(fed)], check=True, timeout=60, capture_output=True)
        assert b"finished" in said.stdout
        assert b"round 6 of 6" in said.stdout
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(30)
    time.sleep(1)
    assert processes_of(tmp_path) == []


def test_a_newcomer_joins_the_run(tmp_path: Path) -> None:
    """`panacea federate add` while the run is under way: a model at once, and a place in the rounds."""
    from panacea.cli import run_command_line

    deployment = write_deployment(tmp_path, "rounds=40", "method=panacea", "cohort=2", clients=3, deadline=60.0)
    with Stage(deployment) as stage:
        stage.submit()
        stage.wait(lambda: stage.round() >= 1)
        features = ",".join(map(str, np.load(deployment.roster / "features.npy")[2]))
        words = ["add", str(deployment.folder), "new", "--links", "0,1", "--features", features]
        assert run_command_line(["federate", *words]) == 0
        data, other = (deployment.client(name) / "data" for name in ("new", "2"))
        for file in other.iterdir():
            (data / file.name).write_bytes(file.read_bytes())
        at = time.monotonic()
        with stage._lock:
            stage.start("new")
        stage.wait(lambda: stage.said("new", "first model"), 120)
        row(f"| a newcomer has its model | {time.monotonic() - at:.0f} s after its start |")
        before = stage.round()
        stage.wait(lambda: stage.round() > before + 1, 120)
