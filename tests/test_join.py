"""A model for a client that was never there, and runs that come back from their directories."""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from torch import Tensor, nn

import panacea as pn
from panacea.errors import RequestError

LINKED = "tests.linked:NeighbourMean"
SMALL: dict[str, Any] = {"rounds": 4, "local_steps": 2, "eval_every": 2}


def _flat(module: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in module.parameters()])


@pytest.fixture(scope="module")
def linked() -> pn.Run:
    return pn.train("fl60", LINKED, **SMALL)


def test_a_newcomer_follows_its_links(linked: pn.Run) -> None:
    seen = [int(i) for i in linked.clients.query("visits > 0").client[:3]]
    own = [_flat(linked.model(i)) for i in seen]
    assert not torch.equal(own[0], own[1])
    assert torch.equal(_flat(linked.join(neighbors=[seen[0]])), own[0])
    both = linked.join(neighbors=seen[:2])
    assert torch.allclose(_flat(both), (own[0] + own[1]) / 2, atol=1e-7)
    assert not both.training
    weighted = linked.join(neighbors=[str(i) for i in seen[1::-1]], weights=[1.0, 3.0])  # the weights go with the names
    assert torch.allclose(_flat(weighted), (3 * own[0] + own[1]) / 4, atol=1e-7)


def test_one_neighbour_need_not_be_in_a_list(linked: pn.Run) -> None:
    """A name is a name: '17' is client 17, not clients 1 and 7."""
    for one in ("17", 17, np.int64(17)):
        assert torch.equal(_flat(linked.join(one)), _flat(linked.join([17])))


def test_the_run_is_left_as_it_was(linked: pn.Run) -> None:
    before = {i: _flat(linked.model(i)) for i in (0, 5)}
    linked.join(neighbors=[0, 5])
    assert all(torch.equal(_flat(linked.model(i)), value) for i, value in before.items())


def test_joining_takes_less_than_a_second(linked: pn.Run) -> None:
    started = time.perf_counter()
    linked.join(neighbors=[3, 17])
    assert time.perf_counter() - started < 1


def test_the_same_as_a_client_that_was_held_out() -> None:
    """A held-out client and a newcomer with the same links get the same model."""
    fed = pn.load("fl60", seed=0)
    run = pn.train(fed, LINKED, **SMALL)
    assert fed.graph is not None
    novel = int(fed.novel_ids[0])
    links = fed.graph.neighbours(novel)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some of them are held out themselves
        joined = run.join(neighbors=[int(i) for i in links])
    assert torch.allclose(_flat(joined), _flat(run.model(novel)), atol=1e-7)


def test_a_global_model_is_everyones(recwarn: pytest.WarningsRecorder) -> None:
    run = pn.train("fl60", "fedavg", **SMALL)
    with pytest.warns(UserWarning, match="gives every newcomer the same model"):
        joined = run.join(neighbors=[3, 17])
    assert torch.equal(_flat(joined), _flat(run.model(0)))
    recwarn.clear()
    assert torch.equal(_flat(run.join()), _flat(joined))
    assert not recwarn.list


@pytest.mark.parametrize("method", ["separate", "fedavg_ft"])
def test_a_method_that_would_train_refuses(method: str) -> None:
    run = pn.train("fl60", method, **SMALL)
    with pytest.raises(RequestError, match=rf"method '{method}' trains a newcomer's model .* untrained=True"):
        run.join(neighbors=[3])
    assert torch.isfinite(_flat(run.join(neighbors=[3], untrained=True))).all()


def test_batch_norm_statistics_come_along() -> None:
    fed = pn.load("fl60", clients=8, novel=0.0)
    net = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
    run = pn.train(fed, "fedavg", model=net, **SMALL)
    norm, initial = run.join()[1], net[1]
    assert isinstance(norm, nn.BatchNorm1d)
    assert isinstance(initial, nn.BatchNorm1d)
    assert norm.running_mean is not None
    assert initial.running_mean is not None
    assert not torch.equal(norm.running_mean, initial.running_mean)
    model = run.model(0)
    x = torch.randn(5, 2)
    assert torch.equal(model(x), run.join()(x))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"neighbors": []}, "name at least one neighbour"),
        ({"neighbors": [60]}, r"neighbour 60 does not exist; clients are 0\.\.59"),
        ({"neighbors": [-1]}, "neighbour -1 does not exist"),
        ({"neighbors": ["abc"]}, "neighbour 'abc' does not exist"),
        ({"neighbors": [1.5]}, r"neighbour 1\.5 is neither a number nor a name"),
        ({"neighbors": [True]}, "neighbour True is neither a number nor a name"),
        ({"neighbors": [3, "3"]}, "client 3 is named twice"),
        ({"neighbors": [3], "weights": [0.0]}, "weight 0"),
        ({"neighbors": [3], "weights": [1.0, 2.0]}, "2 weights"),
        ({"neighbors": [3], "features": [1.0]}, "features: 1 given, the clients of this run have 2 each"),
        ({"neighbors": [3], "features": [1.0, np.inf]}, "features: all must be finite"),
    ],
)
def test_what_does_not_fit_is_named(linked: pn.Run, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        linked.join(**arguments)


def test_links_need_a_graph() -> None:
    x = [np.random.default_rng(i).normal(size=(9, 2)) for i in range(3)]
    run = pn.train(pn.Federation.from_arrays(x, [part[:, :1] for part in x]), LINKED, **SMALL)
    with pytest.raises(RequestError, match="but this run has no graph"):
        run.join(neighbors=[1])
    with pytest.raises(RequestError, match="the clients of this run have none"):
        pn.train(pn.Federation.from_arrays(x, [part[:, :1] for part in x]), "fedavg", **SMALL).join(features=[1.0])


def test_held_out_neighbours_are_noted(linked: pn.Run) -> None:
    novel = int(linked.clients.query("novel == 1").client.iloc[0])
    with pytest.warns(UserWarning, match="held out of training"):
        linked.join(neighbors=[novel, 3 if novel != 3 else 4])


def test_features_reach_the_method() -> None:
    run = pn.train("fl60", "tests.linked:NeedsFeatures", novel=0.0, **SMALL)
    assert _flat(run.join(neighbors=[3], features=[1.0, 2.0])).unique().tolist() == [1.5]
    assert torch.isnan(_flat(run.join(neighbors=[3]))).all()  # unknown is NaN, which a method can see


# --- runs from their directories ---------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["fedavg_ft", LINKED])
def test_an_opened_run_is_the_run(tmp_path: Path, method: str) -> None:
    run = pn.train("fl60", method, out=tmp_path, **SMALL)
    assert run.directory is not None
    before = {path: path.stat().st_mtime_ns for path in run.directory.rglob("*")}
    again = pn.open_run(run.directory)
    assert again.summary == run.summary
    assert again.metrics == run.metrics
    assert again.directory == run.directory
    assert again.clients.equals(run.clients)
    for client in (0, 17, int(run.clients.query("novel == 1").client.iloc[0])):
        assert torch.equal(_flat(again.model(client)), _flat(run.model(client)))
    assert {path: path.stat().st_mtime_ns for path in run.directory.rglob("*")} == before


def test_an_unfinished_run_opens_with_a_note(tmp_path: Path) -> None:
    run = pn.train("fl60", LINKED, out=tmp_path, checkpoint_every=2, **SMALL)
    assert run.directory is not None
    (run.directory / "summary.json").unlink()
    for left in (run.directory / "checkpoint" / "round-00000004").iterdir():
        left.unlink()
    (run.directory / "checkpoint" / "round-00000004").rmdir()
    with pytest.warns(UserWarning, match="not finished: its state is that of round 2 of 4"):
        again = pn.open_run(run.directory)
    assert [line["round"] for line in again.metrics] == [2]
    assert again.summary["mean"] is None
    assert "unknown" in repr(again)
    with pytest.warns(UserWarning, match="not finished"):
        path = pn.open_run(run.directory).export(3, tmp_path / "m.safetensors")
    assert "round 2 of 4" in path.with_name("m.safetensors.md").read_text()


def test_a_run_made_on_a_gpu_opens_without_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    run = pn.train("fl60", "fedavg", out=tmp_path, **SMALL)
    assert run.directory is not None
    config = run.directory / "config.yaml"
    config.write_text(config.read_text().replace("device: cpu", "device: cuda"))
    from panacea.experiment.config import identity
    from panacea.experiment.rundir import RunDirectory

    directory = RunDirectory(run.directory)
    checkpoint, _ = directory.checkpoints.load()
    assert checkpoint is not None
    checkpoint.info["identity"] = identity(directory.read_config())
    directory.checkpoints.save(checkpoint)
    assert torch.equal(_flat(pn.open_run(run.directory).model(1)), _flat(run.model(1)))


def test_what_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="no such run directory"):
        pn.open_run(tmp_path / "nothing")
    with pytest.raises(RequestError, match=r"is not a run directory \(no config.yaml\)"):
        pn.open_run(tmp_path)
    fed = pn.load("fl60", clients=6)
    own = pn.train(fed, "fedavg", out=tmp_path / "data", **SMALL)
    assert own.directory is not None
    with pytest.raises(RequestError, match=r"made from Python with data of its own; call pn\.train with the same data"):
        pn.open_run(own.directory)
    net = pn.train("fl60", "fedavg", model=nn.Linear(2, 2), out=tmp_path / "net", **SMALL)
    assert net.directory is not None
    with pytest.raises(RequestError, match="made from Python with a network of its own"):
        pn.open_run(net.directory)
    (net.directory / "federation.json").write_text("{}")
    with pytest.raises(RequestError, match=r"the run of a federation.*panacea federate submit"):
        pn.open_run(net.directory)


def test_checkpoints_that_do_not_fit_are_named(tmp_path: Path) -> None:
    run = pn.train("fl60", "fedavg", out=tmp_path, **SMALL)
    assert run.directory is not None
    config = run.directory / "config.yaml"
    text = config.read_text()
    content = yaml.safe_load(text)
    config.write_text(yaml.safe_dump({**content, "lr": 0.5}))
    with pytest.raises(RequestError, match="checkpoint of round 4 belongs to another configuration"):
        pn.open_run(run.directory)
    config.write_text(yaml.safe_dump({**content, "method": {"name": "separate"}}))
    with pytest.raises(RequestError, match="belongs to another configuration"):
        pn.open_run(run.directory)
    config.write_text(text)
    state = run.directory / "checkpoint" / "round-00000004" / "state.json"
    state.write_text(json.dumps({}))
    with pytest.raises(RequestError, match="is damaged"):
        pn.open_run(run.directory)
    for left in (run.directory / "checkpoint").rglob("*.*"):
        left.unlink()
    (run.directory / "checkpoint" / "round-00000004").rmdir()
    with pytest.raises(RequestError, match=r"has no checkpoint; `panacea resume"):
        pn.open_run(run.directory)
