"""TPT-48: NOAA's file, the npz, and the numbers that fix the scale. The parser is tested on a generated file."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from panacea.data import Federation, find_dataset, load
from panacea.data.scaling import min_max_per_client
from panacea.data.sources._states import BORDERS, NOAA_ORDER, STATES, places
from panacea.data.sources._tpt48_files import read_record
from panacea.data.task import Task
from panacea.errors import RequestError
from panacea.experiment.config import build_config
from panacea.experiment.experiment import Experiment

NOAA = "climdiv-tmpcst-v1.0.0-20200106"
REAL_NOAA = f"{NOAA}.gz"


def _line(state: int, year: int, months: np.ndarray, element: str = "02") -> str:
    return f"{state:03d}0{element}{year}" + "".join(f"{value:7.2f}" for value in months) + "   \n"


def _temperatures() -> np.ndarray:
    """Something like 48 climates: ``[48, 125, 12]`` by code, two decimals, as NOAA has them."""
    generator = np.random.default_rng(0)
    season = -20 * np.cos(2 * np.pi * np.arange(12) / 12)
    return np.round(50 + generator.normal(size=(48, 1, 1)) * 8 + season + generator.normal(size=(48, 125, 12)) * 2, 2)


@pytest.fixture
def lines() -> list[str]:
    """NOAA's layout: states in NOAA's order, then a region, and a year after the last with a month missing."""
    values = _temperatures()
    rows = [
        _line(number, 1895 + year, values[STATES.index(code), year])
        for number, code in enumerate(NOAA_ORDER, 1)
        for year in range(125)
    ]
    return [*rows, _line(1, 2020, np.full(12, -99.90)), _line(101, 1895, np.full(12, 40.0))]


@pytest.fixture
def root(tmp_path: Path, lines: list[str]) -> Path:
    (tmp_path / "tpt48").mkdir()
    (tmp_path / "tpt48" / NOAA).write_text("".join(lines))
    return tmp_path


def _real(folder: Path) -> Path:
    if not (folder / "tpt48" / "tpt48.npz").is_file():
        pytest.skip(f"no tpt48.npz in {folder}/tpt48; set PANACEA_DATA to a folder that has it")
    return folder


def _same(a: Federation, b: Federation) -> bool:
    assert a.graph is not None
    assert b.graph is not None
    arrays = [(a.bounds, b.bounds), (a.features, b.features), (a.graph.edges, b.graph.edges), (a.novel, b.novel)]
    tensors = torch.equal(a.x, b.x) and torch.equal(a.y, b.y)
    return tensors and a.names == b.names and a.task == b.task and all(np.array_equal(*pair) for pair in arrays)


def test_the_raw_file(root: Path) -> None:
    record = read_record(root)
    assert np.array_equal(record.fahrenheit, _temperatures().astype(np.float32))
    fed = load("tpt48", root=root)
    assert repr(fed) == "Federation(tpt48: 48 clients (10 novel), 6000 samples, regression, 105 edges)"
    assert fed.names == STATES
    assert fed.names[:3] == ("AL", "AR", "AZ")
    assert fed.task == Task("regression", inputs=(6,), outputs=(6,), scale="per-client min-max")
    assert (fed.counts("train") == 90).all()
    assert (fed.counts("val") == 10).all()
    assert (fed.counts("test") == 25).all()
    assert fed.features is not None
    assert fed.features.shape == (48, 2)


def test_samples_are_years_scaled_by_the_train_split(root: Path) -> None:
    """Undoing the scale gives each year once, its first half as input and its second as target."""
    fed, months = load("tpt48", root=root, seed=3), _temperatures()
    for client in (0, 17, 47):
        train = torch.cat([part.flatten() for part in fed.client(client)])
        assert float(train.min()) == 0
        assert float(train.max()) == 1
        parts = [torch.cat(fed.client(client, split), dim=1).numpy() for split in ("train", "val", "test")]
        rows = np.concatenate(parts).astype(np.float64)
        slope, offset = np.polyfit(np.sort(rows.ravel()), np.sort(months[client].ravel()), 1)
        assert sorted(np.round(rows * slope + offset, 2).tolist()) == sorted(months[client].tolist())


def test_the_scale_never_sees_val_or_test() -> None:
    x = [np.arange(10.0)[:, None], 5 * np.arange(10.0)[:, None]]
    fed = Federation.from_clients(
        [(part, part + 1) for part in x], task=Task("regression", (1,), (1,)), chronological=True
    )
    scaled = min_max_per_client(fed)
    assert scaled.counts("train").tolist() == [7, 7]
    assert scaled.client(0)[0].flatten().tolist() == pytest.approx([v / 7 for v in range(7)])
    assert scaled.client(0)[1].flatten().tolist() == pytest.approx([(v + 1) / 7 for v in range(7)])
    assert float(scaled.client(0, "test")[1].max()) == pytest.approx(10 / 7)
    assert float(scaled.client(1)[1].max()) == 1
    flat = Federation.from_clients([(np.ones((5, 1)), np.ones((5, 1)))], task=Task("regression", (1,), (1,)))
    with pytest.raises(RequestError, match="client '0' has the same value everywhere"):
        min_max_per_client(flat)


def test_gzip_and_an_edge_list_of_its_own(root: Path) -> None:
    plain = load("tpt48", root=root)
    path = root / "tpt48" / NOAA
    path.with_name(f"{NOAA}.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    assert _same(load("tpt48", root=root), plain)
    (root / "tpt48" / "usa_map.txt").write_text("".join(f"{b} {a}\n" for a, b in BORDERS) + "DC MD\nDC VA\n")
    assert _same(load("tpt48", root=root), plain)
    (root / "tpt48" / "usa_map.txt").write_text("AL FL\n\nTX OK\n")
    graph = load("tpt48", root=root).graph
    assert graph is not None
    assert [[STATES[end] for end in edge] for edge in graph.edges] == [["AL", "FL"], ["OK", "TX"]]


def test_fewer_clients(root: Path) -> None:
    fed = load("tpt48", root=root, clients=5, novel=0.0)
    whole = load("tpt48", root=root, novel=0.0)
    assert fed.names == STATES[:5]
    assert fed.graph is not None
    assert [tuple(STATES[end] for end in edge) for edge in fed.graph.edges] == [("AZ", "CA")]
    assert torch.equal(fed.client(4)[0], whole.client(4)[0])
    with pytest.raises(RequestError, match=r"data\.clients=49: tpt48 has 48 clients"):
        load("tpt48", root=root, clients=49)
    with pytest.raises(RequestError, match=r"data\.window=sliding"):
        load("tpt48", root=root, window="sliding")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({0: _line(1, 1895, np.array([1.0] * 11 + [-99.90]))}, "no value for AL in month 12 of 1895"),
        ({125: ""}, "no value for AZ in month 1 of 1895"),
        ({7: "0010021902  43.10\n"}, "line 8: needs 10 digits"),
        ({7: "hello\n"}, "line 8: needs 10 digits"),
        ({0: _line(1, 1895, np.ones(12), element="01")}, "line 1: element 01; 02 is the average temperature"),
    ],
)
def test_a_wrong_raw_file_is_named(root: Path, lines: list[str], change: dict[int, str], words: str) -> None:
    path = root / "tpt48" / NOAA
    path.write_text("".join(change.get(place, line) for place, line in enumerate(lines)))
    with pytest.raises(RequestError, match=words) as caught:
        load("tpt48", root=root)
    assert str(path) in str(caught.value)


CUT_SHORT = gzip.compress(b"x" * 99, mtime=0)[:-9]


@pytest.mark.parametrize(
    "content", [b"\x1f\x8bnot gzip", b"\xff\xfe\x00", CUT_SHORT], ids=["no gzip", "no text", "cut short"]
)
def test_no_text_at_all(root: Path, content: bytes) -> None:
    (root / "tpt48" / NOAA).write_bytes(content)
    with pytest.raises(RequestError, match="not a text file, plain or gzipped"):
        load("tpt48", root=root)


@pytest.mark.parametrize("text", ["AL\n", "AL XX\n", "AL FL GA\n"])
def test_a_wrong_edge_list_is_named(root: Path, text: str) -> None:
    (root / "tpt48" / "usa_map.txt").write_text(text)
    with pytest.raises(RequestError, match=r"usa_map.txt line 1: .* is not a pair of codes"):
        load("tpt48", root=root)


def test_a_wrong_npz_is_named(tmp_path: Path) -> None:
    path = tmp_path / "tpt48" / "tpt48.npz"
    path.parent.mkdir()
    good = {
        "states": np.array(STATES),
        "temp_f_1895_2019": _temperatures().reshape(48, -1).astype(np.float32),
        "edge_index": np.array([[STATES.index(end) for end in pair] for pair in BORDERS]).T,
    }
    np.savez(path, **good)
    assert len(load("tpt48", root=tmp_path)) == 48
    holed = good["temp_f_1895_2019"].copy()
    holed[3, 13] = np.nan
    for change, words in (
        ({"states": np.array(STATES[::-1])}, "alphabetical order"),
        ({"temp_f_1895_2019": np.ones((48, 144), np.float32)}, r"\[48, 144\], not float \[48, 1500\]"),
        ({"temp_f_1895_2019": holed}, "no value for CA in month 2 of 1896"),
        ({"edge_index": np.ones((3, 5), np.int64)}, "'edge_index' is"),
        ({"edge_index": np.array([[0], [48]])}, "unknown client"),
        ({"states": np.array([{}], dtype=object)}, "not an npz file of plain arrays"),
    ):
        np.savez(path, **(good | change))
        with pytest.raises(RequestError, match=words):
            load("tpt48", root=tmp_path)
    del good["edge_index"]
    np.savez(path, **good)
    with pytest.raises(RequestError, match="no array 'edge_index'"):
        load("tpt48", root=tmp_path)
    path.write_bytes(b"PK\x03\x04 broken")
    with pytest.raises(RequestError, match="not an npz file"):
        load("tpt48", root=tmp_path)


@pytest.mark.parametrize("folder", [False, True])
def test_without_files_one_line_says_what_to_get(tmp_path: Path, folder: bool) -> None:
    if folder:
        (tmp_path / "tpt48").mkdir()
    with pytest.raises(RequestError, match=r"climdiv-tmpcst-v1\.0\.0-YYYYMMDD, published by NOAA") as caught:
        load("tpt48", root=tmp_path)
    assert str(tmp_path / "tpt48") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_defaults_and_the_network(root: Path) -> None:
    defaults = find_dataset("tpt48").defaults
    assert (defaults.lr, defaults.rounds, defaults.cohort, defaults.novel) == (0.03, 800, 5, 0.2)
    experiment = Experiment(build_config({"data": "tpt48", "data.root": str(root), "method": "fedavg", "rounds": 1}))
    assert experiment.config.model.name == "mlp"
    assert experiment.target.layout.size == 486  # 6-16-16-6


def test_facts() -> None:
    assert len(STATES) == len(set(STATES)) == 48
    assert len(BORDERS) == len(set(BORDERS)) == 105
    assert all(a < b for a, b in BORDERS)
    spread = places()
    assert spread.min(axis=0).tolist() == [0, 0]
    assert spread.max(axis=0).tolist() == [1, 1]
    assert STATES[int(spread[:, 0].argmin())] == "FL"
    assert STATES[int(spread[:, 1].argmax())] == "ME"


def test_the_real_files_agree(real_data: Path, tmp_path: Path) -> None:
    """The npz, and NOAA's file with and without the edge list, are the same federation."""
    folder = _real(real_data) / "tpt48"
    if not (folder / REAL_NOAA).is_file():
        pytest.skip(f"no {REAL_NOAA} in {folder}")
    whole = load("tpt48", root=real_data, seed=1)
    for files in ([REAL_NOAA], [REAL_NOAA, "usa_map.txt"]):
        (tmp_path / "tpt48").mkdir(exist_ok=True)
        for file in files:
            shutil.copy(folder / file, tmp_path / "tpt48")
        assert _same(load("tpt48", root=tmp_path, seed=1), whole)
    with np.load(folder / "tpt48.npz", allow_pickle=False) as file:
        assert {tuple(sorted(STATES[end] for end in pair)) for pair in file["edge_index"].T} == set(BORDERS)
        assert np.array_equal(places(), file["lat_lon_normalized"])


@pytest.mark.parametrize("seed", range(5))
def test_constant_predictors_on_the_real_data(real_data: Path, seed: int) -> None:
    """What fixes the scale: the published errors are those of predicting means, in this scale and no other."""
    fed = load("tpt48", root=_real(real_data), seed=seed)
    own = [fed.client(i)[1].mean(dim=0) for i in range(48)]
    mean = torch.stack(own).mean(dim=0)
    tests = [fed.client(i, "test")[1] for i in range(48)]
    everyone = np.mean([float((y - mean).square().mean()) for y in tests])
    each = np.mean([float((y - guess).square().mean()) for y, guess in zip(tests, own, strict=True)])
    assert 2.5e-3 < everyone < 2.9e-3
    assert 2.0e-3 < each < 2.3e-3
