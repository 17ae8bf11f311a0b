"""Pickles of plain arrays are read, whoever wrote them; anything that could run is refused and does not run."""

from __future__ import annotations

import builtins
import copy
import functools
import gzip
import os
import pickle
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from panacea.data.pickles import read_pickle
from panacea.errors import RequestError
from tests.data.hostile import Runs

CONTENT: dict[Any, Any] = {
    "doubles": np.arange(6.0).reshape(2, 3),
    "bytes": np.arange(256, dtype=np.uint8),
    "fortran": np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
    "big endian": np.arange(4, dtype=">i4"),
    "texts": np.array(["VAS", "Győr"]),
    "byte texts": np.array([b"a", b"bcd"]),
    "truths": np.array([True, False]),
    "complex": np.array([1 + 2j]),
    "empty": np.zeros((0, 3)),
    "no axis": np.array(5.0),
    "scalar": np.float64(3.5),
    "whole scalar": np.int32(-4),
    "raw": b"\xff\x00",
    "no bytes": b"",
    3: [1, 2.5, None, True, ("nested", {"x": np.ones(2)}), {1, 2}, 10**30, "ü"],
}


def put(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def refused(path: Path) -> str:
    with pytest.raises(RequestError) as caught:
        read_pickle(path)
    said = str(caught.value)
    assert said.startswith(f"{path}: not a pickle of plain NumPy arrays, near byte ")
    assert "\n" not in said
    return said


def assert_equal(found: Any, expected: Any) -> None:
    if isinstance(expected, np.ndarray | np.generic):
        assert isinstance(found, np.ndarray | np.generic)
        assert found.shape == expected.shape
        assert found.dtype.newbyteorder("=") == expected.dtype.newbyteorder("=")
        assert np.array_equal(found, expected)
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        for key in expected:
            assert_equal(found[key], expected[key])
    elif isinstance(expected, list | tuple):
        assert type(found) is type(expected)
        assert len(found) == len(expected)
        for pair in zip(found, expected, strict=True):
            assert_equal(*pair)
    else:
        assert type(found) is type(expected)
        assert found == expected


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("packed", [False, True])
def test_plain_content_comes_back(tmp_path: Path, protocol: int, packed: bool) -> None:
    if protocol < 3:
        content = {key: value for key, value in CONTENT.items() if key != 3} | {3: [1, None, (2.5, "ü")]}  # sets: later
    else:
        content = {key: value for key, value in CONTENT.items() if protocol > 3 or key != 3}
    data = pickle.dumps(content, protocol)
    assert_equal(read_pickle(put(tmp_path / "file.pkl", gzip.compress(data) if packed else data)), content)


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_arrays_can_be_used_like_any_other(tmp_path: Path, protocol: int) -> None:
    array = read_pickle(put(tmp_path / "file.pkl", pickle.dumps(np.arange(6.0).reshape(2, 3), protocol)))
    array[0, 0] = 7
    assert float(array.sum()) == 22
    for again in (copy.deepcopy(array), pickle.loads(pickle.dumps(array)), np.array(array)):
        assert_equal(again, np.array([[7.0, 1, 2], [3, 4, 5]]))


def by_hand(core: str = "numpy.core") -> bytes:
    """A protocol 0 pickle as Python 2 writes it: byte strings in quotes, names of an old NumPy."""
    data = np.array([1.5, -2.0], "<f8").tobytes().decode("latin1")
    quoted = "".join(f"\\x{ord(letter):02x}" for letter in data)
    return (
        f"(S'sensor \\xe9'\nc{core}.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR"
        "(I1\n(I2\ntcnumpy\ndtype\n(S'f8'\nI0\nI1\ntR(I3\nS'<'\nNNNI-1\nI-1\nI0\ntbI00\n"
        f"S'{quoted}'\ntbI5\nc{core}.multiarray\nscalar\n(cnumpy\ndtype\n(S'i8'\nI0\nI1\ntR"
        "(I3\nS'<'\nNNNI-1\nI-1\nI0\ntbS'\\x09\\x00\\x00\\x00\\x00\\x00\\x00\\x00'\ntRt."
    ).encode("ascii")


@pytest.mark.parametrize("core", ["numpy.core", "numpy._core"])
def test_python_2(tmp_path: Path, core: str) -> None:
    name, array, number, scalar = read_pickle(put(tmp_path / "old.pkl", by_hand(core)))
    assert name == "sensor é"
    assert_equal(array, np.array([1.5, -2.0]))
    assert number == 5
    assert scalar == 9


def _objects(attack: object) -> np.ndarray:
    array = np.empty(1, object)
    array[0] = attack
    return array


ATTACKS: dict[str, tuple[Callable[[str], object], str]] = {
    "os.system": (lambda file: Runs(os.system, f"touch {file}"), "posix.system"),
    "eval": (lambda file: Runs(builtins.eval, f"open({file!r}, 'w')"), "eval"),
    "exec": (lambda file: Runs(builtins.exec, f"open({file!r}, 'w')"), "exec"),
    "open": (lambda file: Runs(builtins.open, file, "w"), "open"),
    "getattr": (lambda file: Runs(builtins.getattr, "text", "upper"), "getattr"),
    "import": (lambda file: Runs(__import__, "os"), "__import__"),
    "partial": (lambda file: Runs(functools.partial, os.system, f"touch {file}"), "functools.partial"),
    "Popen": (lambda file: Runs(subprocess.Popen, ["touch", file]), ".Popen"),
    "numpy.load": (lambda file: Runs(np.load, file), "numpy"),
    "numpy.save": (lambda file: Runs(np.save, file, 1), "numpy"),
    "numpy.memmap": (lambda file: Runs(np.memmap, file, "u1", "w+", 0, (9,)), "numpy.memmap"),
    "tofile": (lambda file: Runs(np.ndarray.tofile, np.ones(3), file), "getattr"),
    "Path": (lambda file: Runs(Path(file).touch), "getattr"),
    "in a dict": (lambda file: {"a": 1, "b": [{"c": Runs(os.system, f"touch {file}")}]}, "posix.system"),
    "as a key": (lambda file: {("x", Runs(os.getpid)): 1}, "posix.getpid"),
    "in an object array": (lambda file: _objects(Runs(os.system, f"touch {file}")), ""),
    "a plain object array": (lambda file: _objects("harmless"), "it has an array of type 'O8'"),
    "a date": (lambda file: np.array(["2014-01-01"], "M8[D]"), "it has an array of type 'M8'"),
    "records": (lambda file: np.zeros(1, [("a", "f8")]), "it has an array of type 'V8'"),
    "a class": (lambda file: Runs, "hostile.Runs"),
    "the array class as a call": (lambda file: Runs(np.ndarray, (1000,)), ""),
    "a type from a type": (lambda file: Runs(np.dtype, np.float64), "numpy"),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
@pytest.mark.parametrize("which", ATTACKS)
def test_attacks_do_not_run(tmp_path: Path, which: str, protocol: int) -> None:
    sentinel = tmp_path / "ran"
    attack, words = ATTACKS[which]
    try:
        data = pickle.dumps(attack(str(sentinel)), protocol)
    except pickle.PicklingError:
        pytest.skip("such an object cannot be written so")
    said = refused(put(tmp_path / "attack.pkl", data))
    assert words in said
    assert not sentinel.exists()


def test_code_by_hand_does_not_run(tmp_path: Path) -> None:
    """Opcodes that Python itself does not write."""
    sentinel = tmp_path / "ran"
    for code in (
        f"cos\nsystem\n(S'touch {sentinel}'\ntR.",
        f"(S'touch {sentinel}'\nios\nsystem\n.",
        f"(cos\nsystem\nS'touch {sentinel}'\no.",
        "c_codecs\nencode\n(V1\nVrot13\ntR.",
        "c__builtin__\nbytes\n(I1000000000\ntR.",
        "cnumpy\nndarray\n(I5\ntR.",
        "cnumpy.core.multiarray\n_reconstruct\n(tR(I1\n(I1\ntNI00\nS'a'\ntb.",
        "\x80\x02cnumpy\nndarray\n)\x81.",
        "P1\n.",
    ):
        refused(put(tmp_path / "attack.pkl", code.encode("latin1")))
    assert not sentinel.exists()


def _text(text: str) -> bytes:
    return b"X" + struct.pack("<I", len(text)) + text.encode()


def _whole(number: int) -> bytes:
    return b"J" + struct.pack("<i", number)


@pytest.mark.parametrize(("code", "inner"), [("V8", "O8"), ("O8", "O8"), ("f8", "O8"), ("f8", "f8")])
def test_bytes_never_become_addresses(tmp_path: Path, code: str, inner: str) -> None:
    """A type whose state calls 8 bytes of the file a Python object; NumPy would follow that address."""
    kind = b"cnumpy\ndtype\n(" + _text(inner) + b"\x89\x88tR"
    fields = b"(" + _text("a") + b"t}" + _text("a") + b"(" + kind + _whole(0) + b"ts"
    forged = b"cnumpy\ndtype\n(" + _text(code) + b"\x89\x88tR(" + _whole(3) + _text("|") + b"N" + fields
    forged += _whole(8) + _whole(1) + _whole(0) + b"tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tC\x01btR(K\x01(K\x01t" + forged
    path = put(tmp_path / "forged.pkl", b"\x80\x04" + array + b"\x89C\x08AAAAAAAAtb.")
    assert "only numbers and texts are allowed" in refused(path)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_every_cut_is_an_error(tmp_path: Path, protocol: int) -> None:
    data = pickle.dumps({"a": np.arange(5.0), "b": [1, 2]}, protocol)
    for end in range(0, len(data), 7):
        refused(put(tmp_path / "cut.pkl", data[:end]))


def test_other_damage(tmp_path: Path) -> None:
    data = pickle.dumps(np.arange(5.0), 4)
    short = data.replace(np.arange(5.0).tobytes(), np.arange(5.0).tobytes()[:-8] + b"N" * 8)
    assert len(read_pickle(put(tmp_path / "same length.pkl", short))) == 5  # bytes are numbers, whatever they are
    refused(put(tmp_path / "text.pkl", b"hello, this is no pickle"))
    refused(put(tmp_path / "zip.pkl", b"PK\x03\x04nothing"))
    huge = pickle.dumps(np.zeros(3), 2).replace(b"K\x03\x85", b"J\xff\xff\xff\x7f\x85")
    refused(put(tmp_path / "huge.pkl", huge))
    path = put(tmp_path / "cut.pkl.gz", gzip.compress(data * 50)[:-10])
    with pytest.raises(RequestError, match="a damaged gzip file") as caught:
        read_pickle(path)
    assert str(path) in str(caught.value)
    with pytest.raises(RequestError, match="cannot be read"):
        read_pickle(tmp_path / "nothing.pkl")


def test_the_real_pickles(real_data: Path) -> None:
    found = [real_data / "metr-la" / "adj_mx.pkl", real_data / "pems-bay" / "adj_mx_bay.pkl.gz"]
    if not all(path.is_file() for path in found):
        pytest.skip(f"no adj_mx.pkl in {real_data}/metr-la")
    for path, sensors, links in zip(found, (207, 325), (1722, 2694), strict=True):
        ids, places, matrix = read_pickle(path)
        assert len(ids) == len(places) == sensors
        assert matrix.dtype == np.float32
        assert np.count_nonzero(matrix) == links
