"""Damaged or wrong traffic files: one line each that names the file and the place."""

from __future__ import annotations

import gzip
import pickle
import re
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from panacea.data import load
from panacea.errors import RequestError
from tests.data.roads import ADJACENCY, IDS, csv_text, load_small, speeds, write_adjacency, write_csv, write_h5


def _refused(folder: Path, *parts: str, **keys: object) -> None:
    with pytest.raises(RequestError) as caught:
        load_small(folder, **keys)
    said = str(caught.value)
    assert "\n" not in said
    for part in parts:
        assert part in said, said


def _negative() -> np.ndarray:
    values = speeds()
    values[17, 3] = -2.5
    return values


class TestSpeeds:
    def test_below_zero(self, roads: Path) -> None:
        said = "speed -2.5; a speed is at least 0, and 0 where it is missing"
        write_h5(roads / "metr-la.h5", _negative())
        _refused(roads, "metr-la.h5: sensor '717447', row 17 (from 0): ", said)
        (roads / "metr-la.h5").unlink()
        write_csv(roads / "metr-la.csv", _negative())
        _refused(roads, "metr-la.csv: sensor '717447', line 19: ", said)

    def test_infinite(self, roads: Path) -> None:
        values = speeds()
        values[3, 0] = 1e300  # not in 32 bits
        write_h5(roads / "metr-la.h5", values)
        _refused(roads, "sensor '773869', row 3 (from 0): speed inf")

    def test_a_sensor_that_the_graph_lacks(self, roads: Path) -> None:
        write_h5(roads / "metr-la.h5", speeds(), (*IDS[:3], "1", "2"))
        said = (
            "metr-la.h5: sensor '1' (column 3, from 0) is not in the graph of adj_mx.pkl, which has 5 sensors; 2 such"
        )
        _refused(roads, said)

    def test_a_sensor_twice(self, roads: Path) -> None:
        write_csv(roads / "metr-la.csv", speeds(), (*IDS[:4], IDS[0]))
        _refused(roads, "metr-la.csv: two columns are sensor '773869'")

    def test_nothing_observed(self, roads: Path) -> None:
        write_h5(roads / "metr-la.h5", np.zeros((120, 5)))
        _refused(roads, "metr-la.h5: no sensor has observed values both in the first 91 rows and from row 90")

    def test_too_short(self, roads: Path) -> None:
        write_h5(roads / "metr-la.h5", speeds(20))
        _refused(roads, "metr_la: 20 steps give 0 windows of 12 + 12 steps")

    def test_more_clients_than_sensors(self, roads: Path) -> None:
        write_h5(roads / "metr-la.h5", speeds())
        _refused(roads, "data.clients=6: metr_la has 5 clients here", clients=6)

    def test_a_constant_sensor(self, roads: Path) -> None:
        values = speeds()
        values[:, 2] = 60
        write_h5(roads / "metr-la.h5", values)
        _refused(roads, "metr_la: client '767542' has the same value in the whole train span (60)")


class TestCsv:
    @pytest.mark.parametrize(
        ("old", "new", "said"),
        [
            ("timestamp,773869", "timestamp,", "metr_la.csv line 1: column 2 has no sensor id"),
            ("\n2012-03-01 00:05:00,", "\n2012-03-01 00:05:00,broken,", "metr_la.csv line 3: 7 values, 6 are needed"),
            ("00:10:00", "10 past", "metr_la.csv line 4: '2012-03-01 10 past' is not a time such as"),
            ("2012-03-01 00:10:00", "2", "metr_la.csv line 4: '2' is not a time such as"),
            ("00:10:00", "00:05:00", "metr_la.csv: row 2 (from 0) is of 2012-03-01 00:05:00, not after the row before"),
        ],
    )
    def test_places_of_faults(self, roads: Path, old: str, new: str, said: str) -> None:
        (roads / "metr_la.csv").write_text(csv_text(speeds()).replace(old, new, 1))
        _refused(roads, said)

    def test_a_text_cell(self, roads: Path) -> None:
        lines = csv_text(speeds()).splitlines()
        cells = lines[9].split(",")
        lines[9] = ",".join([*cells[:3], "n/a", *cells[4:]])
        (roads / "metr_la.csv").write_text("\n".join(lines))
        _refused(roads, "metr_la.csv line 10, column '767542': 'n/a' is not a number")

    def test_hours(self, roads: Path) -> None:
        lines = csv_text(speeds(1_440)).splitlines()
        (roads / "metr_la.csv").write_text("\n".join([lines[0], *lines[1::12]]))
        _refused(roads, "metr_la.csv: rows are 60 minutes apart; means of 5 minutes are needed")

    def test_a_truncated_gz(self, roads: Path) -> None:
        path = write_csv(roads / "metr-la.csv.gz", speeds())
        path.write_bytes(path.read_bytes()[:-200])
        _refused(roads, "metr-la.csv.gz: a damaged gzip file, truncated or altered after ")

    @pytest.mark.parametrize("text", ["", "\n\n"])
    def test_empty(self, roads: Path, text: str) -> None:
        (roads / "metr_la.csv").write_text(text)
        _refused(roads, "metr_la.csv is empty")

    def test_only_a_header(self, roads: Path) -> None:
        (roads / "metr_la.csv").write_text("timestamp,773869\n")
        _refused(roads, "metr_la.csv: no speeds in it")


def _replace(name: str, value: object) -> Callable[[h5py.File], None]:
    def change(file: h5py.File) -> None:
        del file[name]
        if value is not None:
            file[name] = value

    return change


class TestH5:
    @pytest.mark.parametrize(
        ("change", "said"),
        [
            (_replace("df/block0_values", speeds().T), "'df/block0_values' is [5, 120], not [120 times, 5 sensors]"),
            (_replace("df/block0_values", speeds()[:, 0]), "'df/block0_values' is [120], not [120 times, 5 sensors]"),
            (_replace("df/block0_values", np.full((120, 5), b"x")), "is |S1 [120, 5], not numbers [rows, sensors]"),
            (_replace("df/block0_values", None), "needs one pandas frame in fixed format (group 'df'), found df"),
            (_replace("df/axis1", np.arange(120.0)), "'df/axis1' is float64, not times as whole numbers since 1970"),
            (_replace("df/axis0", np.arange(5.0)), "'df/axis0' is float64 [5], not one id per sensor"),
            (_replace("df/axis0", None), "group 'df' has no 'axis0'; it is no pandas frame in fixed format"),
            (_replace("df/block0_items", np.arange(5)), "'df/block0_items' are not the sensors of 'df/axis0'"),
            (
                lambda file: file.copy("df", "other"),
                "needs one pandas frame in fixed format (group 'df'), found df, other",
            ),
            (lambda file: file["df"].create_dataset("block1_values", data=[1]), "has columns of several types"),
        ],
    )
    def test_wrong_parts(self, roads: Path, change: Callable[[h5py.File], object], said: str) -> None:
        path = write_h5(roads / "metr-la.h5", speeds())
        with h5py.File(path, "a") as file:
            change(file)
        _refused(roads, "metr-la.h5: ", said)

    def test_truncated(self, roads: Path) -> None:
        path = write_h5(roads / "metr-la.h5", speeds())
        path.write_bytes(path.read_bytes()[:3000])
        _refused(roads, "metr-la.h5: not a readable HDF5 file (")

    def test_something_else(self, roads: Path) -> None:
        (roads / "metr-la.h5").write_text("<html>")
        _refused(roads, "metr-la.h5: not a readable HDF5 file (")

    def test_without_h5py(self, roads: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write_h5(roads / "metr-la.h5", speeds())
        monkeypatch.setitem(sys.modules, "h5py", None)
        _refused(roads, "metr-la.h5: reading HDF5 needs h5py; run `pip install h5py`")


class TestNpz:
    @pytest.mark.parametrize(
        ("arrays", "said"),
        [
            ({"speed": speeds()}, "needs the arrays speed_full_subset and full_subset_ids or speed and sensor_ids"),
            (
                {"speed": speeds()[0], "sensor_ids": np.array(IDS)},
                "'speed' is float64 [5], not numbers [rows, sensors]",
            ),
            ({"speed": speeds(), "sensor_ids": np.array(IDS[:4])}, "5 columns of speeds, but 4 sensors"),
            ({"speed": speeds(), "sensor_ids": np.ones(5)}, "'sensor_ids' is float64 [5], not one id per sensor"),
        ],
    )
    def test_wrong_arrays(self, roads: Path, arrays: dict[str, np.ndarray], said: str) -> None:
        np.savez(roads / "metr_la.npz", **arrays)
        _refused(roads, "metr_la.npz: ", said)

    def test_objects(self, roads: Path) -> None:
        np.savez(roads / "metr_la.npz", speed=np.array([[{}]]), sensor_ids=np.array(IDS))
        _refused(roads, "metr_la.npz: not an npz file of plain arrays")


class TestGraphFiles:
    @pytest.fixture(autouse=True)
    def _speeds(self, roads: Path) -> None:
        write_h5(roads / "metr-la.h5", speeds())

    def test_a_pickle_that_runs_code(self, roads: Path) -> None:
        class Evil:
            def __reduce__(self) -> tuple[object, ...]:
                return Path.mkdir, (roads / "pwned",)

        (roads / "adj_mx.pkl").write_bytes(pickle.dumps([list(IDS), {}, Evil()]))
        _refused(roads, "adj_mx.pkl: not a pickle of plain NumPy arrays, near byte ", "pathlib")
        assert not (roads / "pwned").exists()

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            (ADJACENCY[:4], "the adjacency matrix is float32 [4, 5], not numbers [5, 5]"),
            (-ADJACENCY, "the adjacency matrix has -0.5 at [0, 1]; weights are at least 0"),
            ([1, 2], "the adjacency matrix is list, not numbers [5, 5]"),
        ],
    )
    def test_wrong_matrices(self, roads: Path, content: object, said: str) -> None:
        write_adjacency(roads / "adj_mx.pkl", content)
        _refused(roads, f"adj_mx.pkl: {said}")

    def test_another_pickle(self, roads: Path) -> None:
        (roads / "adj_mx.pkl").write_bytes(pickle.dumps({"a": 1}))
        _refused(roads, "adj_mx.pkl: needs a list of sensor ids, their positions and the adjacency matrix")

    def test_a_truncated_pickle(self, roads: Path) -> None:
        data = (roads / "adj_mx.pkl").read_bytes()
        (roads / "adj_mx.pkl").unlink()
        (roads / "adj_mx.pkl.gz").write_bytes(gzip.compress(data)[:-30])
        _refused(roads, "adj_mx.pkl.gz: a damaged gzip file")

    @pytest.mark.parametrize("line", ["773869,767541", "773869,767541,far", "773869,767541,-1", "773869,767541,inf"])
    def test_distances(self, roads: Path, line: str) -> None:
        (roads / "adj_mx.pkl").unlink()
        (roads / "distances_la_2012.csv").write_text(f"from,to,cost\n773869,767542,5\n{line}\n")
        _refused(roads, f"distances_la_2012.csv line 3: needs from,to,metres; it is '{line}'")

    @pytest.mark.parametrize("line", ["0,773869,north,-118", "0,773869", "0,773869,134.0,-118.0"])
    def test_locations(self, roads: Path, line: str) -> None:
        (roads / "graph_sensor_locations.csv").write_text(f"index,sensor_id,latitude,longitude\n{line}\n")
        _refused(roads, "graph_sensor_locations.csv line 2: ")


@pytest.mark.parametrize(("name", "file"), [("metr_la", "metr-la.h5"), ("pems_bay", "pems-bay.h5")])
@pytest.mark.parametrize("made", [False, True])
def test_missing_files_say_what_to_get(tmp_path: Path, name: str, file: str, made: bool) -> None:
    if made:
        (tmp_path / name).mkdir()
    said = f"data set '{name}': no files in {tmp_path / name}; place {file} (published by the DCRNN project"
    with pytest.raises(RequestError, match=re.escape(said)):
        load(name, root=tmp_path)
