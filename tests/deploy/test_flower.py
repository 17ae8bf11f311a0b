"""The Flower side without Flower's processes: records, identity, files, keys."""

from __future__ import annotations

import json
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
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.message_pb2 import PullObjectResponse
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import PullAppMessagesResponse
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.task_identity import TaskIdentity

from panacea.cli import run_command_line
from panacea.data.task import Task
from panacea.deploy import security
from panacea.deploy.deployment import Deployment, ServerSettings
from panacea.deploy.deployment_files import add_client, body_limit
from panacea.deploy.flower_records import WRONG, nonce_of, order_of, order_records, reply_of, reply_records
from panacea.deploy.flower_transport import GridTransport
from panacea.deploy.log import FederationLog
from panacea.deploy.orders import Failure, Order, Packed, Reply

ARRAY = {"download.params": Packed("float32", (2,), b"\x93NUMPY bytes")}  # never decoded here
NODES = {"a": {"fingerprint": "f", "node_id": 7}, "b": {"fingerprint": "g", "node_id": 8}}


def test_orders_and_replies_travel_as_they_are() -> None:
    order = Order(3, "a", 2, ("evaluate", "train"), '{"seed": 1}', ARRAY)
    assert order_of(order_records(order, "n1")) == order
    assert nonce_of(order_records(order, "n1")) == "n1"
    assert nonce_of(RecordDict({})) == ""
    reply = Reply(ARRAY, {"loss": 0.5}, "hello")
    assert reply_of(reply_records(reply, "a", "n1")) == ("a", "n1", reply)
    assert reply_of(reply_records(Failure("no data"), "a", "n1")) == ("a", "n1", Failure("no data"))


@pytest.mark.parametrize(
    "records",
    [
        RecordDict({}),
        RecordDict({"reply": ArrayRecord({})}),
        RecordDict({"reply": ConfigRecord({"name": 3})}),
        RecordDict({"reply": ConfigRecord({"name": "a", "nonce": "", "text": ""})}),
        RecordDict({
            "reply": ConfigRecord({"name": "a", "nonce": "", "text": ""}), "numbers": MetricRecord({"loss": [1.0]}),
            "arrays": ArrayRecord({}),
        }),
        RecordDict({
            "reply": ConfigRecord({"name": "a", "nonce": "", "text": ""}), "numbers": MetricRecord({}),
            "arrays": ArrayRecord({"x": Array(dtype="float32", shape=(1,), stype="torch.pickle", data=b"")}),
        }),
        *(RecordDict({
            "reply": ConfigRecord({"name": "a", "nonce": "", "text": ""}), "numbers": MetricRecord({}),
            "arrays": ArrayRecord({"x": Array(dtype=dtype, shape=shape, stype="numpy.ndarray", data=bytes(130))}),
        }) for dtype, shape in [("object", (1,)), ("float32", (-1,)), ("float32", (10**9,))]),
    ],
)  # fmt: skip
def test_what_is_no_reply_is_recognised(records: RecordDict) -> None:
    with pytest.raises(WRONG):
        reply_of(records)


class Grid:
    """Flower's grid in memory: `answers` makes of a message its reply, or None; replies travel as Flower's pieces.

    Attributes:
        pieces: what becomes of a piece: called with its node, its number and its content.
        sender: of a reply to a message, as the SuperLink has it.
    """

    node, run = Node(node_id=1), SimpleNamespace(run_id=1)

    def __init__(self, answers: Any, online: set[int]) -> None:
        self.answers, self.online, self.looks = answers, online, []
        self.sent: dict[str, Message] = {}
        self.store: dict[str, tuple[int, bytes]] = {}
        self.confirmed: list[str] = []
        self.pieces: Any = lambda node, number, content: content
        self.sender: Any = lambda asked: asked.metadata.dst_node_id
        self._runtime_client = self

    def get_node_ids(self) -> list[int]:
        return sorted(self.online)

    def push_messages(self, messages: list[Message]) -> list[str]:
        for message in messages:
            message.metadata.__dict__["_message_id"] = message.object_id
        self.sent |= {message.object_id: message for message in messages}
        return [message.object_id for message in messages]

    def PullMessages(self, request: Any) -> Any:  # noqa: N802
        self.looks.append(time.monotonic())
        found = PullAppMessagesResponse()
        for number in request.message_ids:
            asked = self.sent.get(number)
            reply = None if asked is None else self.answers(asked)
            if reply is None:
                continue
            del self.sent[number]  # it is named but once
            node = self.sender(asked)
            reply.metadata.__dict__["_message_id"] = reply.object_id
            for name, content in get_all_nested_objects(reply).items():
                self.store[name] = (node, content.deflate())
            said = message_to_proto(remove_content_from_message(reply))
            said.metadata.reply_to_message_id, said.metadata.src_node_id = number, node
            found.messages_list.append(said)
            found.message_object_trees.append(get_object_tree(reply))
        return found

    def PullObject(self, request: Any) -> Any:  # noqa: N802
        node, content = self.store[request.object_id]
        content = self.pieces(node, request.object_id, content)
        there = content is not None
        return PullObjectResponse(object_found=True, object_available=there, object_content=content or b"")

    def ConfirmMessageReceived(self, request: Any) -> None:  # noqa: N802
        self.confirmed.append(request.message_object_id)


def answered(asked: Message, reply: Reply | Failure, name: str | None = None, nonce: str | None = None) -> Message:
    """What a client sends: by default an honest one."""
    name = {7: "a", 8: "b"}.get(asked.metadata.dst_node_id, "?") if name is None else name
    nonce = nonce_of(asked.content) if nonce is None else nonce
    return Message(reply_records(reply, name, nonce), reply_to=asked)


@pytest.fixture
def deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    for name in ("task_id", "run_id", "node_id"):  # a message is made by a run
        monkeypatch.setattr(TaskIdentity, f"_{name}", 1)
    made = Deployment(tmp_path)
    made.server_file.write_text("public: 127.0.0.1:1\n")
    with made.changing_nodes() as nodes:
        nodes.update(NODES)
    return made


def exchanged(
    deployment: Deployment, answers: Any, online: tuple[int, ...] = (7, 8), seconds: float = 1.0, **grid: Any
) -> tuple[dict[int, Any], list[Any]]:
    made, log = Grid(answers, set(online)), FederationLog()
    vars(made).update(grid)
    transport = GridTransport(made, deployment)
    transport.begin(["a", "b"], log)
    orders = {number: Order(number, name, 1, ("train",), "{}") for number, name in enumerate("ab")}
    return dict(transport.exchange(orders, seconds)), list(log.lines)


def made_by(asked: Message, count: int = 1) -> Reply:
    """A client's own: Flower keeps equal pieces of different replies once."""
    node = asked.metadata.dst_node_id
    arrays = {f"upload.{n}": Packed("uint8", (9,), bytes([node, n]) * 10) for n in range(count)}
    return Reply(arrays, {"loss": float(node)})


def honest(asked: Message) -> Any:
    return answered(asked, made_by(asked))


def of_b(asked: Message) -> bool:
    return bool(asked.metadata.dst_node_id == 8)


def test_every_client_gets_its_own_order(deployment: Deployment) -> None:
    out, lines = exchanged(deployment, honest)
    assert [out[number].numbers for number in (0, 1)] == [{"loss": 7.0}, {"loss": 8.0}]
    assert lines == []


def test_an_order_outlives_its_deadline(deployment: Deployment) -> None:
    """A reply that comes at the last moment is still let through by the SuperLink."""
    lives: list[float] = []
    exchanged(deployment, lambda asked: lives.append(asked.metadata.ttl) or honest(asked), seconds=3.0)
    assert len(lives) == 2
    assert min(lives) >= 3.0 + 10


def test_a_name_belongs_to_a_key(deployment: Deployment) -> None:
    out, lines = exchanged(deployment, lambda asked: answered(asked, Reply(), "b"))
    assert out[0] == Failure("claims the name 'b'")
    assert out[1] == Reply()
    assert [(line["client"], line["event"]) for line in lines] == [("a", "refused")]


@pytest.mark.parametrize("nonce", ["", "0" * 32])
def test_a_reply_has_the_number_of_its_order(deployment: Deployment, nonce: str) -> None:
    out, lines = exchanged(deployment, lambda asked: answered(asked, Reply(), nonce=None if of_b(asked) else nonce))
    assert out == {0: Failure("the reply answers another order"), 1: Reply()}
    assert [(line["client"], line["event"]) for line in lines] == [("a", "refused")]


def test_an_unknown_node_is_refused_once(deployment: Deployment) -> None:
    _, lines = exchanged(deployment, honest, (7, 8, 99))
    assert [line["detail"] for line in lines] == ["node 99 is not in nodes.json"]


def test_who_is_away_costs_nothing(deployment: Deployment) -> None:
    started = time.monotonic()
    out, _ = exchanged(deployment, honest, (8,), 5.0)
    assert out[0] == Failure("not connected", away=True)
    assert time.monotonic() - started < 2


def test_who_is_silent_is_absent_after_the_deadline(deployment: Deployment) -> None:
    started = time.monotonic()
    out, _ = exchanged(deployment, lambda asked: honest(asked) if of_b(asked) else None)
    assert list(out) == [1]
    assert time.monotonic() - started < 1.9  # there is nothing to wait for beyond it


def test_who_announces_and_never_sends_holds_nobody(deployment: Deployment) -> None:
    """A client pushes what its reply is made of, and not the pieces."""
    started = time.monotonic()
    out, _ = exchanged(deployment, honest, pieces=lambda node, number, content: None if node == 7 else content)
    assert out[0] == Failure("its reply was not complete in time")
    assert out[1].numbers == {"loss": 8.0}
    assert time.monotonic() - started < 1 + 2 + 1  # deadline, grace, and a busy machine


def test_who_trickles_is_cut_off(deployment: Deployment) -> None:
    def slowly(node: int, number: str, content: bytes) -> bytes:
        time.sleep(1.0 if node == 7 else 0.0)
        return content

    started = time.monotonic()
    out, _ = exchanged(deployment, lambda asked: answered(asked, made_by(asked, 12)), pieces=slowly)
    assert out[0] == Failure("its reply was not complete in time")
    assert isinstance(out[1], Reply)
    assert time.monotonic() - started < 5


def test_a_slow_look_does_not_put_the_deadline_off(deployment: Deployment) -> None:
    """The pause goes by how long a look takes, but not beyond the deadline; and there is a last look at it."""
    started = time.monotonic()

    def late(asked: Message) -> Any:
        time.sleep(0.2)  # twice: a look of 0.4 s, and so a pause of 1.6 s
        return honest(asked) if of_b(asked) and time.monotonic() > started + 0.9 else None

    out, _ = exchanged(deployment, late)
    assert list(out) == [1]
    assert time.monotonic() - started < 1.9


def test_a_reply_is_not_fetched_beyond_its_limit(deployment: Deployment) -> None:
    text = deployment.server_file.read_text()
    deployment.server_file.write_text(text + "largest_reply: 65536\n")
    large = {"x": Packed("float32", (50_000,), bytes(200_128))}
    fetched: list[int] = []

    def count(node: int, number: str, content: bytes) -> bytes:
        fetched.append(len(content))
        return content

    def both(asked: Message) -> Message:
        return answered(asked, Reply({} if of_b(asked) else large))

    grid = Grid(both, {7, 8})
    grid.pieces = count
    transport = GridTransport(grid, deployment)
    transport.begin(["a", "b"], FederationLog())
    out = transport.exchange({n: Order(n, name, 1, ("train",)) for n, name in enumerate("ab")}, 2.0)
    assert out == {0: Failure("its reply is larger than 65536 bytes"), 1: Reply()}
    assert len(grid.confirmed) == 2  # the SuperLink forgets both


def test_an_array_that_repeats_a_piece_is_not_put_together(deployment: Deployment) -> None:
    """A few kilobytes that would become gigabytes."""

    def small(asked: Message) -> Reply:
        return Reply({"x": Packed("float32", (1000,), bytes([asked.metadata.dst_node_id]) * 4128)})

    def repeated(node: int, number: str, content: bytes) -> bytes:
        if node == 7 and b'"arraychunk_ids"' in content:
            head, _, body = content.partition(b"\0")
            words = json.loads(body)
            words["arraychunk_ids"] = [0] * 10**6
            body = json.dumps(words).encode()
            return b" ".join([*head.split(b" ")[:2], str(len(body)).encode()]) + b"\0" + body
        return content

    started = time.monotonic()
    out, _ = exchanged(deployment, lambda asked: answered(asked, small(asked)), pieces=repeated, seconds=5.0)
    assert out[0] == Failure(f"its reply is larger than {deployment.settings.largest_reply} bytes")
    assert len(out[1].arrays["x"].data) == 4128
    assert time.monotonic() - started < 5


def test_another_node_cannot_answer(deployment: Deployment) -> None:
    out, lines = exchanged(deployment, honest, sender=lambda asked: 99)
    assert out[0] == Failure("the reply came from another node")
    assert lines


def test_errors_and_rubbish_are_failures(deployment: Deployment) -> None:
    out, _ = exchanged(deployment, lambda asked: Message(Error(2, "it\nbroke \u2014"), reply_to=asked))
    assert out[0] == Failure("the client broke: it broke \\u2014")
    out, _ = exchanged(deployment, lambda asked: Message(RecordDict({}), reply_to=asked))
    assert out[0].reason.startswith("malformed reply")
    out, _ = exchanged(deployment, honest, pieces=lambda node, number, content: b"rubbish" if node == 7 else content)
    assert out[0].reason.startswith("its reply cannot be read")
    assert isinstance(out[1], Reply)


def test_without_keys_who_says_no_name_is_nobody(deployment: Deployment) -> None:
    deployment.server_file.write_text("public: 127.0.0.1:1\ninsecure: true\n")

    def answers(asked: Message) -> Message:
        if asked.metadata.message_type == "train":
            return answered(asked, Reply())
        who = RecordDict({"reply": ConfigRecord({"name": "b"})})
        return Message(who if of_b(asked) else RecordDict({}), reply_to=asked)

    out, _ = exchanged(deployment, answers, seconds=2.0)
    assert out == {0: Failure("not connected", away=True), 1: Reply()}


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


def test_insecure_folders_stay_on_this_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Clients connect to the server itself; a folder that was changed by hand to another machine is refused."""
    fed = tmp_path / "fed"
    words = ["data=fl60", "method=fedavg", "--clients", "2", "novel=0", "--insecure", "--port", "19092", "--quiet"]
    assert run_command_line(["federate", "init", str(fed), *words]) == 0
    deployment = Deployment(fed)
    assert deployment.settings.public == "localhost:19092"
    assert "No TLS and no keys" in deployment.readme.read_text()
    assert run_command_line(["federate", "status", str(fed), "--json"]) == 0
    assert {client["connected"] for client in json.loads(capsys.readouterr().out)["clients"]} == {None}
    connection = deployment.client("0") / "connection.yaml"
    connection.write_text("server: 10.1.2.3:19092\ninsecure: true\n")
    deployment.server_file.write_text("public: localhost:19092\nhost: 0.0.0.0\ninsecure: true\n")
    for command, file, host in (("client", connection.parent, "10.1.2.3"), ("server", fed, "0.0.0.0")):
        assert run_command_line(["federate", command, str(file)]) == 2
        name = {"client": "connection", "server": "server"}[command]
        said = f"error: {name}.yaml: insecure is for the loopback interface only, not for {host}\n"
        assert capsys.readouterr().err == said


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
        (["data=fl60", "method=fedavg", "--clients", "2", "--insecure", "--public", "10.0.0.1:9092"], "loopback"),
        (["data=fl60", "method=fedavg", "--clients", "2", "--insecure", "--public", "localhost:9443"], "no proxy"),
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
        add_client(Deployment(tmp_path / "fed"), "0", Task("classification", (2,), classes=2))
