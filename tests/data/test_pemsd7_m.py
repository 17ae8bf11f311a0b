"""PeMSD7(M): the publishers' two tables, the npz, STGCN's graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from panacea.data import Federation, load
from panacea.data.sources import pemsd7_m
from panacea.errors import RequestError
from tests.data.roads import speeds

ROWS = 2 * 288
METRES = np.array([[0, 1000, 2600, 9000], [1000, 0, 2700, 9000], [2600, 2700, 0, 9000], [9000, 9000, 9000, 0]])
STATIONS = ("716939", "759700", "716925", "715930")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(pemsd7_m, "STATIONS", 4)
    monkeypatch.setattr(pemsd7_m, "LINKS", 4)
    (tmp_path / "pemsd7_m").mkdir()
    return tmp_path / "pemsd7_m"


def _tables(folder: Path, values: np.ndarray | None = None, metres: np.ndarray = METRES) -> None:
    given = speeds(ROWS, 4) if values is None else values
    np.savetxt(folder / "PeMSD7_V_228.csv", given, delimiter=",", fmt="%.3f")
    np.savetxt(folder / "PeMSD7_W_228.csv", metres, delimiter=",", fmt="%.1f")


def _stations(folder: Path) -> None:
    rows = [f"{i},{name},5,S,7,{34 + i},-118.5\n" for i, name in enumerate(STATIONS)]
    (folder / "PeMSD7_M_Station_Info.csv").write_text(",ID,Fwy,Dir,District,Latitude,Longitude\n" + "".join(rows))


def _load(folder: Path, **keys: object) -> Federation:
    return load("pemsd7_m", root=folder.parent, novel=0, **keys)


def test_the_tables(folder: Path) -> None:
    _tables(folder)
    fed = _load(folder, scale="mph", graph_weights="kernel")
    assert fed.names == ("0", "1", "2", "3")
    assert fed.features is None
    assert fed.partial == "PARTIAL 2 of 44 days"
    assert fed.graph is not None
    # exp(-(2.6 / 10)^2 / 0.1) = 0.509 is an edge, exp(-(2.7 / 10)^2 / 0.1) = 0.482 is none
    assert fed.graph.undirected().edges.tolist() == [[0, 1], [0, 2]]
    assert fed.graph.dense()[0, 1:3] == pytest.approx(np.exp([-0.1, -0.676]), rel=1e-5)
    x, y = fed.client(2, "train")
    assert torch.equal(x[280, :, 0], torch.from_numpy(speeds(ROWS, 4)[280:292, 2].astype(np.float32)))
    assert x[280, [0, 7, 8], 1].tolist() == pytest.approx([280 / 288, 287 / 288, 0])
    assert torch.equal(y[280], torch.from_numpy(speeds(ROWS, 4)[292:304, 2].astype(np.float32)))
    assert "graph: 4 directed links between 4 sensors in PeMSD7_W_228.csv; 4 directed between the 4 here" in fed.notes


def test_the_npz_and_the_tables_agree(folder: Path) -> None:
    _tables(folder)
    _stations(folder)
    tables = _load(folder)
    assert tables.names == STATIONS
    assert tables.features is not None
    for path in folder.iterdir():
        path.unlink()
    np.savez(
        folder / "pemsd7m_week.npz",
        speed=speeds(ROWS, 4).astype(np.float32),
        distance_m=METRES.astype(np.float32),
        station_id=np.array(STATIONS, np.int64),
        latlon=np.array([[34 + i, -118.5] for i in range(4)], np.float32),
    )
    arrays = _load(folder)
    assert arrays.names == tables.names
    assert torch.equal(arrays.x, tables.x)
    assert arrays.graph is not None
    assert tables.graph is not None
    assert np.array_equal(arrays.graph.edges, tables.graph.edges)
    assert np.array_equal(arrays.features, tables.features)
    assert _load(folder, clients=2).features is not None


def test_labels() -> None:
    assert pemsd7_m._partial(228, 12_672) == ""
    assert pemsd7_m._partial(228, 2_016) == "PARTIAL 7 of 44 days"
    assert pemsd7_m._partial(100, 2_017) == "PARTIAL 100 of 228 stations, 2,017 of 12,672 rows"


class TestErrors:
    def _refused(self, folder: Path, said: str) -> None:
        with pytest.raises(RequestError) as caught:
            _load(folder)
        assert said in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_weights_instead_of_distances(self, folder: Path) -> None:
        _tables(folder, metres=(METRES == 1000).astype(float))
        self._refused(folder, "PeMSD7_W_228.csv: nothing above 1; distances in metres are needed")

    def test_distances_of_others(self, folder: Path) -> None:
        _tables(folder, metres=METRES[:3])
        self._refused(folder, "PeMSD7_W_228.csv: distances are [3, 4], not [4, 4]")
        _tables(folder, metres=METRES[:, :3])
        self._refused(folder, "PeMSD7_W_228.csv line 1: 3 values, 4 are needed")

    def test_a_negative_distance(self, folder: Path) -> None:
        _tables(folder, metres=METRES - 5000 * (METRES == 2700))
        self._refused(folder, "PeMSD7_W_228.csv: row 1, column 2 (from 0): -2300 is no distance in metres")

    def test_a_negative_speed(self, folder: Path) -> None:
        values = speeds(ROWS, 4)
        values[5, 1] = -1
        _tables(folder, values)
        self._refused(folder, "PeMSD7_V_228.csv: sensor '1', line 6: speed -1")

    def test_a_header(self, folder: Path) -> None:
        _tables(folder)
        path = folder / "PeMSD7_V_228.csv"
        path.write_text("a,b,c,d\n" + path.read_text())
        self._refused(folder, "PeMSD7_V_228.csv line 1, column '0': 'a' is not a number")

    def test_stations_of_others(self, folder: Path) -> None:
        _tables(folder, speeds(ROWS, 3), METRES[:3, :3])
        _stations(folder)
        self._refused(folder, "PeMSD7_M_Station_Info.csv: 4 stations, but PeMSD7_V_228.csv has 3 columns")

    @pytest.mark.parametrize(
        ("arrays", "said"),
        [
            ({"speed": speeds(ROWS, 4)}, "no array 'distance_m'"),
            ({"speed": np.ones(4), "distance_m": METRES}, "'speed' is float64 [4], not numbers [rows, stations]"),
            (
                {"speed": speeds(ROWS, 4), "distance_m": METRES, "latlon": np.ones((3, 2))},
                "'station_id' and 'latlon' must have a row for each of 4 stations",
            ),
        ],
    )
    def test_arrays(self, folder: Path, arrays: dict[str, np.ndarray], said: str) -> None:
        np.savez(folder / "pemsd7_m.npz", **arrays)
        self._refused(folder, said)

    def test_one_table_only(self, folder: Path) -> None:
        np.savetxt(folder / "PeMSD7_V_228.csv", speeds(ROWS, 4), delimiter=",")
        self._refused(folder, "pemsd7_m; place PeMSD7_V_228.csv and PeMSD7_W_228.csv")


def test_the_real_week(real_data: Path) -> None:
    if not (real_data / "pemsd7-m" / "pemsd7m_week.npz").is_file():
        pytest.skip(f"no pemsd7m_week.npz in {real_data}/pemsd7-m")
    fed = load("pemsd7_m", root=real_data)
    assert repr(fed) == (
        "Federation(pemsd7_m: 228 clients (46 novel), 454404 samples, forecasting, 832 edges) PARTIAL 7 of 44 days"
    )
    assert not fed.task.missing
    assert fed.names[:2] == STATIONS[:2]
