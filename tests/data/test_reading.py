"""Bytes, texts and arrays of files: plain or gzipped, whole or damaged."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from panacea.data.reading import file_bytes, file_text, npz_arrays
from panacea.errors import RequestError
from tests.data.hostile import Runs

TEXT = "date,Győr\n" * 1000


def said(call: object, path: Path, *rest: object) -> str:
    with pytest.raises(RequestError) as caught:
        call(path, *rest)  # type: ignore[operator]
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message.removeprefix(f"{path}: ")


@pytest.mark.parametrize("name", ["file.txt", "file.gz"])
@pytest.mark.parametrize("packed", [False, True])
def test_gzip_is_known_by_content_not_by_name(tmp_path: Path, name: str, packed: bool) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(TEXT.encode()) if packed else TEXT.encode())
    assert file_bytes(path) == TEXT.encode()
    assert file_text(path) == TEXT


def test_empty_files_and_two_gzip_members(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"")
    assert file_bytes(path) == b""
    assert file_text(path) == ""
    path.write_bytes(gzip.compress(b"one ") + gzip.compress(b"two"))
    assert file_text(path) == "one two"


def test_a_mark_of_the_byte_order_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "excel.csv"
    path.write_bytes(b"\xef\xbb\xbfdate\n")
    assert file_text(path) == "date\n"


def test_a_damaged_gzip_says_how_far_it_is_sound(tmp_path: Path) -> None:
    path = tmp_path / "file.gz"
    # bytes that do not compress, so that the place of the cut is the place in the content
    content = np.random.default_rng(0).bytes(3_000_000)
    data = gzip.compress(content)
    path.write_bytes(data[: len(data) // 2])
    message = said(file_bytes, path)
    assert message.startswith("a damaged gzip file, truncated or altered after 1,")
    altered = bytearray(data)
    altered[-5] ^= 1  # the checksum
    path.write_bytes(altered)
    assert "incorrect data check" in said(file_text, path)
    path.write_bytes(b"\x1f\x8b")
    assert said(file_bytes, path).startswith("a damaged gzip file, truncated or altered after 0 unpacked bytes")
    path.write_bytes(data + b"trailing")
    assert said(file_bytes, path).startswith("a damaged gzip file")


def test_what_cannot_be_read(tmp_path: Path) -> None:
    assert said(file_bytes, tmp_path / "none") == "cannot be read (No such file or directory)"
    assert said(file_bytes, tmp_path) == "cannot be read (Is a directory)"
    path = tmp_path / "latin"
    path.write_bytes("Zürich".encode("latin1"))
    assert said(file_text, path) == "not a text file in UTF-8 (byte 1)"
    path.write_bytes(gzip.compress(b"12\xff"))
    assert said(file_text, path) == "not a text file in UTF-8 (byte 2)"


def test_arrays_by_name(tmp_path: Path) -> None:
    path = tmp_path / "file.npz"
    np.savez_compressed(path, a=np.arange(3), b=np.array(["x"]), c=np.ones(2))
    found = npz_arrays(path, ["a"], ["c", "d"])
    assert sorted(found) == ["a", "c"]
    assert found["a"].tolist() == [0, 1, 2]
    assert said(npz_arrays, path, ["a", "e", "f"]) == "no array 'e'; it needs a, e, f"


def test_an_npz_never_runs_anything(tmp_path: Path) -> None:
    path, sentinel = tmp_path / "file.npz", tmp_path / "ran"
    array = np.empty(1, object)
    array[0] = Runs(os.system, f"touch {sentinel}")
    np.savez(path, a=array, b=np.ones(1))
    assert said(npz_arrays, path, ["a"]).startswith("not an npz file of plain arrays (Object arrays cannot be loaded")
    assert list(npz_arrays(path, ["b"])) == ["b"]  # what is not asked for is not read
    path.write_bytes(pickle.dumps(Runs(os.system, f"touch {sentinel}")))
    assert "not an npz file of plain arrays" in said(npz_arrays, path, ["a"])
    assert not sentinel.exists()


def test_damaged_npz_files(tmp_path: Path) -> None:
    path = tmp_path / "file.npz"
    np.savez_compressed(path, a=np.random.default_rng(0).normal(size=1000))
    data = path.read_bytes()
    broken = bytearray(data)
    broken[len(data) // 2] ^= 0xFF
    one = io.BytesIO()
    np.save(one, np.ones(3))
    no_arrays = io.BytesIO()
    with zipfile.ZipFile(no_arrays, "w") as file:
        file.writestr("a.npy", "this is no array")
    for content in (data[:-50], data[: len(data) // 2], bytes(broken), b"", b"PK\x03\x04 broken", one.getvalue()):
        path.write_bytes(content)
        assert said(npz_arrays, path, ["a"]).startswith("not an npz file of plain arrays")
    path.write_bytes(no_arrays.getvalue())
    assert said(npz_arrays, path, ["a"]) == "'a' is not an array"
    said(npz_arrays, tmp_path / "none.npz", ["a"])
