"""A part of a data set says so in everything a user sees of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

import panacea as pn
from panacea.cli import run_command_line
from panacea.cli.progress import ProgressBar
from panacea.data import registry
from panacea.data.federation import Federation
from panacea.data.registry import Card, TrainingDefaults
from panacea.data.series import Series, SeriesKeys, forecasting
from panacea.experiment.config import build_config
from panacea.experiment.experiment import Experiment
from panacea.experiment.table import data_title
from panacea.graphs import build

PARTIAL = "PARTIAL 12 of 207 sensors"
SHORT = ["data=sensors", "data.length=4", "data.horizon=3", "model=mlp", "rounds=1", "local_steps=1"]
KEYS = [*SHORT, "method=panacea"]


def _load(keys: SeriesKeys) -> Federation:
    """Twelve daily waves with gaps, at random places linked to the nearest."""
    stream = np.random.default_rng(0)
    values = np.sin(np.arange(90) / 4 + stream.random((12, 1))) + 0.1 * stream.normal(size=(12, 90))
    values[stream.random(values.shape) < 0.08] = np.nan
    places = stream.random((12, 2))
    series = Series(
        values.astype(np.float32), tuple(f"s{i}" for i in range(12)), "mph", graph=build.knn(places, 3),
        features=places.astype(np.float32), partial=PARTIAL,
    )  # fmt: skip
    return forecasting("sensors", series, keys, "client_minmax")


@pytest.fixture(scope="module", autouse=True)
def _registered() -> Iterator[None]:
    registry.dataset_names()  # the built-in ones first
    defaults = TrainingDefaults(lr=0.05, cohort=3, novel=0.2)
    entry = replace(
        registry.find_dataset("fl60"), name="sensors", keys=SeriesKeys, defaults=defaults, load=_load,
        card=Card(features=("latitude", "longitude")),
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry._ENTRIES, "sensors", entry)
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run for all tests that look at its files."""
    out = tmp_path_factory.mktemp("runs")
    assert run_command_line(["run", *KEYS, f"out={out}", "--quiet"]) == 0
    (found,) = out.iterdir()
    return found


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _out(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert run_command_line(arguments) == 0
    return capsys.readouterr().out


def test_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads((run / "summary.json").read_text())["partial"] == PARTIAL
    again = ["run", *KEYS, f"out={run.parent}"]  # it was finished before
    assert json.loads(_out([*again, "--json"], capsys))["partial"] == PARTIAL
    assert _out(again, capsys).startswith(f"sensors ({PARTIAL}), panacea, seed 0")
    page = (run / "report.html").read_text()
    assert f"<h1>sensors ({PARTIAL}), panacea, seed 0</h1>" in page
    drawn = sorted(path.stem for path in (run / "figures").glob("*.svg"))
    assert {"convergence", "clients", "labels", "graph", "embeddings", "models", "server"} <= set(drawn)
    for stem in drawn:
        assert PARTIAL in (run / "figures" / f"{stem}.svg").read_text(), stem


def test_a_whole_data_set_has_an_empty_label(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    keys = ["data=fl60", "data.clients=6", "method=fedavg", "rounds=1", "local_steps=1"]
    assert json.loads(_out(["run", *keys, "--json"], capsys))["partial"] == ""
    (folder,) = (tmp_path / "runs").iterdir()
    assert "PARTIAL" not in (folder / "report.html").read_text()


def test_progress_title() -> None:
    experiment = Experiment(build_config({"data": "sensors", "method": "fedavg", "rounds": 1}))
    bar = ProgressBar(quiet=True)
    bar.on_start(experiment, None)
    assert bar.bar.tasks[0].description == f"sensors ({PARTIAL}) fedavg seed 0"


def test_compare(capsys: pytest.CaptureFixture[str]) -> None:
    keys = ["compare", *SHORT, "methods=separate,fedavg", "seeds=0", "workers=1"]  # only this process knows `sensors`
    assert " ".join(_out(keys, capsys).split()).startswith(f"sensors ({PARTIAL}): mse")
    found = json.loads(_out([*keys, "--json"], capsys))
    assert found["partial"] == PARTIAL
    assert {one["partial"] for one in found["runs"]} == {PARTIAL}
    for name in ("table.md", "table.tex", "tests.md", "methods.svg"):
        assert PARTIAL in (Path(found["folder"]) / name).read_text(), name


def test_a_summary_from_before_the_label() -> None:
    assert data_title({"data": "fl60"}) == "fl60"


def test_model_cards(run: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    _out(["export", str(run), "--client", "s3", "--out", "m.safetensors"], capsys)
    _out(["join", str(run), "--neighbors", "s1,s2", "--out", "n.safetensors"], capsys)
    for name in ("m", "n"):
        card = (tmp_path / f"{name}.safetensors.md").read_text()
        assert f"data set `sensors` **{PARTIAL}** (forecasting)" in card
        with safe_open(tmp_path / f"{name}.safetensors", "pt") as file:
            assert file.metadata()["partial"] == PARTIAL


def test_graphs_show(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = _out(["graphs", "show", "sensors", "--out", "g.svg"], capsys)
    assert f"sensors ({PARTIAL}), graph=given" in out
    assert f"sensors ({PARTIAL}): 12 clients" in (tmp_path / "g.svg").read_text()
    assert json.loads(_out(["graphs", "show", "sensors", "--json"], capsys))["partial"] == PARTIAL


def test_card_floors_and_picture(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = " ".join(_out(["datasets", "sensors"], capsys).split())
    for words in (
        f"sensors ({PARTIAL}) as found here", f"part of the data set {PARTIAL}", "clients 12 (2 of them novel)",
        "features 2 per client: latitude, longitude", "target 12, scale 'per-client min-max'", "homophily",
    ):  # fmt: skip
        assert words in out
    numbers = json.loads(_out(["datasets", "sensors", "--json"], capsys))["federation"]
    gaps = np.isnan(_gaps())
    assert numbers["partial"] == PARTIAL
    assert (numbers["missing_targets"], numbers["target_values"]) == (int(gaps[:, 12:].sum()), 12 * 78)
    assert numbers["graph"]["homophily"] is not None
    found = json.loads(_out(["datasets", "floors", "sensors", "--json"], capsys))
    assert found["partial"] == PARTIAL
    assert found["scale"] == "per-client min-max"
    assert "persistence" in {row["name"] for row in found["floors"]}
    assert f"sensors ({PARTIAL}): MSE" in _out(["datasets", "floors", "sensors"], capsys)
    _out(["datasets", "sensors", "--picture", "p.svg"], capsys)
    assert f"sensors ({PARTIAL}): " in (tmp_path / "p.svg").read_text()


def _gaps() -> Any:
    stream = np.random.default_rng(0)
    stream.random((12, 1)), stream.normal(size=(12, 90))
    return np.where(stream.random((12, 90)) < 0.08, np.nan, 0)


def test_from_python() -> None:
    assert pn.train("sensors", rounds=1, local_steps=1, model="mlp").summary["partial"] == PARTIAL
