"""The Flower side without Flower's processes: records, identity, files, keys."""

from __future__ import annotations

import ssl
import stat
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra federation")

import yaml
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from panacea.cli import run_command_line
from panacea.deploy import security
from panacea.deploy.deployment import Deployment, ServerSettings
from panacea.deploy.deployment_files import add_client, body_limit
from panacea.deploy.flower_records import WRONG, order_of, order_records, reply_of, reply_records
from panacea.deploy.flower_server import GridTransport
from panacea.deploy.log import FederationLog
from panacea.deploy.orders import Failure, Order, Packed, Reply

ARRAY = {"download.params": Packed("float32", (2,), b"\x93NUMPY bytes")}
NODES = {"a": {"fingerprint": "f", "node_id": 7}, "b": {"fingerprint": "g", "node_id": 8}}


def test_orders_and_replies_travel_as_they_are() -> None:
    order = Order(3, "a", 2, ("evaluate", "train"), '{"seed": 1}', ARRAY)
    assert order_of(order_records(order)) == order
    reply = Reply(ARRAY, {"loss": 0.5}, "hello")
    assert reply_of(reply_records(reply, "a")) == ("a", reply)
    assert reply_of(reply_records(Failure("no data"), "a")) == ("a", Failure("no data"))


@pytest.mark.parametrize(
    "records",
    [
        RecordDict({}),
        RecordDict({"reply": ArrayRecord({})}),
        RecordDict({"reply": ConfigRecord({"name": 3})}),
        RecordDict({"reply": ConfigRecord({"name": "a", "text": ""})}),
        RecordDict({"reply": ConfigRecord({"name": "a", "text": ""}), "numbers": MetricRecord({"loss": [1.0]})}),
        RecordDict({
            "reply": ConfigRecord({"name": "a", "text": ""}), "numbers": MetricRecord({}),
            "arrays": ArrayRecord({"x": Array(dtype="float32", shape=(1,), stype="torch.pickle", data=b"")}),
        }),
    ],
)  # fmt: skip
def test_what_is_no_reply_is_recognised(records: RecordDict) -> None:
    with pytest.raises(WRONG):
        reply_of(records)


class Grid:
    """Flower's grid in memory: `answers` makes of a message its reply, or None."""

    def __init__(self, answers: Any, online: set[int]) -> None:
        self.answers, self.online, self.sent = answers, online, {}

    def get_node_ids(self) -> list[int]:
        return sorted(self.online)

    def push_messages(self, messages: list[Message]) -> list[str]:
        self.sent = {str(number): message for number, message in enumerate(messages)}
        return list(self.sent)

    def pull_messages(self, numbers: list[str]) -> list[Any]:
        found = []
        for number in numbers:
            reply = self.answers(self.sent[number])
            if reply is not None:
                reply.metadata = SimpleNamespace(
                    reply_to_message_id=number,
                    src_node_id=getattr(reply, "node", self.sent[number].metadata.dst_node_id),
                )
                found.append(reply)
        return found


def message(records: RecordDict | None = None, error: Error | None = None, **extra: Any) -> Any:
    return SimpleNamespace(content=records, error=error, has_error=lambda: error is not None, **extra)


@pytest.fixture
def deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    for name in ("task_id", "run_id", "node_id"):  # a message is made by a run
        monkeypatch.setattr(TaskIdentity, f"_{name}", 1)
    made = Deployment(tmp_path)
    made.server_file.write_text("public: 127.0.0.1:1\n")
    made.write_nodes(NODES)
    return made


def exchanged(
    deployment: Deployment, answers: Any, online: tuple[int, ...] = (7, 8)
) -> tuple[dict[int, Any], list[Any]]:
    transport, log = GridTransport(Grid(answers, set(online)), deployment), FederationLog()
    transport.begin(["a", "b"], log)
    orders = {number: Order(number, name, 1, ("train",), "{}") for number, name in enumerate("ab")}
    return dict(transport.exchange(orders, 1.0)), log.lines


def honest(asked: Message) -> Any:
    name = {7: "a", 8: "b"}[asked.metadata.dst_node_id]
    return message(reply_records(Reply({}, {"loss": 1.0}), name))


def test_every_client_gets_its_own_order(deployment: Deployment) -> None:
    out, lines = exchanged(deployment, honest)
    assert [out[number].numbers for number in (0, 1)] == [{"loss": 1.0}] * 2
    assert lines == []


def test_a_name_belongs_to_a_key(deployment: Deployment) -> None:
    out, lines = exchanged(deployment, lambda asked: message(reply_records(Reply(), "b")))
    assert out[0] == Failure("claims the name 'b'")
    assert out[1] == Reply()
    assert [(line["client"], line["event"]) for line in lines] == [("a", "refused")]


def test_an_unknown_node_is_refused_once(deployment: Deployment) -> None:
    _, lines = exchanged(deployment, honest, (7, 8, 99))
    assert [line["detail"] for line in lines] == ["node 99 is not in nodes.json"]


def test_who_is_away_costs_nothing(deployment: Deployment) -> None:
    started = time.monotonic()
    out, _ = exchanged(deployment, honest, (8,))
    assert out[0] == Failure("not connected")
    assert time.monotonic() - started < 0.9


def test_who_is_silent_is_absent_after_the_deadline(deployment: Deployment) -> None:
    out, _ = exchanged(deployment, lambda asked: honest(asked) if asked.metadata.dst_node_id == 8 else None)
    assert list(out) == [1]


def test_another_node_cannot_answer(deployment: Deployment) -> None:
    out, lines = exchanged(deployment, lambda asked: message(reply_records(Reply(), "a"), node=99))
    assert out[0] == Failure("the reply came from another node")
    assert lines


def test_errors_and_rubbish_are_failures(deployment: Deployment) -> None:
    out, _ = exchanged(deployment, lambda asked: message(error=Error(2, "it\nbroke \u2014")))
    assert out[0] == Failure("the client broke: it broke ?")
    out, _ = exchanged(deployment, lambda asked: message(RecordDict({})))
    assert out[0].reason.startswith("malformed reply")


def test_keys_and_certificates(tmp_path: Path) -> None:
    at = tmp_path.joinpath
    security.make_authority(at("ca.crt"), at("ca.key"))
    security.make_certificate(at("ca.crt"), at("ca.key"), at("s.crt"), at("s.key"), ["localhost", "127.0.0.1"])
    security.make_key(at("key"), at("key.pub"))
    context = ssl.create_default_context(cafile=str(at("ca.crt")))
    assert context.cert_store_stats()["x509_ca"] == 1
    ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(at("s.crt"), at("s.key"))
    for secret in ("ca.key", "s.key", "key"):
        assert stat.S_IMODE(at(secret).stat().st_mode) == 0o600, secret
    assert security.read_public_key(at("key.pub")).startswith(b"-----BEGIN PUBLIC KEY")
    assert security.fingerprint(at("key.pub")).startswith("SHA256:")
    with pytest.raises(ValueError, match="OpenSSH"):
        security.read_public_key(at("ca.crt"))


def test_insecure_stays_on_this_machine() -> None:
    ServerSettings(public="localhost:1", insecure=True)
    for given in ({"public": "example.org:1"}, {"public": "localhost:1", "host": "0.0.0.0"}):
        with pytest.raises(ValueError, match="loopback interface only"):
            ServerSettings(insecure=True, **given)


def test_init_writes_a_deployment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task, names, edges = (tmp_path / name for name in ("task.yaml", "names.txt", "edges.csv"))
    task.write_text("kind: classification\ninputs: [2]\nclasses: 2\n")
    names.write_text("Zürich\nBern\n")
    edges.write_text("source,target\nZürich,Bern\n")
    words = ["data=mine", "method=panacea", "rounds=2", f"graph={edges}", "--names", str(names), "--task", str(task)]
    fed = tmp_path / "fed"
    assert run_command_line(["federate", "init", str(fed), *words, "--public", "fed.example.org:9443"]) == 0
    deployment = Deployment(fed)
    assert list(deployment.read_nodes()) == ["Zürich", "Bern"]
    client = fed / "clients" / "Z_rich"
    assert yaml.safe_load((client / "client.yaml").read_text(encoding="utf-8"))["name"] == "Zürich"
    assert {path.name for path in client.iterdir()} >= {"key", "ca.crt", "connection.yaml", "data"}
    assert f"client_max_body_size {body_limit(354)};" in deployment.proxy.read_text()
    assert "location / { return 403; }" in deployment.proxy.read_text()
    assert "$" not in deployment.proxy.read_text().replace("$binary_remote_addr", "").replace("$host", "")
    assert stat.S_IMODE(fed.stat().st_mode) == 0o700
    app = "".join(path.read_text() for path in (fed / "app").rglob("*.py"))
    assert app.count("import") == 2  # nothing but the names of what is installed
    assert run_command_line(["federate", "init", str(fed), *words]) == 2  # never over another one
    assert run_command_line(["federate", "add", str(fed), "Basel", "--links", "Bern"]) == 0
    assert run_command_line(["federate", "add", str(fed), "Basel", "--links", "Bern"]) == 2
    assert run_command_line(["federate", "add", str(fed), "Chur", "--links", "Brn"]) == 2
    assert "did you mean 'Bern'" in capsys.readouterr().err
    old = deployment.read_nodes()["Basel"]["fingerprint"]
    assert run_command_line(["federate", "add", str(fed), "Basel", "--replace"]) == 0
    assert deployment.read_nodes()["Basel"]["fingerprint"] != old
    assert run_command_line(["federate", "submit", str(fed)]) == 0
    assert run_command_line(["federate", "submit", str(fed)]) == 2
    assert run_command_line(["federate", "status", str(fed)]) == 0
    assert "does not answer; run: wanted" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["data=fl60", "method=fedavg", "--clients", "a,b"], "--task"),
        (["data=fl60", "method=fedavg", "--task", "t.yaml"], "--names"),
        (["data=fl60", "method=fedavg", "--clients", "2", "--names", "n.txt"], "give one of them"),
        (["data=fl60", "method=fedavg", "--clients", "2", "--insecure", "--public", "example.org:1"], "loopback"),
        (["data=fl60", "method=fedavg", "--clients", "a", "--task", "nowhere.yaml"], "nowhere.yaml"),
    ],
)
def test_wrong_requests(tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert run_command_line(["federate", "init", str(tmp_path / "fed"), *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.strip().splitlines()) == 1
    assert not (tmp_path / "fed").exists()


def test_without_flower_one_line_says_how(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert run_command_line(["federate", "local", "data=fl60", "method=fedavg"]) == 2
    assert "pip install 'panacea-fl[federation]'" in capsys.readouterr().err


def test_samples_are_each_clients_own(tmp_path: Path) -> None:
    words = ["data=fl60", "method=fedavg", "--clients", "2", "novel=0"]
    assert run_command_line(["federate", "init", str(tmp_path / "fed"), *words]) == 0
    first, second = (np.load(tmp_path / "fed" / "clients" / name / "data" / "data.npz")["x"] for name in "01")
    assert first.shape[1:] == second.shape[1:] == (2,)
    assert not np.array_equal(first[:5], second[:5])
    assert not list((tmp_path / "fed" / "roster").glob("*.npz")) or "x" not in np.load(
        tmp_path / "fed" / "roster" / "graph.npz"
    )
    with pytest.raises(FileExistsError):
        add_client(Deployment(tmp_path / "fed"), "0")
