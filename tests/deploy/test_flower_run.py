"""Whole runs through Flower's records and the transport's own checks, over a grid in memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra federation")

from flwr.app import Message
from flwr.supercore.task_identity import TaskIdentity

from panacea.core.files import read_lines
from panacea.deploy.deployment import Deployment
from panacea.deploy.flower_records import nonce_of, order_of, reply_records
from panacea.deploy.flower_transport import GridTransport
from panacea.deploy.orders import Order, Reply
from panacea.deploy.site import answer
from panacea.deploy.wire import pack
from tests.deploy.build import federate, keys, ragged, transport
from tests.deploy.test_flower import Grid

FIRST = 10  # node of client 0
LIAR = 1
LIMIT = 65536


@pytest.fixture(autouse=True)
def a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("task_id", "run_id", "node_id"):  # a message is made by a run
        monkeypatch.setattr(TaskIdentity, f"_{name}", 1)


def over_a_grid(folder: Path, change: Callable[[Order, Reply], Reply]) -> tuple[GridTransport, Grid, list[int]]:
    """Six clients behind a grid; what the liar replies goes through `change`; and the rounds it was asked to train."""
    federation = ragged(0)
    sites = transport(federation, folder).sites
    deployment = Deployment(folder / "fed")
    deployment.folder.mkdir()
    deployment.server_file.write_text(f"public: 127.0.0.1:1\nlargest_reply: {LIMIT}\n")
    with deployment.changing_nodes() as nodes:
        nodes |= {name: {"fingerprint": "f", "node_id": FIRST + n} for n, name in enumerate(federation.names)}
    asked: list[int] = []

    def give(message: Message) -> Message:
        client, order = message.metadata.dst_node_id - FIRST, order_of(message.content)
        reply = answer(order, sites[client])
        assert isinstance(reply, Reply)
        if client == LIAR and "train" in order.asks:
            asked.append(order.round)
            reply = change(order, reply)
        return Message(reply_records(reply, sites[client].name, nonce_of(message.content)), reply_to=message)

    grid = Grid(give, {FIRST + n for n in range(6)})
    return GridTransport(grid, deployment), grid, asked


def test_a_run_over_the_grid_is_the_run(tmp_path: Path) -> None:
    flat = keys("fedavg", cohort=6, rounds=3)
    link, _, _ = over_a_grid(tmp_path, lambda order, reply: reply)
    found, _ = federate(ragged(0), flat, tmp_path, over=link)
    whole, _ = federate(ragged(0), flat, tmp_path / "undisturbed")
    assert found.state.server.params.equal(whole.state.server.params)


def test_who_sends_too_much_again_and_again_is_left_out(tmp_path: Path) -> None:
    """Each time for longer, until it sends what it should; the others train in every round."""

    def large(order: Order, reply: Reply) -> Reply:
        own = np.random.default_rng(order.round).normal(size=LIMIT // 4).astype(np.float32)
        return dataclasses.replace(reply, arrays={"upload.params": pack(own)}) if order.round < 12 else reply

    link, grid, asked = over_a_grid(tmp_path, large)
    found, _ = federate(ragged(0), keys("fedavg", cohort=6, rounds=21, eval_every=100), tmp_path, over=link)
    assert asked == [1, 3, 6, 11, 20, 21]  # left out of 1, 2, 4 and 8 rounds; then it is sound
    lines = [line for line in read_lines(tmp_path / "run" / "federation.jsonl") if line["client"] == "site 1"]
    failed = [line["detail"] for line in lines if line["event"] == "failed"]
    assert failed == [f"its reply is larger than {LIMIT} bytes; left out of the next {n}" for n in (1, 2, 4, 8)]
    assert [line["round"] for line in lines if line["event"] == "back"] == [20]
    assert found.state.round == 21
    assert found.refused.sum() == found.refused[LIAR] == 19
    assert len(grid.confirmed) == len(set(grid.confirmed))  # the SuperLink keeps none of it
    assert not grid.sent
