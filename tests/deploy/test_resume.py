"""A server or a client killed at any point of a round: the run ends as if nothing had happened."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from panacea.core.files import read_lines
from panacea.core.records import leaves
from panacea.deploy.inprocess import InProcess
from panacea.deploy.log import FederationLog
from panacea.deploy.orders import Failure, Order, Reply
from panacea.deploy.site import answer
from panacea.errors import RequestError
from panacea.experiment.experiment import Experiment
from tests.deploy.build import QUICK, federate, keys, ragged, transport

FLAT = keys("ditto", eval_every=1)
STRICT = dataclasses.replace(QUICK, quorum=1.0)
EXCHANGES = 5  # hello, round 1, its evaluation with round 2, that of 2 with 3, that of 3


class Killed(BaseException):
    """Stands for kill -9: nothing catches it."""


class Mortal(InProcess):
    """Dies before or after its n-th exchange."""

    dies: tuple[int, str] = (0, "")
    done = 0

    def exchange(self, orders: Mapping[int, Order], deadline: float) -> Mapping[int, Reply | Failure]:
        """As its parent, for a while."""
        self.done += 1
        if self.dies == (self.done, "before"):
            raise Killed
        came = super().exchange(orders, deadline)
        if self.dies == (self.done, "after"):
            raise Killed
        return came


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Experiment, Path]:
    folder = tmp_path_factory.mktemp("undisturbed")
    link = transport(ragged(), folder)
    experiment, _ = federate(ragged(), FLAT, folder, over=link)
    assert sum(link.asked) == 6 + 3 + 3 * 6  # nobody is asked twice for what one message can carry
    return experiment, folder


def same(found: Experiment, wanted: Experiment) -> None:
    for a, b in zip(leaves(found.state.server), leaves(wanted.state.server), strict=True):
        assert torch.equal(a, b)
    assert found.history.last is not None
    assert wanted.history.last is not None
    assert found.history.last.test.loss.tolist() == wanted.history.last.test.loss.tolist()
    assert found.visits.tolist() == wanted.visits.tolist()


def fresh_sites(undisturbed: tuple[Experiment, Path], folder: Path) -> None:
    """The clients' folders without a state."""
    shutil.copytree(undisturbed[1] / "sites", folder / "sites", ignore=shutil.ignore_patterns("state"))


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", range(1, EXCHANGES + 1))
def test_a_server_killed_anywhere(undisturbed: tuple[Experiment, Path], number: int, when: str, tmp_path: Path) -> None:
    fresh_sites(undisturbed, tmp_path)
    dying = Mortal(transport(ragged(), tmp_path).sites)
    dying.dies = (number, when)
    with pytest.raises(Killed):
        federate(ragged(), FLAT, tmp_path, over=dying)
    same(federate(ragged(), FLAT, tmp_path)[0], undisturbed[0])


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("round", [1, 2, 3])
def test_a_client_killed_in_a_round_is_asked_again(
    undisturbed: tuple[Experiment, Path], round: int, saved: bool, tmp_path: Path
) -> None:
    fresh_sites(undisturbed, tmp_path)
    link, killed = transport(ragged(), tmp_path), []

    def mortal(client: int):  # type: ignore[no-untyped-def]
        def give(order: Order) -> object:
            if order.round != round or "train" not in order.asks or client in killed:
                return answer(order, link.sites[client])
            killed.append(client)
            if saved:
                answer(order, link.sites[client])  # its state is on disk, its reply is lost
            return None

        return give

    link.answers = {client: mortal(client) for client in range(6)}
    found, _ = federate(ragged(), FLAT, tmp_path, over=link, patience=STRICT)
    assert len(killed) == 3
    for a, b in zip(leaves(found.state.server), leaves(undisturbed[0].state.server), strict=True):
        assert torch.equal(a, b)


def test_a_server_that_lost_its_last_checkpoint_asks_for_older_rounds(
    undisturbed: tuple[Experiment, Path], tmp_path: Path
) -> None:
    shutil.copytree(undisturbed[1], tmp_path, dirs_exist_ok=True)
    newest = sorted((tmp_path / "run" / "checkpoint").iterdir())[-1]
    (newest / "state.json").write_text("{}")  # damaged
    (tmp_path / "run" / "summary.json").unlink()
    same(federate(ragged(), FLAT, tmp_path)[0], undisturbed[0])


@pytest.mark.parametrize("content", [None, "{}", "{half"])
def test_a_run_whose_clients_are_not_known_any_more_does_not_begin_anew(
    undisturbed: tuple[Experiment, Path], content: str | None, tmp_path: Path
) -> None:
    shutil.copytree(undisturbed[1], tmp_path, dirs_exist_ok=True)
    ledger = tmp_path / "run" / "federation.json"
    ledger.unlink()
    if content is not None:
        ledger.write_text(content)
    with pytest.raises(RequestError, match=r"federation.json: cannot be read, but the run is under way"):
        federate(ragged(), FLAT, tmp_path)


def test_a_run_whose_checkpoints_are_damaged_keeps_its_name(
    undisturbed: tuple[Experiment, Path], tmp_path: Path
) -> None:
    shutil.copytree(undisturbed[1], tmp_path, dirs_exist_ok=True)
    before = (tmp_path / "run" / "federation.json").read_text()
    for checkpoint in (tmp_path / "run" / "checkpoint").iterdir():
        (checkpoint / "state.json").write_text("{}")
    with pytest.raises(RequestError, match="under way"):
        federate(ragged(), FLAT, tmp_path)
    assert (tmp_path / "run" / "federation.json").read_text() == before


def test_every_start_of_a_server_is_counted(undisturbed: tuple[Experiment, Path], tmp_path: Path) -> None:
    fresh_sites(undisturbed, tmp_path)
    dying = Mortal(transport(ragged(), tmp_path).sites)
    dying.dies = (4, "before")
    with pytest.raises(Killed):
        federate(ragged(), FLAT, tmp_path, over=dying)
    link, starts = transport(ragged(), tmp_path), set[int]()

    def give(order: Order) -> object:
        starts.add(json.loads(order.settings)["start"])
        return answer(order, link.sites[1])

    link.answers = {1: give}
    federate(ragged(), FLAT, tmp_path, over=link)
    assert starts == {2}


def test_half_a_line_in_the_log_is_cut_off(undisturbed: tuple[Experiment, Path], tmp_path: Path) -> None:
    shutil.copytree(undisturbed[1], tmp_path, dirs_exist_ok=True)
    log = tmp_path / "run" / "federation.jsonl"
    with log.open("a") as file:
        file.write('{"time": "2026-')
    federate(ragged(), FLAT, tmp_path)
    assert read_lines(log)[-1]["event"] == "resumed"


def test_the_log_keeps_few_lines_in_memory() -> None:
    log = FederationLog()
    for number in range(3000):
        log.note("something", str(number))
    assert len(log.lines) == 1000
    assert log.lines[-1]["detail"] == "2999"


def test_a_complete_run_is_only_read(undisturbed: tuple[Experiment, Path], tmp_path: Path) -> None:
    shutil.copytree(undisturbed[1], tmp_path, dirs_exist_ok=True)
    link = transport(ragged(), tmp_path)
    same(federate(ragged(), FLAT, tmp_path, over=link)[0], undisturbed[0])
    assert sum(link.asked) == 0


def test_a_run_that_begins_anew_is_another_one_for_its_clients(
    undisturbed: tuple[Experiment, Path], tmp_path: Path
) -> None:
    shutil.copytree(undisturbed[1] / "sites", tmp_path / "sites")  # with the states of that run
    same(federate(ragged(), FLAT, tmp_path)[0], undisturbed[0])
