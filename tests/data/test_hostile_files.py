"""Files made to break a reader: each is one line that names the file, and takes neither the memory nor the machine."""

from __future__ import annotations

import gzip
import io
import json
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image

from panacea.data import load
from panacea.data import reading as reading_module
from panacea.data.image_store import image_store
from panacea.data.load import load_keys, resolve_keys
from panacea.data.pickles import parse_pickle
from panacea.data.reading import file_bytes, npz_arrays
from panacea.data.registry import find_dataset
from panacea.data.sources._idx import parse_idx
from panacea.data.sources._natural import number_row
from panacea.data.sources._tables import csv_places
from panacea.errors import RequestError
from tests.data import cifar, pictures, roads, temperatures


def _refused(name: str, root: Path, *parts: str, **keys: object) -> None:
    with pytest.raises(RequestError) as caught:
        load(name, root=root, **keys)
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


@pytest.fixture
def streets(tmp_path: Path) -> Path:
    folder = tmp_path / "metr_la"
    folder.mkdir()
    roads.write_h5(folder / "metr-la.h5", roads.speeds())
    roads.write_adjacency(folder / "adj_mx.pkl")
    return folder


def test_a_pickle_cannot_ask_for_memory() -> None:
    tracemalloc.start()
    assert parse_pickle(b"\x80\x02Nr\xff\xff\xff\x00.", "p") is None  # remembers object number 16,777,215
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000_000


@pytest.mark.parametrize(
    "content", [b"]" * 100_000 + b"a" * 99_999 + b"NN\x87.", b"U\x01a" + b"2\x86" * 30 + b"\x85NN\x87."]
)
def test_ids_are_not_nested(streets: Path, content: bytes) -> None:
    (streets / "adj_mx.pkl").write_bytes(b"\x80\x02" + content)
    _refused("metr_la", streets.parent, "adj_mx.pkl: needs a list of sensor ids")


def test_keys_of_a_batch_are_texts(tmp_path: Path) -> None:
    files = cifar.python2_batches() | {"data_batch_1": b"\x80\x02})" + b"\x85" * 100_000 + b"Ns."}
    cifar.write_files(tmp_path / "cifar10", files)
    _refused("cifar10", tmp_path, "data_batch_1: no 'data'", **cifar.KEYS)


def test_a_sensor_is_listed_once(streets: Path) -> None:
    twice = [roads.IDS[0], *roads.IDS[:4]]
    roads.write_adjacency(streets / "adj_mx.pkl", ids=twice)
    _refused("metr_la", streets.parent, f"adj_mx.pkl: sensor '{roads.IDS[0]}' is listed twice")
    (streets / "adj_mx.pkl").unlink()
    (streets / "distances_la_2012.csv").write_text("from,to,cost\n1,2,3\n")
    _refused("metr_la", streets.parent, "distances_la_2012.csv: distances: all are the same")
    (streets / "graph_sensor_ids.txt").write_text(",".join(twice))
    _refused("metr_la", streets.parent, f"graph_sensor_ids.txt: sensor '{roads.IDS[0]}' is listed twice")


@pytest.mark.parametrize("part", ["axis0", "axis1", "block0_values"])
@pytest.mark.parametrize("huge", [False, True])
def test_parts_of_a_frame(streets: Path, part: str, huge: bool) -> None:
    with h5py.File(streets / "metr-la.h5", "a") as file:
        del file[f"df/{part}"]
        if huge:
            shape = (2**50, 5) if part == "block0_values" else (2**50,)
            file.create_dataset(f"df/{part}", shape, "i8", chunks=True)
        else:
            file.create_group(f"df/{part}")
    _refused("metr_la", streets.parent, "metr-la.h5: ")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("\n\ntimestamp,1\n", "metr-la.csv line 1 is empty"),
        ("1" * 200_000 + ",2\n1,2\n", "metr-la.csv line 1: field larger"),
        ("1,2\n5,6\n5,1_0\n", "metr-la.csv line 3, column '2'"),
    ],
)
def test_lines_of_speeds(streets: Path, text: str, parts: str) -> None:
    (streets / "metr-la.h5").unlink()
    (streets / "metr-la.csv").write_text(text)
    _refused("metr_la", streets.parent, parts)


def test_places(tmp_path: Path) -> None:
    path = tmp_path / "places.csv"
    path.write_text("1,10,20\n1,10,20\n")
    assert csv_places(path) == {"1": (10, 20)}
    path.write_text("1,10,20\n1,10,21\n")
    with pytest.raises(RequestError, match=r"places.csv line 2: another place of sensor '1'"):
        csv_places(path)
    path.write_text("1,10,20\n" + "2" * 200_000 + ",1,1\n")
    with pytest.raises(RequestError, match=r"places.csv line 2: field larger"):
        csv_places(path)


def _member(header: bytes) -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header


@pytest.mark.parametrize(
    "header", [b"{'descr': ((((((", b"{'descr': '<f4', 'fortran_order': False, 'shape': (10000000, 10000000), }\n"]
)
def test_headers_of_arrays(tmp_path: Path, header: bytes) -> None:
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("speed.npy", _member(header))
    with pytest.raises(RequestError, match=r"a.npz: not an npz file of plain arrays"):
        npz_arrays(path, ["speed"])


@pytest.mark.parametrize("flag", ["encrypted", "unknown method"])
def test_members_of_archives(tmp_path: Path, flag: str) -> None:
    out = io.BytesIO()
    np.savez(out, speed=np.ones(3))
    data = bytearray(out.getvalue())
    entry = data.find(b"PK\x01\x02")
    if flag == "encrypted":
        data[6] |= 1
        data[entry + 8] |= 1
    else:
        data[8] = data[entry + 10] = 99
    path = tmp_path / "a.npz"
    path.write_bytes(data)
    with pytest.raises(RequestError, match=r"a.npz: not an npz file of plain arrays"):
        npz_arrays(path, ["speed"])


def test_no_image_of_an_absurd_size() -> None:
    with pytest.raises(RequestError, match="images byte 8: the header says 0 x 4,294,967,295 x 4,294,967,295 bytes"):
        parse_idx(struct.pack(">4I", 0x803, 0, 2**32 - 1, 2**32 - 1), Path("images"), 3)


def test_a_gzip_file_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_module, "_MOST", 1000)
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(bytes(400)) + gzip.compress(bytes(600)) + bytes(50))  # padding, as on tapes
    assert file_bytes(path) == bytes(1000)
    for content in (gzip.compress(bytes(1001)), gzip.compress(bytes(600)) * 2):
        path.write_bytes(content)
        with pytest.raises(RequestError, match=r"a.gz: a gzip file that unpacks to more than 1,000 bytes"):
            file_bytes(path)
    path.write_bytes(gzip.compress(np.random.default_rng(0).bytes(900))[:-300])
    with pytest.raises(RequestError, match=r"altered after [56]\d\d unpacked bytes \(it ends before"):
        file_bytes(path)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (PermissionError(13, "Permission denied", "/data/mnist"), "/data/mnist: cannot be read (Permission denied)"),
        (MemoryError("9 GB"), "data set 'mnist': not enough memory for what its files hold (9 GB)"),
    ],
)
def test_what_the_system_refuses(monkeypatch: pytest.MonkeyPatch, error: Exception, line: str) -> None:
    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr("panacea.data.sources._idx.find_pairs", refuse)
    with pytest.raises(RequestError) as caught:
        load_keys("mnist", resolve_keys("mnist", {}))
    assert str(caught.value) == line
    monkeypatch.setattr("panacea.data.sources.mnist.find_pairs", refuse, raising=False)
    monkeypatch.setattr("panacea.data.paths.Path.is_dir", refuse)
    if isinstance(error, OSError):
        assert find_dataset("metr_la").files(Path("/data")) == "unreadable"


@pytest.mark.parametrize("value", [1e39, -1e39, 10**400])
def test_numbers_that_single_precision_cannot_hold(value: float) -> None:
    with pytest.raises(RequestError, match=r"a.json: y\[1\] is .*, not a finite number"):
        number_row([1, value], Path("a.json"), "y")


@pytest.mark.parametrize(
    ("pixel", "what"),
    [("9" * 400, "not a number"), ('"0.5"', "not a number"), ("9" * 6000, "not JSON that can be read"), ("[]", "")],
)
def test_pixels(tmp_path: Path, pixel: str, what: str) -> None:
    path = pictures.leaf(tmp_path / "femnist" / "all_data" / "all_data_0.json", {"a": ([[7.5] * 784] * 6, [1] * 6)})
    path.write_text(path.read_text().replace("7.5", pixel, 1).replace("7.5", "0.5"))
    _refused("femnist", tmp_path, "all_data_0.json", what)


def test_a_damaged_gzip_file_is_named_once(tmp_path: Path) -> None:
    path = tmp_path / "chickenpox" / "chickenpox.json.gz"
    path.parent.mkdir()
    path.write_bytes(gzip.compress(json.dumps(list(range(1000))).encode())[:-30])
    with pytest.raises(RequestError) as caught:
        load("chickenpox", root=tmp_path)
    assert str(caught.value).count("chickenpox.json.gz") == 1


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"labels": np.full(20, 1.5)}, "'labels' is float64, not whole numbers"),
        ({"labels": np.full(20, "x")}, "'labels' is <U1, not whole numbers"),
        ({"writer_names": np.array(["a", "a"])}, "two of the 'writer_names' are the same"),
    ],
)
def test_arrays_of_writers(tmp_path: Path, changes: dict[str, np.ndarray], what: str) -> None:
    (tmp_path / "femnist").mkdir()
    arrays = {"images": np.zeros((20, 28, 28), np.uint8), "labels": np.zeros(20, np.uint8)}
    arrays |= {"writer": np.zeros(20, np.int16), "writer_names": np.array(["a", "b"]), **changes}
    np.savez(tmp_path / "femnist" / "femnist.npz", **arrays)
    _refused("femnist", tmp_path, "femnist.npz: ", what)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda text: text + text.splitlines(True)[0], "line 6003: state 001 has 1895 in a line before, too"),
        (lambda text: text[:10] + "9999.00" + text[17:], "AL has 9999 in month 1 of 1895; a mean temperature"),
    ],
)
def test_temperatures(tmp_path: Path, change: Callable[[str], str], what: str) -> None:
    path = temperatures.noaa_folder(tmp_path) / "tpt48" / temperatures.NOAA
    path.write_text(change(path.read_text()))
    _refused("tpt48", tmp_path, path.name, what)


def test_labels_of_hundreds_of_bits(tmp_path: Path) -> None:
    files = cifar.sheets() | {"train_lables.json": json.dumps([2**70] + [1] * 99).encode()}
    cifar.write_files(tmp_path / "cifar10", files)
    _refused("cifar10", tmp_path, "train_lables.json: a label is no class; labels are 0..9", **cifar.KEYS)


def test_pictures_of_too_many_pixels_and_other_formats(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    files = [f"{place}.jpg" for place in range(100)]
    for place, file in enumerate(files):
        pictures.picture(tmp_path / file, place)
    Image.new("1", (10_000, 10_000)).save(tmp_path / "7.jpg", "PNG")
    assert not image_store("some", tmp_path, files, 4).sound[7]
    assert not [warning for warning in recwarn if "bomb" in str(warning.message)]
    (tmp_path / "7.jpg").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n")
    store = image_store("other", tmp_path, files, 4)
    assert not store.sound[7]
    assert "does not decode" in store.notes[0]


def test_a_face_is_of_one_person(tmp_path: Path) -> None:
    (tmp_path / "celeba" / "img_align_celeba").mkdir(parents=True)
    (tmp_path / "celeba" / "identity_CelebA.txt").write_text("1.jpg 1\n2.jpg 1\n1.jpg 2\n")
    (tmp_path / "celeba" / "list_attr_celeba.txt").write_text("")
    _refused("celeba", tmp_path, "identity_CelebA.txt: image '1.jpg' has 2 lines")


@pytest.mark.parametrize("kind", ["²", "9" * 5000])
def test_types_of_cars(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "compcars"
    (folder / "label").mkdir(parents=True)
    pictures.picture(folder / "image" / "1" / "1" / "2010" / "a.jpg")
    (folder / "misc").mkdir()
    (folder / "misc" / "attributes.txt").write_text(f"model_id type\n1 {kind}\n")
    _refused("compcars", tmp_path, "attributes.txt line 2: needs 2 values, the type a whole number")


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"station_id": np.zeros(3, np.int64)}, "two stations have the same id"),
        ({"latlon": np.full((3, 2), "x")}, "'latlon' must be latitudes"),
        ({"latlon": np.full((3, 2), np.nan)}, "'latlon' must be latitudes"),
        ({"latlon": np.full((3, 2), 91.0)}, "'latlon' must be latitudes"),
    ],
)
def test_stations(tmp_path: Path, changes: dict[str, np.ndarray], what: str) -> None:
    (tmp_path / "pemsd7_m").mkdir()
    arrays = {"speed": roads.speeds(200, 3), "distance_m": 1000.0 * (1 - np.eye(3)), "station_id": np.arange(3)}
    np.savez(tmp_path / "pemsd7_m" / "pemsd7_m.npz", **{**arrays, "latlon": np.full((3, 2), 30.0), **changes})
    _refused("pemsd7_m", tmp_path, "pemsd7_m.npz: ", what)
