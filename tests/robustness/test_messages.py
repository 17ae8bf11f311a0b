"""Messages from anyone: garbage is refused with a reason and reaches nothing; what is odd but sound is read."""

from __future__ import annotations

import dataclasses
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from panacea.core.messages import deliver, receive
from panacea.core.records import Tree, leaves, named_leaves, record, tree_map, tree_where, unsent
from panacea.core.round import run_round
from panacea.core.screening import LIMIT
from panacea.core.types import Cohort
from panacea.experiment.experiment import Experiment
from panacea.experiment.rundir import RunDirectory
from panacea.experiment.runner import run_experiment
from panacea.robustness.malformed import _MAKERS
from tests.robustness.garbage import garbage, oddities
from tests.toy import toy_experiment

GARBAGE, ODD = garbage(), oddities()


@record
class Pair:
    a: Tensor
    b: Tensor
    made: Tensor = unsent()


def cohort(rows: int) -> Cohort:
    return Cohort.of(np.arange(10, 10 + rows), np.ones(10 + rows, np.int64), 1, torch.zeros(1, dtype=torch.float64))


def template(rows: int) -> Pair:
    a = torch.arange(6.0 * rows, dtype=torch.float64).reshape(rows, 6) / 100
    return Pair(a, -a[:, :4] - 0.5, torch.ones(rows, 2, dtype=torch.float64))


def upload() -> dict[str, Tensor]:
    torch.manual_seed(0)
    return {"a": torch.randn(6, dtype=torch.float64), "b": torch.randn(4, dtype=torch.float64)}


def test_there_are_more_than_two_hundred_kinds() -> None:
    assert len(GARBAGE) >= 200


@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_is_refused_with_a_short_reason(kind: str) -> None:
    good = upload()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # making some of them warns
        bad = GARBAGE[kind](upload())
    read, sound, reasons = receive([good, bad, good], template(3), cohort(3))
    assert sound.tolist() == [[True], [False], [True]]
    assert list(reasons) == [11]
    assert 0 < len(reasons[11]) <= 80
    assert reasons[11].isprintable()
    assert reasons[11].isascii()
    for name, leaf in named_leaves(read):
        sent = dict(named_leaves(template(3)))[name]
        assert type(leaf) is Tensor
        assert not leaf.requires_grad
        assert torch.equal(leaf[1], sent[1])
        assert torch.equal(leaf[0], good.get(name, sent[0]))


@pytest.mark.parametrize("kind", ODD)
def test_what_says_the_same_is_read_the_same(kind: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read, sound, reasons = receive([ODD[kind](upload())], template(1), cohort(1))
    assert (sound.tolist(), reasons) == ([[True]], {})
    assert torch.equal(read.a[0], upload()["a"])
    assert torch.equal(read.b[0], upload()["b"])
    assert torch.equal(read.made, template(1).made)
    assert not read.a.requires_grad


@pytest.mark.parametrize("value", [5e-324, -0.0, LIMIT, -LIMIT])
def test_small_values_and_the_limit_itself_pass(value: float) -> None:
    message = {**upload(), "b": torch.full((4,), value, dtype=torch.float64)}
    assert receive([message], tree_map(torch.zeros_like, template(1)), cohort(1))[2] == {}


def test_the_limit_grows_with_what_was_sent() -> None:
    sent = dataclasses.replace(template(1), a=torch.full((1, 6), 100.0, dtype=torch.float64))
    assert receive([{**upload(), "a": 0.99 * LIMIT * sent.a[0]}], sent, cohort(1))[2] == {}
    assert receive([{**upload(), "a": 1.01 * LIMIT * sent.a[0]}], sent, cohort(1))[2] == {10: "a: 1e+12 is too large"}


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("whole: nothing", "no message"),
        ("whole: text", "a str, not a mapping"),
        ("whole: missing", "no a"),
        ("whole: extra", "extra is not expected"),
        ("whole: extra number", "a name is a int, not text"),
        ("whole: no items", "cannot be read: RuntimeError"),
        ("whole: no value", "cannot be read: MemoryError"),
        ("value: torch.int64", "int64 instead of float64"),
        ("value: an array: big-endian", ">f8 instead of float64"),
        ("value: shape axis before", "shape [1, 6] instead of [6]"),
        ("value: shape 0-d", "shape [] instead of [6]"),
        ("value: nan first", "not finite"),
        ("value: 1e+30 all", "1e+30 is too large"),
        ("value: sparse", "not a dense tensor"),
        ("value: meta", "on device meta"),
        ("value: emptied", "without its values"),
        ("value: evil", "a Evil, not a tensor"),
        ("value: text", "a str, not a tensor"),
    ],
)
def test_reasons_name_what_is_wrong(kind: str, reason: str) -> None:
    _, _, reasons = receive([GARBAGE[kind](upload())], template(1), cohort(1))
    found = reasons[10].replace("[4]", "[6]").replace("[1, 4]", "[1, 6]")
    assert found in (reason, f"a: {reason}", f"b: {reason}")


def test_checks_come_in_order() -> None:
    """Names before types, types before shapes, shapes before values."""
    worst = {"a": torch.full((3,), torch.nan), "c": None}
    for fixed, reason in (
        ({}, "no b"),
        ({"b": torch.full((9,), torch.nan)}, "c is not expected"),
        ({"c": ...}, "a: float32 instead of float64"),
        ({"a": torch.full((3,), torch.nan, dtype=torch.float64)}, "a: shape [3] instead of [6]"),
        ({"a": torch.full((6,), torch.nan, dtype=torch.float64)}, "b: float32 instead of float64"),
        ({"b": torch.zeros(4, dtype=torch.float64)}, "a: not finite"),
    ):
        worst = {name: value for name, value in {**worst, **fixed}.items() if value is not ...}
        assert receive([worst], template(1), cohort(1))[2] == {10: reason}


def test_a_refused_message_leaves_the_template_and_the_message_alone() -> None:
    sent, message = template(2), {**upload(), "b": torch.full((4,), torch.nan, dtype=torch.float64)}
    copies = [leaf.clone() for leaf in (*leaves(sent), message["a"])]
    read, _, _ = receive([message, upload()], sent, cohort(2))
    assert all(torch.equal(a, b) for a, b in zip(copies, (*leaves(sent), message["a"]), strict=True))
    read.a.zero_()
    assert torch.equal(sent.a, copies[0])


def test_one_message_for_each_client() -> None:
    with pytest.raises(ValueError, match="zip"):
        receive([upload()], template(2), cohort(2))


def test_only_rows_with_messages_are_touched() -> None:
    uploads = tree_map(lambda leaf: leaf + 0.5, template(3))
    read, reasons = deliver({11: upload(), 12: "no"}, template(3), uploads, cohort(3))
    assert reasons == {12: "a str, not a mapping"}
    assert torch.equal(read.a[0], uploads.a[0])
    assert torch.equal(read.a[1], upload()["a"])
    assert torch.equal(read.a[2], template(3).a[2])
    assert deliver({}, template(3), uploads, cohort(3))[0] is uploads


# --- whole rounds -------------------------------------------------------------------------------------------------


class Garbler:
    """Some clients of every round send the next kinds of garbage."""

    def __init__(self, each: int) -> None:
        self.each, self.kinds, self.sent = each, list(GARBAGE), dict[int, list[str]]()

    def corrupt(self, unchanged: Tree, uploads: Tree, cohort: Cohort) -> Tree:
        return uploads

    def messages(self, uploads: Tree, cohort: Cohort) -> Mapping[int, object]:
        sent = dict(named_leaves(uploads, travelling=True))
        first = (cohort.round - 1) * self.each
        kinds = self.kinds[first : first + self.each]
        self.sent[cohort.round] = kinds
        rows = garbled(cohort, len(kinds))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return {
                int(cohort.ids[row]): GARBAGE[kind]({name: leaf[row].clone() for name, leaf in sent.items()})
                for row, kind in zip(rows, kinds, strict=True)
            }


def garbled(cohort: Cohort, count: int) -> list[int]:
    """Rows that send garbage: another choice every round, and never all of them."""
    return [(cohort.round + i) % len(cohort) for i in range(count)]


def by_hand(experiment: Experiment, count: int) -> None:
    """A round in which these rows are absent with trust 0, without any of the gate's code."""
    method, state = experiment.method, experiment.state
    cohort = experiment.cohort(state.round + 1)
    downloads = method.download(state.server, cohort)
    kept = state.clients.take(cohort.ids, fresh=method.init_client(downloads))
    sent = state.statistics.send(cohort)
    trained = experiment.engine.train(method, downloads, kept, sent, cohort)
    state.clients.put(cohort.ids, trained.kept)
    trust = torch.ones_like(cohort.trust)
    trust[garbled(cohort, count)] = 0
    uploads = tree_where(trust > 0, trained.uploads, method.unchanged(downloads, trained.uploads))
    cohort = dataclasses.replace(cohort, trust=trust)
    state.statistics.receive(cohort, torch.where(trust > 0, trained.statistics, sent))
    state.server, state.round = method.aggregate(state.server, uploads, cohort), cohort.round


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "ditto", "fedamp", "panacea", "pfedhn", "fedper", "fedcg"])
def test_garbage_never_reaches_the_server(name: str) -> None:
    keys: dict[str, Any] = {"cohort": 6, "local_steps": 1, "server_steps": 2, "model.hidden": [2]}
    lied, absent, each = toy_experiment(name, **keys), toy_experiment(name, **keys), 5
    adversary, refused = Garbler(each), 0
    for round in range(1, -(-len(GARBAGE) // each) + 1):
        who = lied.cohort(round)
        lied.state, report = run_round(lied.method, lied.state, who, lied.engine, adversary)
        kinds = adversary.sent[round]
        assert set(report.refused) == {int(who.ids[row]) for row in garbled(who, len(kinds))}, kinds
        refused += len(report.refused)
        by_hand(absent, len(kinds))
    assert refused == len(GARBAGE)
    for (place, a), (_, b) in zip(named_leaves(lied.state.server), named_leaves(absent.state.server), strict=True):
        assert torch.equal(a, b), place
        assert bool(torch.isfinite(a).all())


def test_when_all_send_garbage_the_server_stays() -> None:
    experiment = toy_experiment("panacea", cohort=5)
    before = [leaf.clone() for leaf in leaves(experiment.state.server)]
    who = experiment.cohort(1)
    experiment.state, report = run_round(experiment.method, experiment.state, who, experiment.engine, Garbler(5))
    assert len(report.refused) == 5
    assert experiment.state.round == 1
    assert np.isfinite(report.loss)
    assert all(torch.equal(a, b) for a, b in zip(before, leaves(experiment.state.server), strict=True))


@pytest.mark.parametrize("kind", [*_MAKERS, "random"])
def test_every_kind_of_the_test_attack_is_refused(kind: str) -> None:
    keys = {"attack": "malformed", "attack.kind": kind, "attack.ratio": 0.5, "attack.start": 2, "cohort": 6}
    experiment = toy_experiment("scaffold", local_steps=1, **keys)
    for round in (1, 2):
        who = experiment.cohort(round)
        experiment.state, report = run_round(
            experiment.method, experiment.state, who, experiment.engine, experiment.attackers, experiment.defence
        )
        assert sorted(report.refused) == (np.flatnonzero(experiment.malicious).tolist() if round == 2 else [])


def test_a_run_counts_what_it_refused(tmp_path: Path) -> None:
    keys = {"attack": "malformed", "attack.ratio": 0.3, "cohort": 4, "rounds": 6, "eval_every": 2, "out": str(tmp_path)}
    experiment = toy_experiment("fedavg", local_steps=1, **keys)
    directory = RunDirectory.of(experiment.config, experiment.method.name)
    summary = run_experiment(experiment, directory)
    lines = [json.loads(line) for line in directory.refused.read_text().splitlines()]
    sent = sum(len(set(experiment.cohort(r).ids) & set(np.flatnonzero(experiment.malicious))) for r in range(1, 7))
    assert sent > 0
    assert len(lines) == sent == summary["refused"]
    assert {line["client"] for line in lines} <= set(np.flatnonzero(experiment.malicious).tolist())
    assert all(line["reason"] and line["name"] == experiment.federation.names[line["client"]] for line in lines)
    counted = [json.loads(line)["refused"] for line in directory.metrics.read_text().splitlines()]
    assert counted == [sum(line["round"] <= round for line in lines) for round in (2, 4, 6)]
    assert summary["detection_precision"] == summary["detection_recall"] == 1.0
