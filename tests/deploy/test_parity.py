"""A federation over real bytes gives the numbers of the simulator, with every method."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from panacea.core.records import named_leaves
from panacea.deploy.roster import Roster
from panacea.deploy.serve import serve
from panacea.experiment.config import build_config
from panacea.experiment.experiment import Experiment
from panacea.experiment.rundir import RunDirectory
from panacea.experiment.runner import run_experiment
from panacea.methods import method_names
from tests.deploy.build import QUICK, federate, keys, ragged, transport

SIMULATED: dict[str, dict[str, Any]] = {"fedbn": {"model": "small_cnn", "model.norm": "batch"}}


def same_as_simulated(flat: dict[str, Any], folder: Path, atol: float, *, novel: int = 1, images: bool = False) -> None:
    """Compare server state and every client's numbers."""
    federation = ragged(novel, images)
    found, summary = federate(federation, flat, folder)
    wanted = Experiment(build_config({**flat, "engine": "sequential"}), federation)
    expected = run_experiment(wanted)
    for (name, a), (_, b) in zip(named_leaves(found.state.server), named_leaves(wanted.state.server), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=atol, msg=lambda text, name=name: f"{name}: {text}")
    torch.testing.assert_close(found.state.statistics.common, wanted.state.statistics.common, rtol=0, atol=atol)
    a, b = found.history.last, wanted.history.last
    assert a is not None
    assert b is not None
    for split in ("test", "val", "novel"):
        for kind in ("metric", "loss"):
            one, other = getattr(getattr(a, split), kind), getattr(getattr(b, split), kind)
            np.testing.assert_allclose(one, other, rtol=0, atol=100 * atol, err_msg=f"{split} {kind}")
    assert set(found.alternatives) == set(wanted.alternatives)
    for name, metric in wanted.alternatives.items():
        ids = federation.train_ids
        np.testing.assert_allclose(found.alternatives[name][ids], metric[ids], rtol=0, atol=100 * atol)
    assert summary["bytes_up"] == expected["bytes_up"]
    assert summary["bytes_down"] == expected["bytes_down"]
    assert summary["refused"] == 0


@pytest.mark.parametrize("name", method_names())
def test_every_method_gives_the_simulators_numbers(name: str, tmp_path: Path) -> None:
    images = name == "fedbn"
    flat = keys(name, dtype="float64", **SIMULATED.get(name, {}))
    same_as_simulated(flat, tmp_path, 1e-9, novel=0, images=images)


@pytest.mark.parametrize(
    "flat",
    [
        keys("fedavg"),
        keys("fedavg", local_epochs=2, local_steps=None, momentum=0.9, eval_every=1),
        keys("fedavg_ft", cohort=6, eval_every=1),
        keys("panacea", dtype="float64", eval_every=1),
        keys("fedper", weight_decay=0.01, clip=1.0),
        keys("apfl", **{"method.mixing": "logits", "dtype": "float64"}),
        keys("panacea_mlp", **{"method.scope": "last", "method.rest": "frozen"}),
    ],
    ids=lambda flat: flat["method"],
)
def test_other_settings_too(flat: dict[str, Any], tmp_path: Path) -> None:
    same_as_simulated(flat, tmp_path, 1e-9 if flat.get("dtype") == "float64" else 1e-5, novel=flat["cohort"] < 6)


@pytest.mark.parametrize(("method", "buffers"), [("fedavg", "shared"), ("fedavg", "local"), ("pfedhn_pc", "shared")])
def test_batch_normalisation_travels_or_stays(method: str, buffers: str, tmp_path: Path) -> None:
    flat = keys(method, buffers=buffers, model="small_cnn", **{"model.norm": "batch"})
    same_as_simulated(flat, tmp_path, 1e-5, novel=0 if buffers == "local" else 1, images=True)


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("ditto", {"method.novel": "fit"}),
        ("apfl", {"method.novel": "fit"}),
        ("apfl", {"method.novel": "fit", "method.mixing": "logits"}),
        ("pfedme", {}),
        ("fedper", {}),
        ("pfedhn_pc", {}),
        ("sfl", {}),
        ("separate", {"method.newcomer_steps": 5}),
    ],
)
def test_newcomers_are_scored_at_their_site(method: str, more: dict[str, Any], tmp_path: Path) -> None:
    same_as_simulated(keys(method, dtype="float64", **more), tmp_path, 1e-9)


def test_the_table_of_a_data_set_with_its_own_defaults(tmp_path: Path) -> None:
    """The same request, the same `clients.csv`, file by file; the graph is made before anybody is asked."""
    flat = {"data": "fl60", "data.clients": 6, "method": "panacea", "rounds": 3, "eval_every": 1, "seed": 4}
    simulated = Experiment(build_config({**flat, "graph": "knn"}))
    directory = RunDirectory(tmp_path / "simulated")
    run_experiment(simulated, directory)
    federation = simulated.federation
    link = transport(federation, tmp_path)
    serve(build_config(flat), Roster.of(federation), link, tmp_path / "run", patience=QUICK)
    wanted, found = (
        [line.split(",") for line in path.read_text().splitlines()]
        for path in (directory.clients, tmp_path / "run" / "clients.csv")
    )
    assert found[0] == wanted[0]
    for mine, theirs in zip(found[1:], wanted[1:], strict=True):
        for a, b in zip(mine, theirs, strict=True):
            assert a == b or float(a) == pytest.approx(float(b), abs=1e-4)
