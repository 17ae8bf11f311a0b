"""Clients that join a run while it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file

from panacea.core.files import read_lines
from panacea.deploy.inprocess import InProcess
from panacea.deploy.joining import ask_to_join, joined_names, pending, refusal
from panacea.deploy.orders import Failure
from panacea.deploy.roster import Newcomer, Roster
from panacea.deploy.serve import serve
from panacea.errors import RequestError
from panacea.experiment.config import build_config
from panacea.experiment.experiment import Experiment
from tests.deploy.build import QUICK, Keep, keys, ragged, transport

ALL = ragged(0)
NEW = Newcomer(name="site 5", links=("site 4", "site 0"), group=1)


class Late(Keep):
    """Asks to join after the first round."""

    def __init__(self, folder: Path, request: Newcomer | None = NEW) -> None:
        self.folder, self.request = folder, request

    def on_round(self, experiment: Experiment, report: object) -> None:
        """Once."""
        if experiment.state.round == 1 and self.request is not None:
            ask_to_join(self.folder / "run", self.request)


def five() -> Roster:
    """The federation without its last client."""
    roster = Roster.of(ALL)
    assert roster.graph is not None
    assert roster.groups is not None
    graph, groups = roster.graph.take(np.arange(5)), roster.groups[:5]
    return Roster("ragged", roster.task, roster.names[:5], roster.novel[:5], graph, groups)


def run(folder: Path, flat: dict[str, Any], late: Late, over: InProcess | None = None) -> Experiment:
    link = transport(ALL, folder) if over is None else over
    serve(build_config(flat), five(), link, folder / "run", [late], QUICK)
    return late.experiment


def events(folder: Path, name: str) -> list[str]:
    return [line["event"] for line in read_lines(folder / "run" / "federation.jsonl") if line["client"] == name]


@pytest.mark.parametrize("method", ["panacea", "pfedhn", "panacea_mlp", "fedavg", "fedamp", "sfl", "ditto", "scaffold"])
def test_a_client_joins_with_its_links(method: str, tmp_path: Path) -> None:
    flat = keys(method, rounds=4, cohort=5, eval_every=1)
    link = transport(ALL, tmp_path)
    found = run(tmp_path, flat, Late(tmp_path), link)
    assert len(found.federation) == 6
    assert found.visits[5] >= 1
    assert found.refused.sum() == 0
    assert found.federation.counts("train")[5] == ALL.counts("train")[5]
    assert events(tmp_path, "site 5") == ["joined", "first model"]
    assert found.history.last is not None
    assert np.isfinite(found.history.last.test.loss).all()
    assert pending(tmp_path / "run") == []
    kept = load_file(next(link.sites[5].state.glob("*/model.safetensors")))
    assert set(kept) == set(found.target.layout.names)


def test_a_server_killed_after_somebody_joined_goes_on_with_them(tmp_path: Path) -> None:
    class Killed(BaseException):
        pass

    class Dies(Late):
        def on_round(self, experiment: Experiment, report: object) -> None:
            super().on_round(experiment, report)
            if experiment.state.round == 3:
                raise Killed

    flat = keys("panacea", rounds=4, cohort=5)
    whole = run(tmp_path / "whole", flat, Late(tmp_path / "whole"))
    with pytest.raises(Killed):
        run(tmp_path, flat, Dies(tmp_path))
    found = run(tmp_path, flat, Late(tmp_path, None))
    assert found.visits.tolist() == whole.visits.tolist()
    assert found.state.server.weights.equal(whole.state.server.weights)
    assert found.state.server.table.equal(whole.state.server.table)


def test_a_server_killed_before_the_request_is_gone_does_not_refuse_who_takes_part(tmp_path: Path) -> None:
    class Again(Late):
        def on_round(self, experiment: Experiment, report: object) -> None:
            super().on_round(experiment, report)
            if experiment.state.round == 3:  # as a kill between the checkpoint and this would leave it
                ask_to_join(self.folder / "run", NEW)

    found = run(tmp_path, keys("fedavg", rounds=6, cohort=5), Again(tmp_path))
    assert len(found.federation) == 6
    assert pending(tmp_path / "run") == []
    assert events(tmp_path, "site 5") == ["joined", "first model"]
    assert refusal(tmp_path / "run", "site 5") is None
    assert joined_names(tmp_path / "run") == tuple(f"site {number}" for number in range(6))


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (Newcomer(name="site 3", group=0), "client 'site 3' takes part already"),
        (Newcomer(name="site 5", links=("site 9",), group=0), "link to 'site 9': no such client; did you mean 'site"),
        (Newcomer(name="site 5", links=("site 1",)), "group of client 'site 5': all clients have some"),
        (Newcomer(name="site 5", features=(1.0,), group=0), "features of client 'site 5': no client has any"),
    ],
)
def test_who_may_not_join_is_told_why(request_: Newcomer, reason: str, tmp_path: Path) -> None:
    found = run(tmp_path, keys("fedavg", cohort=5), Late(tmp_path, request_))
    assert len(found.federation) == 5
    assert reason in (refusal(tmp_path / "run", request_.name) or "")
    assert events(tmp_path, next((tmp_path / "run" / "joining").glob("*.refused")).name[:16]) == ["not admitted"]


def test_one_that_does_not_answer_does_not_join(tmp_path: Path) -> None:
    link = transport(ALL, tmp_path)
    link.answers = {5: lambda order: Failure("not connected")}
    found = run(tmp_path, keys("fedavg", cohort=5), Late(tmp_path), link)
    assert len(found.federation) == 5
    assert "does not answer: not connected" in next((tmp_path / "run" / "joining").glob("*.refused")).read_text()


def test_a_request_needs_a_run(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="not the directory of a federation's run"):
        ask_to_join(tmp_path, NEW)
