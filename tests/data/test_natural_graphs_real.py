"""Molene's files when they are wrong, and the real files of the natural-graph sets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from panacea.data import find_dataset, load
from panacea.data.sources._natural import node_pairs
from panacea.experiment.config import build_config
from panacea.experiment.experiment import Experiment
from tests.data.test_natural_graphs import NAMES, error, molene

VALUES, STATIONS, GRAPH = (
    "filtered_data_Molene.csv",
    "weather_stations_filtered_Molene.csv",
    "weighted_adjacency.npy",
)


@pytest.mark.parametrize(
    ("file", "old", "new", "words"),
    [
        (VALUES, "02:00:00,286.5", "02:00:00,cold", " line 4, station 111: 'cold' is not a number"),
        (
            VALUES,
            "02:00:00,286.5",
            "02:00:00,13.4",
            " line 4, station 111: 13.4 is not a temperature in kelvin (150 to",
        ),
        (VALUES, "02:00:00,286.5", "02:00:00,nan", " line 4, station 111: nan is not a temperature in kelvin"),
        (VALUES, "02:00:00,286.5", "02:00:00,1,2", " line 4: 5 cells, not 4"),
        (VALUES, "2014-01-01 02:00:00", "2014-01-01 03:00:00", " line 4: 2014-01-01 03:00:00 is not one hour after"),
        (VALUES, "2014-01-01 02:00:00", "01/01/2014", " line 4: '01/01/2014' is not a date like 2014-01-01 00:00:00"),
        (VALUES, "date,111,222", "date,111,111", " line 1: needs 'date' and different station numbers"),
        (VALUES, "date,111,222", "date,111,777", ": no station 777, which is a column of filtered_data_Molene.csv"),
        (STATIONS, "Numéro", "Number", " line 1: no column 'Numéro'; it needs Numéro, Nom, Latitude, Longitude"),
        (STATIONS, "47°00'00N", "47.0", " line 3: '47.0' is not an angle like 48°51'18N"),
        (STATIONS, "ILE,", "ILE,,", " line 3: 7 cells, not 6"),
    ],
)
def test_a_wrong_line_of_molene_is_named(tmp_path: Path, file: str, old: str, new: str, words: str) -> None:
    path = molene(tmp_path) / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    said = error("molene", tmp_path)
    where = path.with_name(STATIONS) if "no station" in words else path
    assert said.startswith(f"{where}{words}")


def test_a_wrong_graph_of_molene_is_named(tmp_path: Path) -> None:
    path = molene(tmp_path) / GRAPH
    for matrix, words in (
        (np.ones((3, 2)), ": an adjacency matrix is [clients, clients], not [3, 2]"),
        (np.ones((4, 4)), ": the graph has 4 nodes but there are 3 clients"),
        (np.full((3, 3), -1.0), ": entry [0, 0] is -1.0; weights are positive numbers"),
        (np.array([{}], object), ": not a npy file of one plain array (Object arrays cannot be loaded"),
    ):
        np.save(path, matrix)
        assert error("molene", tmp_path).startswith(f"{path}{words}")
    path.write_bytes(b"\x93NUMPY\x01\x00")
    assert error("molene", tmp_path).startswith(f"{path}: not a npy file of one plain array")
    with path.open("wb") as file:
        np.savez(file, a=np.ones(3))
    assert error("molene", tmp_path).startswith(f"{path}: an npz file, not a npy file of one array")
    path.unlink()
    assert f"no {GRAPH} in {path.parent}" in error("molene", tmp_path)


def test_edges_fast_and_slow_agree() -> None:
    path = Path("file")
    assert node_pairs([[0, 1], [1, 0]], 2, path, "edges").tolist() == [[0, 1], [1, 0]]
    assert node_pairs([], 2, path, "edges").shape == (0, 2)


EXPECTED = {
    "chickenpox": (20, 517, (362, 52, 103), 41, (4, 1)),
    "england_covid": (129, 53, (37, 5, 11), 1185, (8, 1)),
    "montevideo_bus": (675, 740, (518, 74, 148), 690, (4, 2)),
    "molene": (32, 730, (511, 73, 146), 193, (10, 2)),
}


@pytest.mark.parametrize("name", NAMES)
def test_the_real_files(real_data: Path, name: str) -> None:
    if not (real_data / "natural-graphs").is_dir():
        pytest.skip(f"no natural-graphs in {real_data}; set PANACEA_DATA to a folder that has it")
    fed = load(name, root=real_data)
    clients, windows, splits, edges, inputs = EXPECTED[name]
    assert len(fed) == clients
    assert fed.total == clients * windows
    assert tuple(int(fed.counts(split)[5]) for split in ("train", "val", "test")) == splits
    assert fed.graph is not None
    assert len(fed.graph.edges) == edges
    assert fed.task.inputs == inputs
    assert not fed.task.missing
    assert fed.x.untyped_storage().nbytes() < 5e6  # windows are views of the series
    if name == "montevideo_bus":
        assert fed.notes == ("3 client(s) with one value throughout the train span: divided by 1",)
    if name == "molene":
        raw = load(name, root=real_data, scale="raw")
        assert (float(raw.x[..., 0].min()), float(raw.y.max())) == pytest.approx((270.45, 289.55))


@pytest.mark.parametrize("name", NAMES)
def test_registered_with_all_a_user_needs(name: str) -> None:
    entry = find_dataset(name)
    card = entry.card
    assert all((card.licence, card.citation, card.used_in, card.get, card.splits))
    assert (entry.defaults.novel, entry.defaults.cohort) == (0.2, 5)


@pytest.mark.parametrize(("model", "size"), [(None, 693), ("gru", 62_501)])
def test_the_network(tmp_path: Path, model: str | None, size: int) -> None:
    molene(tmp_path)
    keys = {"data": "molene", "data.root": str(tmp_path), "method": "fedavg", "rounds": 1}
    experiment = Experiment(build_config(keys | ({"model": model} if model else {})))
    assert experiment.config.model.name == (model or "mlp")
    assert experiment.target.layout.size == size
