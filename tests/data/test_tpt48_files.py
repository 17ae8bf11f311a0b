"""The files of TPT-48: NOAA's, the npz, the authors' pickle; which one is read, and what is said of a wrong one."""

from __future__ import annotations

import gzip
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest

from panacea.data import load
from panacea.data.sources._states import BORDERS, STATES, places
from panacea.data.sources._tpt48_files import read_record
from panacea.errors import RequestError
from tests.data.hostile import Runs
from tests.data.temperatures import NOAA, noaa_folder, noaa_line, noaa_lines, real_folder, same, temperatures

PICKLE = "month_temp_data.pkl"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return noaa_folder(tmp_path)


@pytest.fixture
def months() -> dict[str, np.ndarray]:
    """What the authors' pickle holds: 2008..2019 by code."""
    return dict(zip(STATES, temperatures()[:, -12:].reshape(48, 144), strict=True))


def _pickled(root: Path, content: object, protocol: int = 4) -> Path:
    path = root / "tpt48" / PICKLE
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(pickle.dumps(content, protocol))
    return path


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_the_pickle_is_the_last_choice_and_the_same(
    tmp_path: Path, root: Path, months: dict[str, np.ndarray], protocol: int
) -> None:
    whole = load("tpt48", root=root, window="sliding")
    alone = tmp_path / "alone"
    alone.mkdir()
    _pickled(alone, months, protocol)
    assert same(load("tpt48", root=alone, window="sliding"), whole)
    assert same(load("tpt48", root=alone, years="2010..2015"), load("tpt48", root=root, years="2010..2015"))
    (alone / "tpt48" / "usa_map.txt").write_text("AL FL\n")
    graph = read_record(alone, (2008, 2019)).graph
    assert graph.edges.tolist() == [[STATES.index("AL"), STATES.index("FL")]]
    _pickled(root, {"not": "read"})  # NOAA's file comes first
    assert same(load("tpt48", root=root, window="sliding"), whole)


@pytest.mark.parametrize("keys", [{}, {"years": "2007..2010"}, {"window": "sliding", "years": "1895..2019"}])
def test_the_pickle_has_twelve_years(tmp_path: Path, months: dict[str, np.ndarray], keys: dict[str, str]) -> None:
    path = _pickled(tmp_path, months)
    years = keys.get("years", "1895..2019")
    with pytest.raises(RequestError) as caught:
        load("tpt48", root=tmp_path, **keys)
    said = str(caught.value)
    assert said.startswith(f"{path}: it has 2008..2019, data.years={years} is not within")
    assert "climdiv-tmpcst" in said
    assert "\n" not in said


def test_a_wrong_pickle_is_named(tmp_path: Path, months: dict[str, np.ndarray]) -> None:
    sentinel = tmp_path / "ran"
    holed = months["CA"].copy()
    holed[13] = np.nan
    without = {code: own for code, own in months.items() if code != "WY"}
    for content, words in (
        ([1, 2], "holds a list, not a dict"),
        (without, "state 'WY' is missing; it needs the codes of the 48 states"),
        (months | {"DC": months["CA"]}, "state 'DC' is not one of the 48 contiguous states"),
        (months | {"CA": months["CA"][:-1]}, r"state 'CA' has float64 \[143\], not 144 numbers"),
        (months | {"CA": list(months["CA"])}, "state 'CA' has a list, not 144 numbers"),
        (months | {"CA": np.array(["1"] * 144)}, "state 'CA' has <U1"),
        (months | {"CA": holed}, "no value for CA in month 2 of 2009"),
        (months | {"CA": Runs(os.system, f"touch {sentinel}")}, "it asks for posix.system, which is not allowed"),
    ):
        path = _pickled(tmp_path, content)
        with pytest.raises(RequestError, match=words) as caught:
            load("tpt48", root=tmp_path, window="sliding")
        assert str(caught.value).startswith(f"{path}: ")
    path.write_bytes(pickle.dumps(months)[:-200])
    with pytest.raises(RequestError, match="not a pickle of plain NumPy arrays, near byte"):
        load("tpt48", root=tmp_path, window="sliding")
    assert not sentinel.exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({0: noaa_line(1, 1895, np.array([1.0] * 11 + [-99.90]))}, "no value for AL in month 12 of 1895"),
        ({125: ""}, "no value for AZ in month 1 of 1895"),
        ({7: "0010021902  43.10\n"}, "line 8: needs 10 digits"),
        ({7: "hello\n"}, "line 8: needs 10 digits"),
        ({0: noaa_line(1, 1895, np.ones(12), element="01")}, "line 1: element 01; 02 is the average temperature"),
    ],
)
def test_a_wrong_raw_file_is_named(root: Path, change: dict[int, str], words: str) -> None:
    path = root / "tpt48" / NOAA
    path.write_text("".join(change.get(place, line) for place, line in enumerate(noaa_lines())))
    with pytest.raises(RequestError, match=words) as caught:
        load("tpt48", root=root)
    assert str(path) in str(caught.value)


CUT_SHORT = gzip.compress(b"x" * 99, mtime=0)[:-9]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\x1f\x8bnot gzip", "a damaged gzip file"),
        (b"01\xff\xfe\x00", r"not a text file in UTF-8 \(byte 2\)"),
        (CUT_SHORT, "a damaged gzip file, truncated or altered after"),
    ],
    ids=["no gzip", "no text", "cut short"],
)
def test_no_text_at_all(root: Path, content: bytes, words: str) -> None:
    path = root / "tpt48" / NOAA
    path.write_bytes(content)
    with pytest.raises(RequestError, match=words) as caught:
        load("tpt48", root=root)
    assert str(caught.value).startswith(f"{path}: ")


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
        "temp_f_1895_2019": temperatures().reshape(48, -1).astype(np.float32),
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


REAL = f"{NOAA}.gz"


def test_the_real_files_agree(real_data: Path, tmp_path: Path) -> None:
    """The npz, and NOAA's file with and without the edge list, are the same federation."""
    folder = real_folder(real_data) / "tpt48"
    if not (folder / REAL).is_file():
        pytest.skip(f"no {REAL} in {folder}")
    whole = load("tpt48", root=real_data, seed=1)
    for files in ([REAL], [REAL, "usa_map.txt"]):
        (tmp_path / "tpt48").mkdir(exist_ok=True)
        for file in files:
            shutil.copy(folder / file, tmp_path / "tpt48")
        assert same(load("tpt48", root=tmp_path, seed=1), whole)
    with np.load(folder / "tpt48.npz", allow_pickle=False) as file:
        assert {tuple(sorted(STATES[end] for end in pair)) for pair in file["edge_index"].T} == set(BORDERS)
        assert np.array_equal(places(), file["lat_lon_normalized"])


def test_the_real_pickle_agrees(real_data: Path, tmp_path: Path) -> None:
    folder = real_folder(real_data) / "tpt48"
    if not (folder / PICKLE).is_file():
        pytest.skip(f"no {PICKLE} in {folder}")
    (tmp_path / "tpt48").mkdir()
    shutil.copy(folder / PICKLE, tmp_path / "tpt48")
    assert same(load("tpt48", root=tmp_path, window="sliding"), load("tpt48", root=real_data, window="sliding"))
