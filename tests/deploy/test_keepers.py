"""The supervisors and the deployment's files, without Flower's processes: what ends a run, and what does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra federation")

from panacea.cli import run_command_line
from panacea.core.files import append_line
from panacea.deploy import flower_link, flower_server, security
from panacea.deploy.deployment import Deployment, ServerSettings
from panacea.deploy.deployment_files import renew_certificate
from panacea.deploy.flower_link import LinkKeeper
from panacea.deploy.flower_node import NodeKeeper
from panacea.deploy.processes import hold
from panacea.deploy.site import open_site
from panacea.deploy.site_data import check_samples
from panacea.errors import RequestError, RunFailure
from panacea.experiment.interrupt import Interrupted
from panacea.experiment.rundir import RunBusy


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    words = [
        "data=fl60",
        "method=fedavg",
        "rounds=2",
        "novel=0",
        f"out={tmp_path / 'runs'}",
        "--clients",
        "2",
        "--quiet",
    ]
    assert run_command_line(["federate", "init", str(tmp_path / "my fed"), *words]) == 0
    return Deployment(tmp_path / "my fed")


class Control:
    """A SuperLink's control interface in memory."""

    def __init__(self, broken: bool = False) -> None:
        self.broken, self.known, self.gone = broken, dict[bytes, int](), list[int]()
        self.stopped = 0

    def nodes(self) -> list[dict[str, Any]]:
        return [{"public_key": key, "node_id": n, "status": "registered"} for key, n in self.known.items()]

    def register(self, key: bytes, name: str) -> int:
        self.known[key] = 100 + len(self.known) + len(self.gone)
        return self.known[key]

    def unregister(self, node: int) -> None:
        self.gone.append(node)
        self.known = {key: n for key, n in self.known.items() if n != node}

    def submit(self, app: Path) -> int:
        return 5

    def stop_runs(self) -> None:
        self.stopped += 1


def keeper(deployment: Deployment, monkeypatch: pytest.MonkeyPatch, control: Control) -> LinkKeeper:
    @contextmanager
    def connect(*_: Any) -> Any:
        if control.broken:
            raise RunFailure("no answer from the server")
        yield control

    monkeypatch.setattr(flower_link, "connect", connect)
    made = LinkKeeper(deployment)
    log = deployment.logs / "superlink.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.touch()
    made.link = SimpleNamespace(alive=True, log=log)  # type: ignore[assignment]
    return made


def said(deployment: Deployment) -> str:
    return deployment.log.read_text(encoding="utf-8") if deployment.log.exists() else ""


# --- the run -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (RequestError("a wrong key"), "failed"),
        (RunFailure("too few clients"), "failed"),
        (Interrupted("stopped"), "running"),
        (KeyboardInterrupt(), "running"),
        (OSError("a broken connection"), "running"),
    ],
)
def test_only_what_cannot_be_mended_is_a_failure(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, error: BaseException, state: str
) -> None:
    def broken(*_: Any) -> None:
        raise error

    monkeypatch.setattr(flower_server, "_serve", broken)
    deployment.write_run(state="running", pid=1)
    with pytest.raises(type(error)):
        flower_server.run_deployment(None, deployment)  # type: ignore[arg-type]
    assert deployment.read_run()["state"] == state
    assert type(error).__name__ in said(deployment) or str(error) in said(deployment)


def test_the_run_goes_on_in_its_own_directory(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another `experiment.yaml` under way is an error of `serve`, not another run beside the first."""
    given: list[Path | None] = []

    def serve(config: Any, roster: Any, transport: Any, directory: Path | None, *_: Any) -> None:
        given.append(directory)

    monkeypatch.setattr(flower_server, "serve", serve)
    monkeypatch.setattr(flower_server, "_Transport", lambda *_: None)
    run = deployment.folder / "some run"
    (run / "checkpoints").mkdir(parents=True)
    deployment.write_run(state="running", directory=str(run))
    flower_server._serve(None, deployment)  # type: ignore[arg-type]
    monkeypatch.setattr("panacea.experiment.checkpoint.CheckpointStore.rounds", lambda _: [3])
    flower_server._serve(None, deployment)  # type: ignore[arg-type]
    assert given == [None, run]


def test_a_busy_directory_is_waited_for(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []

    def serve(*_: Any) -> None:
        tries.append(1)
        if len(tries) == 1:
            raise RunBusy("another process")

    monkeypatch.setattr(flower_server, "serve", serve)
    monkeypatch.setattr(flower_server, "_Transport", lambda *_: None)
    flower_server._serve(None, deployment)  # type: ignore[arg-type]
    assert len(tries) == 2


# --- the server's supervisor ---------------------------------------------------------------------------------------


def test_a_deployment_has_one_server(deployment: Deployment, capsys: pytest.CaptureFixture[str]) -> None:
    deployment.write_run(state="running", pid=os.getpid())
    handle = hold(deployment.home, "the first")
    assert run_command_line(["federate", "server", str(deployment.folder)]) == 2
    assert "this server is running already" in capsys.readouterr().err
    assert deployment.read_run()["state"] == "running"  # the first one's run was left alone
    os.close(handle)
    os.close(hold(deployment.home, "the next"))


def test_two_equal_federations_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from panacea.cli.federating_local import _place
    from panacea.cli.federating_setup import federated_config

    words = ["data=fl60", "method=fedavg", "rounds=1", f"out={tmp_path}"]
    place = _place(federated_config(words, 2))
    handle = hold(place.with_name(f"{place.name}.lock"), "the first")
    assert run_command_line(["federate", "local", *words, "--clients", "2"]) == 2
    assert "running already" in capsys.readouterr().err
    assert not place.exists()
    os.close(handle)


def test_no_answer_does_not_end_the_supervisor(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    control = Control(broken=True)
    made = keeper(deployment, monkeypatch, control)
    made.tick()
    assert "no answer from the server" in said(deployment)
    assert made._not_before > time.monotonic()
    control.broken, made._not_before = False, 0.0
    made.tick()
    assert all("node_id" in entry for entry in deployment.read_nodes().values())


def test_waits_are_short_again_after_a_round(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    made = keeper(deployment, monkeypatch, Control())
    made.tick()
    run = deployment.folder / "run"
    run.mkdir()
    for number in range(4):
        deployment.write_run(state="running", pid=None, directory=str(run))
        made._not_before = 0.0
        made.tick()
        assert made._wait == 2.0 ** (number + 1)
    append_line(run / "timings.jsonl", {"round": 1})
    monkeypatch.setattr(flower_link, "_runs", lambda pid: True)
    deployment.write_run(state="running", pid=1)
    made._not_before = 0.0
    made.tick()
    assert made._wait == 1.0


@pytest.mark.parametrize("broken", [False, True])
def test_flower_is_told_of_a_run_that_died(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, broken: bool
) -> None:
    """Else clients hang in an order that was never sent to its end, until Flower notices by itself."""
    control = Control()
    made = keeper(deployment, monkeypatch, control)
    made.tick()
    deployment.write_run(state="wanted")
    made.tick()
    assert made.submitted == 5
    deployment.write_run(state="running", pid=None)
    control.broken = broken  # if it cannot be told, the run is started again all the same
    made.tick()
    assert control.stopped == (0 if broken else 1)
    assert made.submitted is None
    assert deployment.read_run()["state"] == "wanted"


def test_a_run_that_never_comes_further_fails(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    made = keeper(deployment, monkeypatch, Control())
    for _ in range(20):
        if deployment.read_run()["state"] == "failed":
            break
        deployment.write_run(state="running", pid=None, detail="KeyError: 'x'")
        made._not_before = 0.0
        made.tick()
    run = deployment.read_run()
    assert run["state"] == "failed"
    assert "KeyError: 'x'" in run["detail"]


def test_a_replaced_key_is_unregistered(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    control = Control()
    made = keeper(deployment, monkeypatch, control)
    made.tick()
    old = deployment.read_nodes()["0"]
    for file in (deployment.client("0") / "data").iterdir():
        file.unlink()
    assert run_command_line(["federate", "add", str(deployment.folder), "0", "--replace", "--quiet"]) == 0
    made.tick()
    new = deployment.read_nodes()["0"]
    assert control.gone == [old["node_id"]]
    assert new["node_id"] != old["node_id"]
    assert "its key is nobody's now" in said(deployment)


def test_refusals_are_in_our_own_log(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    made = keeper(deployment, monkeypatch, Control())
    assert made.link is not None
    security.make_key(deployment.folder / "stranger", deployment.folder / "stranger.pub")
    of_a_client, of_a_stranger = deployment.public_key("0"), deployment.folder / "stranger.pub"
    with made.link.log.open("a") as file:
        file.write("INFO all is well\n")
        for code, public in ((2004, of_a_client), (2004, of_a_stranger), (2001, of_a_stranger), (2003, of_a_stranger)):
            key = security.read_public_key(public)
            file.write(f"ERROR :  [/v1/fleet/activate-node][ApiError:{code}] Attempted to register: {key!r}\n")
        file.write("[/v1/fleet/pull-object][ApiError:2007] exception: Run is finished.\n")  # nobody's fault
        file.write('INFO: 127.0.0.1:1 - "POST /v1/fleet/pull-object HTTP/1.1" 403\n' * 2)  # one of them belongs to it
        file.write("[/v1/fleet/activate-node][ApiError:2004] half a li")
    made.tick()
    made.tick()
    refused = [line.partition("refused: ")[2] for line in said(deployment).splitlines() if "refused: " in line]
    assert refused[0].startswith("the key of '0' a second time")
    assert refused[1] == f"a key that nobody registered, {security.fingerprint(of_a_stranger)}"
    assert refused[2] == "a SuperNode that brings no registered key"
    assert refused[3].startswith("[/v1/fleet/activate-node][ApiError:2003]")
    assert refused[4:] == ['"POST /v1/fleet/pull-object HTTP/1.1" 403']


def test_the_run_ends_with_its_superlink(tmp_path: Path) -> None:
    """A process whose parent was killed is gone soon, although it is in the middle of something."""
    child = "import time; from panacea.deploy.processes import end_with_parent; end_with_parent(); time.sleep(60)"
    parent = (
        f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {child!r}]).pid, flush=True); input()"
    )
    process = subprocess.Popen([sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    orphan = int(process.stdout.readline())
    time.sleep(5)  # it has begun to watch
    assert Path(f"/proc/{orphan}").exists()
    process.kill()
    process.wait()
    end = time.monotonic() + 20
    while time.monotonic() < end and _alive(orphan):
        time.sleep(0.2)
    assert not _alive(orphan)


def _alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


# --- files ---------------------------------------------------------------------------------------------------------


def test_changes_of_several_processes_are_all_kept(deployment: Deployment) -> None:
    def change(number: int) -> None:
        for _ in range(10):
            with deployment.changing_nodes() as nodes:
                time.sleep(0.001)
                nodes["0"][str(number)] = nodes["0"].get(str(number), 0) + 1
            deployment.write_run(**{f"key{number}": 1})

    threads = [threading.Thread(target=change, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [deployment.read_nodes()["0"][str(number)] for number in range(4)] == [10] * 4
    assert all(f"key{number}" in deployment.read_run() for number in range(4))


def test_a_newcomer_is_entered_in_one_write(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[dict[str, Any]] = []
    monkeypatch.setattr("panacea.deploy.deployment.write_json", lambda path, values: written.append(values))
    deployment.run.write_text('{"state": "running"}')
    features = ",".join("0" for _ in np.load(deployment.roster / "features.npy")[0])
    words = ["new", "--links", "0", "--features", features, "--quiet"]
    assert run_command_line(["federate", "add", str(deployment.folder), *words]) == 0
    assert [entry["clients"]["new"].keys() for entry in written] == [{"fingerprint", "joins"}]


def test_a_newcomer_may_be_linked_to_one_that_joined(deployment: Deployment, tmp_path: Path) -> None:
    """Who joined the run under way is in its ledger, not in the roster."""
    run = tmp_path / "run"
    run.mkdir()
    (run / "federation.json").write_text('{"counts": {"0": [1, 1, 1], "late": [1, 1, 1]}}')
    deployment.run.write_text(json.dumps({"state": "running", "directory": str(run)}))
    add = ["federate", "add", str(deployment.folder)]
    assert run_command_line([*add, "new", "--links", "late,nobody", "--quiet"]) == 2
    assert run_command_line([*add, "new", "--links", "late,0", "--quiet"]) == 0
    assert deployment.read_nodes()["new"]["joins"]["links"] == ["late", "0"]


def test_certificate_and_key_change_together(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    old = deployment.certificate.read_bytes(), deployment.certificate_key.read_bytes()

    def half(*arguments: Any) -> None:
        arguments[3].write_text("half of it")
        raise OSError("killed")

    with monkeypatch.context() as patch:
        patch.setattr("panacea.deploy.deployment_files.make_certificate", half)
        with pytest.raises(OSError, match="killed"):
            renew_certificate(deployment)
    assert (deployment.certificate.read_bytes(), deployment.certificate_key.read_bytes()) == old
    renew_certificate(deployment)
    import ssl

    ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
        deployment.certificate, deployment.certificate_key
    )
    assert deployment.certificate.read_bytes() != old[0]
    assert len(list(deployment.folder.glob("tls-*"))) == 1


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("key", None, "cannot be read"),
        ("key", b"rubbish", "not a private key"),
        ("ca.crt", None, "cannot be read"),
        ("ca.crt", b"rubbish", "not a certificate"),
    ],
)
def test_a_client_without_its_papers_does_not_start(
    deployment: Deployment, capsys: pytest.CaptureFixture[str], file: str, content: bytes | None, words: str
) -> None:
    path = deployment.client("0") / file
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    assert run_command_line(["federate", "client", str(deployment.client("0"))]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert len(error.strip().splitlines()) == 1
    with pytest.raises(RequestError, match=words):
        NodeKeeper(deployment.client("0")).__enter__()


SHAPE = "beside the target '{}', but the run's have (2,)"


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("data.csv", b"a,b,target\n1,2,0\n3,nan,1\n", "data/data.csv line 3, column 'b': nan is not a finite number"),
        ("data.csv", b"a,b,target\n1,2,0\n3,,1\n", "data/data.csv line 3, column 'b': the value is missing"),
        ("data.csv", b"a,b,c,target\n1,2,3,0\n", f"has inputs of shape (3,) {SHAPE.format('target')}"),
        ("data.csv", b"a,b\n1,0\n2,1\n", f"has inputs of shape (1,) {SHAPE.format('b')}"),  # no target column
        ("data.csv", b"a,b,target\n1,2,7\n", "label 7 is outside 0..1"),
        ("task.yaml", b"target: power\n", "has no target column 'power'"),
        ("data.npz", None, "holds several of data.npz, data.csv"),
        ("data.csv", None, "has none of data.npz, data.csv, data.parquet"),
    ],
)
def test_a_client_whose_samples_do_not_fit_does_not_start(
    deployment: Deployment, capsys: pytest.CaptureFixture[str], file: str, content: bytes | None, words: str
) -> None:
    """Said in one line when it starts, and not only when it is first asked."""
    data = deployment.client("0") / "data"
    if file != "data.npz":
        (data / "data.npz").unlink()
    (data / "task.yaml").unlink()
    (data / "data.csv").write_bytes(b"a,b,target\n1,2,0\n2,3,1\n")
    if content is not None:
        (data / file).write_bytes(content)
    elif file == "data.csv":
        (data / file).unlink()
    assert run_command_line(["federate", "client", str(deployment.client("0"))]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: client '0', data in ")
    assert words in error
    assert len(error.strip().splitlines()) == 1
    assert not (deployment.client("0") / "flower").exists()  # nothing was started


def test_samples_that_fit_are_let_through(deployment: Deployment) -> None:
    site = open_site(deployment.client("0"))
    check_samples(site, deployment.client("0"))
    (deployment.client("0") / "expected.yaml").write_text("kind: classification\ninputs: [5]\nclasses: 2\n")
    with pytest.raises(RequestError, match=r"samples have shape \(2,\), the task says \(5,\)"):
        check_samples(site, deployment.client("0"))


def test_papers_of_another_kind(tmp_path: Path) -> None:
    security.make_authority(tmp_path / "ca.crt", tmp_path / "ca.key")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")], check=True)
    with pytest.raises(RequestError, match="EC key"):
        security.check_credentials(tmp_path / "key", tmp_path / "ca.crt")


def test_names_and_folders_that_units_cannot_hold(
    tmp_path: Path, deployment: Deployment, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["data=fl60", "method=fedavg", "rounds=2", "novel=0", "--clients", "2"]
    assert run_command_line(["federate", "init", str(tmp_path / "100%"), *words]) == 2
    assert "cannot hold a path with '%'" in capsys.readouterr().err
    for name in ("a\nExecStart=rm", "a\x1bb"):
        assert run_command_line(["federate", "add", str(deployment.folder), name, "--links", "0"]) == 2
        assert "printable" in capsys.readouterr().err


def test_the_control_interface_stays_here() -> None:
    with pytest.raises(ValueError, match="open_control"):
        ServerSettings(public="example.org:1", host="0.0.0.0")
    ServerSettings(public="example.org:1", host="0.0.0.0", open_control=True)


def test_the_limit_goes_by_the_network(deployment: Deployment) -> None:
    assert deployment.settings.largest_reply < 2**21


def test_a_strangers_words_are_no_markup(deployment: Deployment, capsys: pytest.CaptureFixture[str]) -> None:
    run = deployment.folder / "run"
    run.mkdir()
    line = {"time": "", "round": 1, "client": "0", "event": "told", "detail": "[/bold] [red]x"}
    (run / "federation.jsonl").write_text(json.dumps(line) + "\n")
    deployment.write_run(state="running", directory=str(run))
    assert run_command_line(["federate", "status", str(deployment.folder)]) == 0
    assert "[/bold] [red]x" in capsys.readouterr().out
