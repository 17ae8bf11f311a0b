"""Clients that lie, break or are silent cost their own upload, never the round."""

from __future__ import annotations

import dataclasses
import io
import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

from panacea.core.files import read_lines
from panacea.deploy.inprocess import InProcess
from panacea.deploy.orders import Failure, Order, Packed, Reply
from panacea.deploy.site import answer
from panacea.deploy.wire import pack
from panacea.errors import RunFailure
from tests.deploy.build import QUICK, federate, keys, ragged, transport

FLAT = keys("fedavg", cohort=5, rounds=2, eval_every=2)
LIAR = 1
NAME = "upload.params"
P = 10_000


def changed(change: Callable[[Reply], object]) -> Callable[[InProcess], Callable[[Order], object]]:
    """A client that answers properly but for what `change` does to its replies to training orders."""

    def of(link: InProcess) -> Callable[[Order], object]:
        def give(order: Order) -> object:
            reply = answer(order, link.sites[LIAR])
            assert isinstance(reply, Reply)
            return change(reply) if "train" in order.asks else reply

        return give

    return of


def array(change: Callable[[Packed], Packed]) -> Callable[[Reply], object]:
    return lambda reply: dataclasses.replace(reply, arrays={**reply.arrays, NAME: change(reply.arrays[NAME])})


def values(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Reply], object]:  # type: ignore[type-arg]
    def of(packed: Packed) -> Packed:
        return pack(change(np.load(io.BytesIO(packed.data))))

    return array(of)


def number(**said: float) -> Callable[[Reply], object]:
    return lambda reply: dataclasses.replace(reply, numbers={**reply.numbers, **said})


def nan(x: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    return np.where(np.arange(len(x)) == 3, np.nan, x).astype(x.dtype)


def pickled() -> bytes:
    file = io.BytesIO()
    np.save(file, np.array([{}], dtype=object), allow_pickle=True)
    return file.getvalue()


def huge_header(packed: Packed) -> Packed:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (10**12,)})
    data = file.getvalue()
    return dataclasses.replace(packed, data=data + bytes(len(packed.data) - len(data)))


LIES: dict[str, tuple[Callable[[Reply], object], str]] = {
    "nan": (values(nan), "not finite"),
    "too large": (values(lambda x: x + 1e30), "too large"),
    "wrong shape": (values(lambda x: x[:-1]), "declared shape"),
    "more than it declares": (
        array(lambda p: dataclasses.replace(p, data=pack(np.zeros((1, *p.shape), np.float32)).data)),
        "holds shape",
    ),
    "wrong declared shape": (array(lambda p: dataclasses.replace(p, shape=(3,))), "declared shape"),
    "wrong declared type": (array(lambda p: dataclasses.replace(p, dtype="float16")), "declared as float16"),
    "another type within": (
        array(lambda p: dataclasses.replace(p, data=pack(np.zeros(p.shape, np.int32)).data)), "holds int32"
    ),
    "float64": (values(lambda x: x.astype(np.float64)), "declared as float64"),
    "extra name": (
        lambda reply: dataclasses.replace(reply, arrays={**reply.arrays, "more": pack(np.zeros(2))}), "not expected"
    ),
    "other name": (lambda reply: dataclasses.replace(reply, arrays={"x": reply.arrays[NAME]}), "no upload.params"),
    "nothing": (lambda reply: dataclasses.replace(reply, arrays={}), "no upload.params"),
    "objects": (array(lambda p: dataclasses.replace(p, data=pickled().ljust(len(p.data), b"\0"))), "holds object"),
    "garbage": (array(lambda p: dataclasses.replace(p, data=b"\x13" * len(p.data))), "cannot be read"),
    "200 MB": (array(lambda p: dataclasses.replace(p, data=bytes(200 * 10**6))), "bytes where"),
    "huge header": (array(huge_header), "holds shape (1000000000000,)"),
    "loss is NaN": (number(loss=math.nan), "loss is not a finite number"),
    "absurd loss": (number(loss=1e20), "not between"),
    "strange number": (number(gift=1.0), "gift is not expected"),
    "accuracy of 200": (number(**{"test.metric": 200.0}), "test.metric"),
    "a failure": (lambda reply: Failure("out of\nmemory \x1b[31m"), "out of memory"),
    "silence": (lambda reply: None, "no reply in 5 s"),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_refused_and_the_round_goes_on(lie: str, tmp_path: Path) -> None:
    change, reason = LIES[lie]
    flat = {**FLAT, "eval_every": 1} if "accuracy" in lie else FLAT
    link = transport(ragged(), tmp_path)
    link.answers = {LIAR: changed(change)(link)}
    found, summary = federate(ragged(), flat, tmp_path, over=link)
    assert found.state.round == 2
    assert found.refused[LIAR] >= 1
    assert found.refused.sum() == found.refused[LIAR]
    assert math.isfinite(summary["final_mean"])
    refused = read_lines(tmp_path / "run" / "refused.jsonl")
    assert reason in refused[0]["reason"]
    log = [line for line in read_lines(tmp_path / "run" / "federation.jsonl") if line["event"] == "failed"]
    assert reason in log[0]["detail"]
    assert log[0]["client"] == "site 1"
    assert all(len(json.dumps(line)) < 1000 and "\\u001b" not in json.dumps(line) for line in log)


@pytest.mark.parametrize("count", [0, -5, 10**12, math.nan, math.inf, 1.5e9])
def test_a_client_with_absurdly_many_samples_is_not_believed(count: float, tmp_path: Path) -> None:
    link = transport(ragged(), tmp_path)
    link.answers = {
        LIAR: lambda order: (
            Reply({}, {"train.count": count, "val.count": 1, "test.count": 1})
            if "hello" in order.asks
            else answer(order, link.sites[LIAR])
        )
    }
    found, _ = federate(ragged(), FLAT, tmp_path, over=link)
    others = np.delete(ragged().counts("train"), LIAR)
    assert found.federation.counts("train")[LIAR] == int(np.median(others))
    assert np.delete(found.federation.counts("train"), LIAR).tolist() == others.tolist()


def test_a_dead_client_is_left_alone_longer_and_longer(tmp_path: Path) -> None:
    link = transport(ragged(), tmp_path)
    asked: list[int] = []

    def dead(order: Order) -> object:
        if "hello" in order.asks or order.round >= 12:
            return answer(order, link.sites[LIAR])
        asked.append(order.round)
        return None

    link.answers = {LIAR: dead}
    found, _ = federate(ragged(0), {**FLAT, "cohort": 6, "rounds": 16, "eval_every": 100}, tmp_path, over=link)
    assert asked == [1, 3, 6, 11]  # left out of 1, 2, 4 and 8 rounds
    events = [line["event"] for line in read_lines(tmp_path / "run" / "federation.jsonl") if line["client"] == "site 1"]
    assert events.count("skipped") == 1 + 2 + 4 + 5
    assert events[-1] == "back"  # the last evaluation asks everybody
    assert found.refused[LIAR] == 16


def test_it_is_welcome_back(tmp_path: Path) -> None:
    link = transport(ragged(), tmp_path)
    link.answers = {
        LIAR: lambda order: None if order.round == 1 and "train" in order.asks else answer(order, link.sites[LIAR])
    }
    found, _ = federate(ragged(0), {**FLAT, "cohort": 6, "rounds": 4, "eval_every": 100}, tmp_path, over=link)
    assert found.refused[LIAR] == 2  # of round 1, and of round 2 in which it was not asked
    events = [line["event"] for line in read_lines(tmp_path / "run" / "federation.jsonl") if line["client"] == "site 1"]
    assert events == ["failed", "skipped", "back"]


def absent_in(link: InProcess, sick: Iterable[int], rounds: Iterable[int]) -> None:
    """These clients do not answer in these rounds."""
    gone = tuple(rounds)
    link.answers = {
        client: lambda order, c=client: None if order.round in gone else answer(order, link.sites[c]) for client in sick
    }


def test_below_the_quorum_nothing_is_averaged_and_the_run_can_go_on(tmp_path: Path) -> None:
    link = transport(ragged(0), tmp_path)
    flat, strict = {**FLAT, "cohort": 6}, dataclasses.replace(QUICK, left_out=0)
    absent_in(link, range(4), [2])
    with pytest.raises(RunFailure, match="round 2: 2 of 6 clients answered soundly, 3 are needed"):
        federate(ragged(0), flat, tmp_path, over=link, patience=strict)
    events = [line["event"] for line in read_lines(tmp_path / "run" / "federation.jsonl")]
    assert events.count("below quorum") == QUICK.attempts
    assert "given up" in events
    healed, _ = federate(ragged(0), flat, tmp_path)
    whole, _ = federate(ragged(0), flat, tmp_path / "undisturbed")
    assert healed.state.server.params.equal(whole.state.server.params)
    assert healed.refused.sum() == 0


def test_too_few_at_the_start(tmp_path: Path) -> None:
    answers = dict.fromkeys(range(5), lambda order: Failure("not connected", away=True))
    with pytest.raises(RunFailure, match="only 1 of 6 training clients answered; 'site 0': not connected"):
        federate(ragged(0), FLAT, tmp_path, answers)
