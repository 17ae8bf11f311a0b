"""A client by itself: its folder, its state, what it refuses."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest
import torch

from panacea.data.load import load
from panacea.deploy.inprocess import InProcess, write_sites
from panacea.deploy.orders import Failure, Order, Reply
from panacea.deploy.roster import Newcomer, Roster, read_roster, write_roster
from panacea.deploy.serve import serve
from panacea.deploy.settings import RunSettings, TaskSettings
from panacea.deploy.site import Site, answer, open_site, write_site
from panacea.deploy.site_data import load_samples
from panacea.deploy.site_state import Trail, locked
from panacea.errors import RequestError
from panacea.experiment.config import build_config
from panacea.methods.registry import ENTRY_POINTS
from tests.deploy.build import Keep, federate, keys, ragged, transport


def recorded(folder: Path, method: str = "ditto", rounds: int = 3) -> tuple[InProcess, list[Order]]:
    """All orders that client 1 got in a run."""
    link, orders = transport(ragged(0), folder), list[Order]()

    def give(order: Order) -> object:
        orders.append(order)
        return answer(order, link.sites[1])

    link.answers = {1: give}
    federate(ragged(0), keys(method, cohort=6, rounds=rounds, eval_every=100), folder, over=link)
    return link, orders


def test_a_client_loads_what_the_simulator_has(tmp_path: Path) -> None:
    for federation in (ragged(), ragged(images=True), load("fl60", clients=6)):
        places = write_sites(federation, tmp_path / federation.name / str(federation.x.dtype))
        for client, name in enumerate(federation.names):
            own = load_samples(places[name] / "data", name, federation.task)
            assert own.x.dtype == federation.x.dtype
            for split in ("train", "val", "test"):
                for mine, theirs in zip(own.client(0, split), federation.client(client, split), strict=True):
                    assert torch.equal(mine, theirs)


def test_a_folder_as_users_have_it(tmp_path: Path) -> None:
    lines = ["a,b,target", *(f"{i}.5,{-i},{'yes' if i % 2 else 'no'}" for i in range(20))]
    (tmp_path / "data.csv").write_text("\n".join(lines) + "\n")
    task = dataclasses.replace(ragged().task, inputs=(2,), classes=2, class_names=("no", "yes"))
    own = load_samples(tmp_path, "x", task)
    assert own.total == 20
    assert set(own.y.tolist()) == {0, 1}
    assert torch.equal(own.x, load_samples(tmp_path, "x", task).x)  # the same splits every time
    (tmp_path / "task.yaml").write_text("kind: regression\n")
    with pytest.raises(RequestError, match="kind is regression, but the run's task is classification"):
        load_samples(tmp_path, "x", task)


def test_what_a_client_refuses(tmp_path: Path) -> None:
    link, orders = recorded(tmp_path)
    site, order = link.sites[1], orders[1]
    settings = json.loads(order.settings)

    def said(changed: Order, at: Site = site) -> str:
        given = answer(changed, at)
        assert isinstance(given, Failure)
        assert "\n" not in given.reason
        return given.reason

    def other(**more: object) -> Order:
        return dataclasses.replace(order, settings=json.dumps({**settings, **more}))

    assert said(dataclasses.replace(order, name="site 2")) == "an order for client 'site 2' came to 'site 1'"
    assert "not JSON" in said(dataclasses.replace(order, settings="{"))
    assert "unknown key 'settings.gift'" in said(other(gift=1))
    assert "settings.run" in said(other(run="../../etc"))
    assert "model=os:system is not among the models that client.yaml allows" in said(other(model="os:system"))
    assert "method=os:system is not among the methods" in said(other(method="os:system"))
    assert "unknown method 'fedavgg'; did you mean" in said(other(method="fedavgg"))
    secret = {"model": "resnet18", "model_keys": {"pretrained": "/etc/shadow"}}
    assert "model.pretrained=/etc/shadow is not among the files that client.yaml allows" in said(other(**secret))
    allowed = dataclasses.replace(site, files=("/etc/shadow",))
    assert "not among the files" not in said(other(**secret), allowed)
    assert "label" in said(other(task={**settings["task"], "classes": 2}))
    assert "shape (6,), the task says [9]" in said(other(task={**settings["task"], "inputs": [9]})).replace(
        "(9,)", "[9]"
    )
    assert "no download.params" in said(started(dataclasses.replace(order, arrays={}), 2))
    assert "nothing this client does" in said(dataclasses.replace(order, asks=("format disk",)))  # type: ignore[arg-type]
    assert "there is no such" in said(dataclasses.replace(order, client=9))
    assert "has none of data.npz" in said(order, dataclasses.replace(site, data=tmp_path))


def test_a_method_of_another_package_is_not_imported_on_a_servers_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link, orders = recorded(tmp_path)
    entry = EntryPoint("theirs", "no_such_package:Theirs", ENTRY_POINTS)
    monkeypatch.setattr("panacea.methods.registry.entry_points", lambda **_: [entry])
    settings = json.dumps({**json.loads(orders[1].settings), "method": "theirs", "method_keys": {}})
    order, site = dataclasses.replace(orders[1], settings=settings), link.sites[1]
    assert answer(order, site) == Failure("method=theirs is not among the methods that client.yaml allows")
    given = answer(order, dataclasses.replace(site, methods=("theirs",)))
    assert isinstance(given, Failure)
    assert "method=theirs: its package cannot be loaded" in given.reason


def test_the_same_order_again_is_the_same_answer_and_an_older_one_is_refused(tmp_path: Path) -> None:
    link, orders = recorded(tmp_path, rounds=7)
    visits = [order for order in orders if "train" in order.asks]
    site = link.sites[1]
    assert answer(visits[-1], site) == answer(visits[-1], site)
    first = [answer(started(order, 2), site) for order in visits[3:]]
    assert [answer(started(order, 3), site) for order in visits[3:]] == first  # from the states before each
    refused = answer(started(visits[1], 4), site)
    assert refused == Failure("an order for round 2, but this client has gone on to round 7")


def started(order: Order, start: int) -> Order:
    """The order of a server that was started so often."""
    return dataclasses.replace(order, settings=json.dumps({**json.loads(order.settings), "start": start}))


def test_a_late_order_does_not_take_a_client_back(tmp_path: Path) -> None:
    link, orders = recorded(tmp_path)
    visits, site = [order for order in orders if "train" in order.asks], link.sites[1]
    assert answer(visits[1], site) == Failure("an order for round 2, but this client has gone on to round 3")
    assert Trail(site.state, json.loads(visits[1].settings)["run"]).rounds() == [1, 2, 3]
    assert isinstance(answer(started(visits[1], 2), site), Reply)  # the server went back to its checkpoint
    late = answer(visits[2], site)
    assert late == Failure("an order of the server's start 1, but it went on anew, 2 times")
    assert Trail(site.state, json.loads(visits[1].settings)["run"]).rounds() == [1, 2]


def test_a_method_that_keeps_nothing_goes_back_as_far_as_a_server_likes(tmp_path: Path) -> None:
    link, orders = recorded(tmp_path, "fedavg", rounds=7)
    visits = [order for order in orders if "train" in order.asks]
    assert isinstance(answer(started(visits[0], 2), link.sites[1]), Reply)


def test_a_busy_client_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link, orders = recorded(tmp_path)
    monkeypatch.setattr("panacea.deploy.site_state._BUSY", 0.2)
    with locked(link.sites[1].state):
        assert answer(orders[-1], link.sites[1]) == Failure("busy with another order")
    assert isinstance(answer(orders[-1], link.sites[1]), Reply)


def test_damaged_states_are_put_aside(tmp_path: Path) -> None:
    link, orders = recorded(tmp_path)
    site, last = link.sites[1], orders[-2]
    assert last.round == 3
    assert last.asks == ("train",)
    good = answer(last, site)
    folder = next(path for path in site.state.iterdir() if path.is_dir())
    for path in folder.glob("round-00000002.state"):
        path.write_bytes(path.read_bytes()[:-3] + b"xyz")
    given = answer(last, site)
    assert isinstance(given, Reply)
    assert given.text == "the state of round 2 is damaged; going on from the one before"
    assert given.arrays != {}
    assert given != good
    for path in folder.glob("*.state"):
        path.write_bytes(b"")
    assert isinstance(answer(last, site), Reply)  # as a client that was never there


def test_a_trail_remembers_few_states_and_few_runs(tmp_path: Path) -> None:
    for run in range(6):
        trail = Trail(tmp_path, f"{run:016x}")
        for round in range(1, 8):
            trail.save(round, {"kept.params": torch.full((2,), float(round))})
    assert trail.rounds() == [4, 5, 6, 7]
    state = trail.before(6)
    assert state is not None
    assert state["kept.params"].tolist() == [5.0, 5.0]
    assert len(list(tmp_path.iterdir())) == 4
    with pytest.raises(RequestError, match="round 3, but this client has gone on to round 7"):
        trail.before(3)
    trail.save(5, {})
    assert trail.rounds() == [4, 5]


def test_files_come_back_as_they_were(tmp_path: Path) -> None:
    federation = dataclasses.replace(ragged(), features=np.ones((6, 2), np.float32))
    write_roster(Roster.of(federation), tmp_path)
    found = read_roster(tmp_path)
    assert found.digest == Roster.of(federation).digest
    assert found.names == federation.names
    assert found.novel.tolist() == federation.novel.tolist()
    assert [found.samples_of(client) for client in range(6)] == np.diff(federation.bounds, axis=1).tolist()
    newer = found.joined(Newcomer(name="new", links=("site 1",), features=(1.0, 2.0), group=0))
    write_roster(newer, tmp_path)
    assert read_roster(tmp_path).samples_of(6) is None
    assert read_roster(tmp_path).samples_of(5) == found.samples_of(5)
    site = Site("ä 1", tmp_path / "data", tmp_path / "state", ("a:b",), 2, ("c:d",), ("e",))
    write_site(tmp_path, site)
    assert open_site(tmp_path) == site
    (tmp_path / "client.yaml").write_text("name: x\nmodel: [1]\n")
    with pytest.raises(RequestError, match=r"unknown key 'client.yaml: model'; did you mean 'client.yaml: models'"):
        open_site(tmp_path)
    (tmp_path / "roster.yaml").write_text("- 1\n")
    with pytest.raises(RequestError, match="keys and values are expected"):
        read_roster(tmp_path)


def test_settings_are_the_same_text_every_time() -> None:
    made = RunSettings(
        run="0" * 16, seed=1, clients=3, rounds=2, task=TaskSettings.of(ragged().task), method="fedavg", model="mlp",
        lr=0.1, local_steps=3, batch_size=4,
    )  # fmt: skip
    assert json.loads(made.text())["task"]["inputs"] == [6]
    assert RunSettings(**json.loads(made.text())).text() == made.text()


_HEAVY = ("pandas", "matplotlib", "scipy", "networkx", "torch._dynamo", "flwr", "ray", "sklearn", "rich", "typer")


def test_a_client_imports_little(tmp_path: Path) -> None:
    link, orders = recorded(tmp_path, "panacea", rounds=1)
    folder = link.sites[1].state.parent
    task = next(order for order in orders if "train" in order.asks)
    (tmp_path / "settings").write_text(task.settings)
    code = f"""
import sys
from pathlib import Path
from panacea.deploy.orders import Order, Packed, Reply
from panacea.deploy.site import answer, open_site
assert "torch" not in sys.modules
arrays = {{"download.params": Packed({task.arrays["download.params"].dtype!r}, {task.arrays["download.params"].shape!r},
    Path({str(tmp_path / "data")!r}).read_bytes())}}
order = Order(1, "site 1", 1, ("train",), Path({str(tmp_path / "settings")!r}).read_text(), arrays)
reply = answer(order, open_site(Path({str(folder)!r})))
assert isinstance(reply, Reply), reply
print([name for name in {_HEAVY!r} if name in sys.modules])
"""
    (tmp_path / "data").write_bytes(task.arrays["download.params"].data)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_what_a_server_cannot_do_for_newcomers_is_said(tmp_path: Path) -> None:
    class Notes(Keep):
        def on_note(self, note: str) -> None:
            found.append(note)

    notes, found = Notes(), list[str]()
    serve(build_config(keys("fedamp")), Roster.of(ragged()), transport(ragged(), tmp_path), tmp_path / "run", [notes])
    assert found == ["method 'fedamp' fits newcomers with what only the server has; they are scored as admitted"]
    assert notes.experiment.history.last is not None
    assert np.isfinite(notes.experiment.history.last.novel.loss).all()
