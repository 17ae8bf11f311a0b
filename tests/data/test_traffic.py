"""METR-LA and PEMS-BAY: every format gives the same federation; windows, gaps and labels of partial files."""

from __future__ import annotations

import dataclasses
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from panacea.data import load
from panacea.data.sources import _traffic, traffic
from tests.data.roads import IDS, ROWS, load_small, speeds, write_csv, write_h5


def _npz(path: Path) -> None:
    np.savez(path, speed=speeds().astype(np.float32), sensor_ids=np.array(IDS))


WRITERS: dict[str, Callable[[Path], object]] = {
    "metr-la.h5": lambda path: write_h5(path, speeds()),
    "metr_la.h5": lambda path: write_h5(path, speeds(), np.array(IDS, np.int64), group="speed", unit="us"),
    "metr_la.npz": _npz,
    "METR-LA.csv": lambda path: write_csv(path, speeds()),
    "metr_la.csv": lambda path: write_csv(path, speeds(), timed=False),
    "metr-la.csv.gz": lambda path: write_csv(path, speeds()),
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_same_federation(roads: Path, name: str) -> None:
    WRITERS[name](roads / name)
    fed = load_small(roads, scale="mph")
    assert repr(fed) == "Federation(metr_la: 5 clients (0 novel), 485 samples, forecasting, 4 edges)"
    assert fed.names == IDS
    assert fed.task.scale == "mph"
    assert not fed.task.missing
    assert [int(fed.counts(split)[0]) for split in ("train", "val", "test")] == [68, 10, 19]
    values = torch.from_numpy(speeds().astype(np.float32))
    clock = torch.arange(ROWS) % 288 / 288
    for client in range(5):
        x, y = fed.client(client, "test")
        for window, first in ((0, 78), (18, 96)):
            assert torch.equal(x[window, :, 0], values[first : first + 12, client])
            assert torch.allclose(x[window, :, 1], clock[first : first + 12])
            assert torch.equal(y[window], values[first + 12 : first + 24, client])


def test_the_second_load_reads_the_copy(roads: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_h5(roads / "metr-la.h5", speeds())
    first = load_small(roads)
    for name in ("read_speeds", "read_roads"):
        monkeypatch.setattr(_traffic, name, lambda *_: pytest.fail("the file was read again"))
    second = load_small(roads)
    assert torch.equal(first.x, second.x)
    assert first.graph is not None
    assert second.graph is not None
    assert np.array_equal(first.graph.edges, second.graph.edges)
    assert first.notes == second.notes


def test_attributes_are_never_unpickled(roads: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, ...]:
            return os.mkdir, (str(roads / "pwned"),)

    path = write_h5(roads / "metr-la.h5", speeds())
    with h5py.File(path, "a") as file:
        file["df"].attrs["kind"] = np.void(pickle.dumps(Evil()))
        file["df/axis0"].attrs["name"] = np.void(pickle.dumps(Evil()))
    load_small(roads)
    assert not (roads / "pwned").exists()


class TestScales:
    def test_per_client_range_of_the_train_span(self, roads: Path) -> None:
        values = speeds()
        values[100:] += 100  # after the train span: 68 windows see 91 steps
        write_h5(roads / "metr-la.h5", values)
        fed = load_small(roads)
        assert fed.task.scale == "per-client min-max"
        train = values[:91].T
        low, high = train.min(axis=1), train.max(axis=1)
        expected = ((values.T - low[:, None]) / (high - low)[:, None]).astype(np.float32)
        assert np.array_equal(fed.client(3, "test")[1][-1].numpy(), expected[3, 108:])
        assert float(fed.client(3, "train")[1].max()) <= 1 < float(fed.client(3, "test")[1].max())

    def test_one_z_score(self, roads: Path) -> None:
        write_h5(roads / "metr-la.h5", speeds())
        fed = load_small(roads, scale="global_zscore")
        assert fed.task.scale == "global z-score"
        train = speeds()[:91]
        expected = (speeds()[108:, 2] - train.mean()) / train.std()
        assert fed.client(2, "test")[1][-1].numpy() == pytest.approx(expected, abs=1e-6)


class TestMissing:
    def test_zeros_and_empty_cells_are_masked_and_counted(self, roads: Path) -> None:
        values = speeds()
        values[0:2, 0] = values[30:33, 1] = 0
        text = write_csv(roads / "metr_la.csv", values).read_text().replace("0.0", "", 2)
        (roads / "metr_la.csv").write_text(text)
        fed = load_small(roads, scale="mph")
        assert fed.task.missing
        assert "5 of 600 values (0.83 %) are missing: not scored, not trained on" in fed.notes
        x, y = fed.client(1)
        assert y[18].isnan().tolist() == [True] * 3 + [False] * 9
        assert (x[30, :3, 0] == values[29, 1]).all()  # the last that was observed
        assert fed.client(0)[0][0, 0, 0].item() == pytest.approx(values[2:91, 0].mean(), rel=1e-6)

    def test_a_sensor_with_many_gaps_is_named(self, roads: Path) -> None:
        values = speeds()
        values[:40, 1], values[:46, 3] = 0, 0
        fed = load_small(write_h5(roads / "metr-la.h5", values).parent)
        said = "2 of 5 sensors miss over 40% of the train span; sensor '717447' misses 51%"
        assert said in fed.notes
        assert len(fed) == 5
        assert not any("miss over" in note for note in load_small(roads, clients=1).notes)

    def test_a_dead_sensor_is_left_out(self, roads: Path) -> None:
        values = speeds()
        values[:91, 1] = 0
        fed = load_small(write_h5(roads / "metr-la.h5", values).parent)
        assert "1 sensor(s) without an observed value in the train span left out: 767541" in fed.notes
        assert fed.names == (IDS[0], *IDS[2:])
        assert fed.partial == "PARTIAL 4 of 5 sensors"
        assert fed.graph is not None
        assert fed.graph.edges.tolist() == [[0, 3], [2, 3]]

    def test_a_sensor_that_fell_silent_is_left_out(self, roads: Path) -> None:
        """It could not be scored; the first test target is row 90."""
        values = speeds()
        values[90:, 4], values[91:, 0] = 0, 0
        fed = load_small(write_h5(roads / "metr-la.h5", values).parent)
        assert "1 sensor(s) without an observed value in the test span left out: 717446" in fed.notes
        assert fed.names == IDS[:4]
        assert not fed.client(0, "test")[1].isnan().all()


class TestTime:
    def test_a_file_that_begins_later_and_has_a_hole(self, roads: Path) -> None:
        lines = write_csv(roads / "metr_la.csv", speeds()).read_text().splitlines()
        (roads / "metr_la.csv").write_text("\n".join([lines[0], *lines[73:93], *lines[96:]]))
        fed = load_small(roads)
        assert fed.client(0)[0][0, 0, 1].item() == pytest.approx(0.25)  # 06:00
        assert fed.client(0)[0][10, 10, 1].item() == pytest.approx((72 + 23) / 288)
        said = "metr_la.csv: time jumps 1 time(s), first after row 19 (2012-03-01 07:35:00); windows reach across"
        assert said in fed.notes
        assert fed.partial == "PARTIAL 45 of 120 rows"

    def test_summer_time_of_2017(self) -> None:
        seconds = traffic.PEMS_BAY.seconds(52_116).astype("datetime64[s]")
        assert str(seconds[20_183]) == "2017-03-12T01:55:00"
        assert str(seconds[20_184]) == "2017-03-12T03:00:00"
        assert str(seconds[-1]) == "2017-06-30T23:55:00"
        assert str(traffic.METR_LA.seconds(34_272).astype("datetime64[s]")[-1]) == "2012-06-27T23:55:00"


class TestParts:
    def test_fewer_sensors_in_another_order(self, roads: Path) -> None:
        ids = (IDS[4], IDS[0], IDS[1])
        write_h5(roads / "metr-la.h5", speeds()[:, [4, 0, 1]], ids)
        fed = load_small(roads)
        assert fed.partial == "PARTIAL 3 of 5 sensors"
        assert fed.title == "metr_la (PARTIAL 3 of 5 sensors)"
        assert fed.names == ids
        assert fed.graph is not None
        assert fed.graph.edges.tolist() == [[0, 1], [1, 2]]
        assert "graph: 6 directed links between 5 sensors in adj_mx.pkl; 2 undirected between the 3 here" in fed.notes

    def test_labels(self) -> None:
        assert traffic.METR_LA.partial(207, 34_272) == ""
        assert traffic.METR_LA.partial(207, 2_016) == "PARTIAL 1 of 17 weeks"
        assert traffic.METR_LA.partial(29, 34_272) == "PARTIAL 29 of 207 sensors"
        assert traffic.PEMS_BAY.partial(325, 2_016) == "PARTIAL 2,016 of 52,116 rows"
        assert traffic.PEMS_BAY.partial(67, 100) == "PARTIAL 67 of 325 sensors, 100 of 52,116 rows"

    @pytest.mark.parametrize("own_week", [True, False])
    def test_the_week(self, roads: Path, monkeypatch: pytest.MonkeyPatch, own_week: bool) -> None:
        """The npz's own interpolated week of all sensors, else the first rows."""
        monkeypatch.setattr(traffic, "METR_LA", dataclasses.replace(traffic.METR_LA, rows=2 * 2_016))
        long = speeds(2 * 2_016)
        arrays = {"speed_full_subset": long[:, 3:], "full_subset_ids": np.array(IDS[3:]), "sensor_ids": np.array(IDS)}
        if own_week:
            arrays["speed_week_interpolated"] = speeds(2_016) + 1
        np.savez(roads / "metr_la.npz", **arrays)
        fed = load_small(roads, part="week", scale="mph")
        assert fed.client(4 if own_week else 1)[1][0, 0].item() == (speeds(2_016) + 1 if own_week else long)[12, 4]
        assert fed.partial == ("PARTIAL 1 of 2 weeks" if own_week else "PARTIAL 2 of 5 sensors, 1 of 2 weeks")
        assert any("were interpolated by its publisher" in note for note in fed.notes) == own_week
        assert load_small(roads).partial == "PARTIAL 2 of 5 sensors"

    @pytest.mark.parametrize(
        ("name", "rows", "counts"),
        [("metr_la", 34_272, (23_974, 3_425, 6_850)), ("pems_bay", 52_116, (36_465, 5_209, 10_419))],
    )
    def test_windows_of_files_of_full_length(
        self, tmp_path: Path, name: str, rows: int, counts: tuple[int, ...]
    ) -> None:
        (tmp_path / name).mkdir()
        write_h5(tmp_path / name / f"{name}.h5", speeds(rows, 2), IDS[:2])
        fed = load(name, root=tmp_path, novel=0)
        for split, expected in zip(("train", "val", "test"), counts, strict=True):
            assert fed.counts(split).tolist() == [expected] * 2
        assert fed.graph is None
        assert f"{name}: no graph, for there is no file with one" in fed.notes
        assert fed.x.untyped_storage().nbytes() == 2 * rows * 2 * 4  # windows are views
