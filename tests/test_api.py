from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import panacea as pn
from panacea.errors import RequestError


class OwnNet(nn.Module):
    """A user's module as it stands, with BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 9), nn.BatchNorm1d(9), nn.ReLU(), nn.Linear(9, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


def _federation() -> pn.Federation:
    generator = np.random.default_rng(0)
    x = [generator.normal(size=(n, 3)) for n in (12, 20, 7, 15)]
    y = [(part.sum(axis=1) > 0).astype(int) for part in x]
    return pn.Federation.from_arrays(x, y, edges=[(0, 1), (1, 2)], names=list("abcd"))


def test_own_arrays_and_an_own_module(tmp_path: Path) -> None:
    run = pn.train(_federation(), "fedavg", model=OwnNet(), rounds=5, local_steps=5, lr=0.1, out=tmp_path)
    assert run.directory is not None
    assert (run.directory / "summary.json").exists()
    table = run.clients
    assert list(table["name"]) == list("abcd")
    assert list(table["degree"]) == [1, 2, 1, 0]
    model = run.model(2)
    assert isinstance(model, OwnNet)
    fed = _federation()
    x, y = fed.client(2, "test")
    with torch.no_grad():
        accuracy = 100 * float((model(x).argmax(dim=1) == y).float().mean())
    assert accuracy == pytest.approx(float(table["final_metric"][2]))  # the module handed out is the one scored
    assert len(run.metrics) == 1
    assert run.metrics[-1]["round"] == 5


def test_a_run_that_is_there_already_is_loaded_not_trained(tmp_path: Path) -> None:
    options = {"model": OwnNet(), "rounds": 4, "local_steps": 2, "eval_every": 2, "out": tmp_path}
    first, again = (pn.train(_federation(), "separate", **options) for _ in range(2))
    assert again.metrics == first.metrics
    assert len(again.metrics) == 2
    assert again.clients.equals(first.clients)
    assert torch.equal(again.model(1).body[0].weight, first.model(1).body[0].weight)
    from panacea.cli import run_command_line

    assert run_command_line(["resume", str(first.directory)]) == 2  # the data is not in the directory


def test_personal_models_differ_between_clients() -> None:
    run = pn.train(_federation(), "separate", rounds=5, local_steps=5, cohort=4, lr=0.1)
    weights = [run.model(i).state_dict()["fc.weight"] for i in range(4)]
    assert not torch.equal(weights[0], weights[1])
    with pytest.raises(RequestError, match=r"client 9 does not exist; clients are 0\.\.3"):
        run.model(9)


def test_nothing_is_written_without_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pn.train("fl60", rounds=1, local_steps=1)
    assert list(tmp_path.iterdir()) == []


def test_the_global_generators_are_left_alone() -> None:
    torch.manual_seed(1)
    np.random.seed(1)
    states = torch.get_rng_state(), np.random.get_state()[1].copy()
    pn.train("fl60", rounds=1, local_steps=1, model="mlp")
    assert torch.equal(states[0], torch.get_rng_state())
    assert (states[1] == np.random.get_state()[1]).all()


def test_seeds_and_data_seeds() -> None:
    def final(**keys: int) -> float:
        options = {("data.seed" if key == "data_seed" else key): value for key, value in keys.items()}
        return float(pn.train("fl60", rounds=2, local_steps=3, **options).metrics[-1]["loss"])

    assert final(seed=1) == final(seed=1)
    assert final(seed=1) != final(seed=2)
    assert final(seed=1, data_seed=5) != final(seed=1, data_seed=6)
    assert final(seed=1, data_seed=1) == final(seed=1)


def test_compare_gives_a_table() -> None:
    table = pn.compare(_federation(), ["separate", "fedavg"], seeds=range(2), rounds=2, local_steps=2).table()
    assert list(table["method"]) == ["separate", "fedavg"]
    assert list(table["seeds"]) == [2, 2]


def test_held_out_clients_are_never_read_in_training() -> None:
    """Changing a novel client's data changes its own score and nothing else."""
    import dataclasses

    fed = pn.load("fl60", seed=0, clients=10)
    other = fed.x.clone()
    for i in fed.novel_ids:
        start, _, _, end = fed.bounds[i]
        other[start:end] += 100.0
    runs = [pn.train(f, "fedavg", rounds=3, local_steps=3, seed=0) for f in (fed, dataclasses.replace(fed, x=other))]
    a, b = (run.clients for run in runs)
    trained = a["novel"] == 0
    assert (a["loss"][trained] == b["loss"][trained]).all()
    assert (a["loss"][~trained] != b["loss"][~trained]).all()
    assert a["visits"][~trained].sum() == 0


def test_test_data_does_not_touch_training_or_the_choice_of_the_round() -> None:
    import dataclasses

    fed = pn.load("fl60", seed=0, clients=10)
    other = fed.x.clone()
    for start, end in fed.bounds[:, 2:]:
        other[start:end] = 0.0
    runs = [
        pn.train(f, "fedavg", rounds=6, local_steps=3, eval_every=1, seed=0)
        for f in (fed, dataclasses.replace(fed, x=other))
    ]
    assert [m["val_loss"] for m in runs[0].metrics] == [m["val_loss"] for m in runs[1].metrics]
    assert runs[0].summary["selected_round"] == runs[1].summary["selected_round"]
    assert runs[0].summary["final_mean"] != runs[1].summary["final_mean"]
