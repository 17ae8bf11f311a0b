"""The graphs of METR-LA and PEMS-BAY, places of sensors, and what the real files give."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from panacea.data import find_dataset, load
from panacea.data.pickles import read_pickle
from panacea.data.sources._traffic_graph import kernel_graph, read_roads
from tests.data.roads import ADJACENCY, EDGES, IDS, load_small, speeds, write_h5, write_places


class TestGraph:
    def test_with_directions_and_weights(self, roads: Path) -> None:
        write_h5(roads / "metr-la.h5", speeds())
        graph = load_small(roads, graph_weights="kernel").graph
        assert graph is not None
        assert graph.directed
        assert np.array_equal(graph.dense().T, ADJACENCY - np.eye(5))
        plain = load_small(roads).graph
        assert plain is not None
        assert plain.edges.tolist() == EDGES
        assert not plain.weighted

    def test_the_kernel_of_listed_distances(self, roads: Path) -> None:
        (roads / "adj_mx.pkl").unlink()
        rows = [("773869", "767541", 100), ("767541", "773869", 400), ("767541", "767542", 250), ("1", "773869", 9)]
        text = "from,to,cost\n" + "".join(f"{a},{b},{d}\n" for a, b, d in rows)
        (roads / "distances_la_2012.csv").write_text(text)
        write_h5(roads / "metr-la.h5", speeds())
        fed = load_small(roads, graph_weights="kernel")
        sigma = np.std([100, 400, 250])
        assert fed.graph is not None
        assert fed.graph.edges.tolist() == [[0, 1]]  # exp(-250^2 / sigma^2) = 0.016 is below 0.1
        assert fed.graph.weights == pytest.approx(np.exp(-((100 / sigma) ** 2)), rel=1e-5)
        assert any("(the published graph has 6 directed links)" in note for note in fed.notes)

    def test_sigma_is_that_of_the_listed_sensors(self, roads: Path) -> None:
        """With two of five sensors in the file, distances of the others still count."""
        (roads / "adj_mx.pkl").unlink()
        (roads / "graph_sensor_ids.txt").write_text(",".join(IDS))
        (roads / "distances_la_2012.csv").write_text("773869,767541,100\n717447,717446,900\n")
        write_h5(roads / "metr-la.h5", speeds()[:, :2], IDS[:2])
        graph = load_small(roads, graph_weights="kernel").graph
        assert graph is not None
        assert graph.weights.tolist() == pytest.approx([np.exp(-((100 / 400) ** 2))], rel=1e-5)

    def test_another_file_of_speeds_means_another_kernel(self, roads: Path) -> None:
        """Where nothing lists the sensors, the spread is that of the distances between those in the file."""
        (roads / "adj_mx.pkl").unlink()
        (roads / "distances_la_2012.csv").write_text("773869,767541,100\n767541,767542,300\n717447,717446,1000\n")
        for sensors, sigma in ((3, np.std([100, 300])), (5, np.std([100, 300, 1000]))):
            write_h5(roads / "metr-la.h5", speeds()[:, :sensors], IDS[:sensors])
            graph = load_small(roads, graph_weights="kernel").graph
            assert graph is not None
            assert graph.weights[0] == pytest.approx(np.exp(-((100 / sigma) ** 2)), rel=1e-5)

    def test_no_file_with_a_graph(self, roads: Path) -> None:
        (roads / "adj_mx.pkl").unlink()
        np.savez(roads / "metr_la.npz", speed=speeds(), sensor_ids=np.array(IDS))
        for _ in range(2):  # the second time from the prepared copy
            fed = load_small(roads)
            assert fed.graph is None
            assert "metr_la: no graph, for there is no file with one" in fed.notes

    def test_the_npz_brings_one(self, roads: Path) -> None:
        (roads / "adj_mx.pkl").unlink()
        np.savez(roads / "metr_la.npz", speed=speeds(), sensor_ids=np.array(IDS), adj_mx=ADJACENCY)
        graph = load_small(roads).graph
        assert graph is not None
        assert graph.edges.tolist() == EDGES

    @pytest.mark.parametrize("header", [True, False])
    def test_places(self, roads: Path, header: bool) -> None:
        write_h5(roads / "metr-la.h5", speeds())
        write_places(roads / "graph_sensor_locations.csv", header=header)
        features = load_small(roads, clients=3).features
        assert features is not None
        assert features.tolist() == [[34, -118], [34.125, -117.75], [34.25, -117.5]]
        write_places(roads / "graph_sensor_locations.csv", IDS[1:], header=header)
        fed = load_small(roads)
        assert fed.features is None
        assert "no place is known of 1 of 5 sensors (first '773869'): no features" in fed.notes


def _real(folder: Path, name: str) -> Path:
    if not (folder / name).is_file():
        pytest.skip(f"no {name} in {folder}; set PANACEA_DATA to a folder that has it")
    return folder


class TestRealFiles:
    def test_metr_la(self, real_data: Path) -> None:
        root = _real(real_data, "metr-la/metr_la.npz")
        fed = load("metr_la", root=root)
        assert fed.partial == "PARTIAL 29 of 207 sensors"
        assert [int(fed.counts(split)[0]) for split in ("train", "val", "test")] == [23_974, 3_425, 6_850]
        assert "77,013 of 993,888 values (7.7 %) are missing: not scored, not trained on" in fed.notes
        assert fed.graph is not None
        assert len(fed.graph.edges) == 120
        assert fed.features is not None
        week = load("metr_la", root=root, part="week", graph_weights="kernel")
        assert week.partial == "PARTIAL 1 of 17 weeks"
        assert week.graph is not None
        assert len(week.graph.edges) == 1_515
        assert len(week.graph.undirected().edges) == 1_313
        assert not week.task.missing

    def test_pems_bay(self, real_data: Path) -> None:
        fed = load("pems_bay", root=_real(real_data, "pems-bay/pems_bay_subset.npz"))
        assert fed.partial == "PARTIAL 67 of 325 sensors"
        assert [int(fed.counts(split)[0]) for split in ("train", "val", "test")] == [36_465, 5_209, 10_419]
        assert any("17 sensors of US 101 have no values in the train span: left out" in note for note in fed.notes)
        assert any("graph: 2,369 directed links between 325 sensors" in note for note in fed.notes)

    def test_distances_give_the_published_graph(self, real_data: Path) -> None:
        folder = _real(real_data, "pems-bay/distances_bay_2017.csv") / "pems-bay"
        places = folder / "graph_sensor_locations_bay.csv"
        made = read_roads(None, folder / "distances_bay_2017.csv", places, None, ())
        ids, _, matrix = read_pickle(folder / "adj_mx_bay.pkl.gz")
        assert made is not None
        assert list(made.ids) == ids
        assert len(made.graph.edges) == 2_369
        assert len(made.graph.undirected().edges) == 2_079
        assert np.abs(made.graph.dense().T + np.eye(325) - matrix).max() < 1e-6


def test_defaults_and_cards() -> None:
    for name in ("metr_la", "pems_bay", "pemsd7_m"):
        entry = find_dataset(name)
        assert (entry.defaults.rounds, entry.defaults.cohort, entry.defaults.novel) == (800, 5, 0.2)
        assert all(getattr(entry.card, field) for field in ("licence", "citation", "used_in", "get", "splits"))


def test_the_kernel_needs_a_width() -> None:
    with pytest.raises(ValueError, match="all are the same"):
        kernel_graph(np.full((2, 2), 3, np.float32))
