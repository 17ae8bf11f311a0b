"""Prepared copies: read once, checked, made anew when damaged or outdated, never in the way."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from panacea.data import cache
from panacea.data.cache import cache_folder, cached, packed, unpacked


class Reader:
    """Counts how often the slow way is taken."""

    def __init__(self, **arrays: np.ndarray) -> None:
        self.arrays = arrays or {"values": np.arange(6.0).reshape(2, 3), "names": packed(["a", "Zürich"])}
        self.calls = 0

    def __call__(self) -> dict[str, np.ndarray]:
        self.calls += 1
        return self.arrays


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.csv"
    path.write_text("1,2,3\n")
    return path


def copies(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def test_the_second_call_does_not_read(source: Path, own_cache: Path) -> None:
    reader = Reader()
    first = cached("toy", [source], 1, reader)
    second = cached("toy", [source], 1, reader)
    assert reader.calls == 1
    assert len(copies(own_cache)) == 1
    for name, array in reader.arrays.items():
        for found in (first[name], second[name]):
            assert found.dtype == array.dtype
            assert np.array_equal(found, array)
    assert unpacked(second["names"]) == ["a", "Zürich"]


@pytest.mark.parametrize(
    "array",
    [
        np.arange(5, dtype=np.uint8),
        np.zeros((0, 3), np.float32),
        np.array([True, False]),
        np.arange(12, dtype=np.int64).reshape(3, 4).T,  # not contiguous
        np.array(3.5),
        np.array([np.nan, np.inf], np.float32),
    ],
    ids=["bytes", "empty", "truths", "turned", "no axis", "nan"],
)
def test_arrays_come_back_as_they_were(source: Path, array: np.ndarray) -> None:
    reader = Reader(only=array)
    cached("toy", [source], 1, reader)
    found = cached("toy", [source], 1, reader)["only"]
    assert reader.calls == 1
    assert found.dtype == array.dtype
    assert np.array_equal(found.reshape(array.shape), array, equal_nan=array.dtype.kind == "f")


def test_another_file_version_or_name_is_another_copy(source: Path, own_cache: Path) -> None:
    reader = Reader()
    other = source.with_name("other.csv")
    other.write_text("1,2,3\n")
    for name, files, version in (
        ("toy", [source], 1),
        ("toy", [source], 2),
        ("toy2", [source], 1),
        ("toy", [other], 1),
        ("toy", [source, other], 1),
    ):
        before = reader.calls
        cached(name, files, version, reader)
        assert reader.calls == before + 1
        cached(name, files[::-1], version, reader)  # the order of files does not matter
        assert reader.calls == before + 1
    assert len(copies(own_cache)) == 5


def test_a_changed_source_is_read_again(source: Path) -> None:
    old, new = Reader(values=np.zeros(2)), Reader(values=np.ones(2))
    cached("toy", [source], 1, old)
    source.write_text("1,2,3,4\n")  # another size
    assert cached("toy", [source], 1, new)["values"].tolist() == [1, 1]
    stat = source.stat()
    os.utime(source, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1_000_000))  # the same size, a later time
    cached("toy", [source], 1, new)
    assert (old.calls, new.calls) == (1, 2)


def test_a_damaged_copy_is_made_anew(source: Path, own_cache: Path) -> None:
    reader = Reader()
    cached("toy", [source], 1, reader)
    (copy,) = copies(own_cache)
    good = copy.read_bytes()
    for calls, damage in enumerate(
        (
            good[:-3],
            good[: len(good) // 2],
            good[:4],
            b"",
            b"not a copy at all",
            bytes([*good[:-1], good[-1] ^ 1]),  # one bit of one value
            good.replace(b"sha256", b"sha257"),  # no checksum
            b"\xff" * 8 + good[8:],
        ),
        2,
    ):
        assert damage != good
        copy.write_bytes(damage)
        found = cached("toy", [source], 1, reader)
        assert reader.calls == calls
        assert np.array_equal(found["values"], reader.arrays["values"])
        assert copy.read_bytes() == good
    cached("toy", [source], 1, reader)
    assert reader.calls == calls


def test_a_folder_that_cannot_be_written_costs_the_speed_only(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader()
    (tmp_path / "a file").write_text("")
    monkeypatch.setenv("PANACEA_CACHE", str(tmp_path / "a file" / "cache"))
    for calls in (1, 2):
        assert np.array_equal(cached("toy", [source], 1, reader)["values"], reader.arrays["values"])
        assert reader.calls == calls
    monkeypatch.setenv("PANACEA_CACHE", str(tmp_path / "full"))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "write_atomically", full)
    assert "values" in cached("toy", [source], 1, reader)
    assert copies(tmp_path / "full") == []


def test_an_error_of_the_reader_leaves_no_copy(source: Path, own_cache: Path) -> None:
    def wrong() -> dict[str, np.ndarray]:
        raise ValueError("line 7")

    with pytest.raises(ValueError, match="line 7"):
        cached("toy", [source], 1, wrong)
    assert copies(own_cache) == []


def test_texts(own_cache: Path) -> None:
    for texts in ([], [""], ["a", "b,c", '"quoted"', "Győr", "日本", "line\nbreak", "\x00"]):
        array = packed(texts)
        assert array.dtype == np.uint8
        assert unpacked(array) == texts
    assert unpacked(packed(text for text in ("x", "y"))) == ["x", "y"]


def test_where_copies_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PANACEA_CACHE", "~/here")
    assert cache_folder() == Path("~/here").expanduser()
    monkeypatch.delenv("PANACEA_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/panacea/prepared")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path("~/.cache/panacea/prepared").expanduser()


def test_leftovers_of_killed_processes_go(own_cache: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_text("1")
    own_cache.mkdir(exist_ok=True)
    old, young = own_cache / ".a.safetensors.1.part", own_cache / ".b.safetensors.2.part"
    old.write_text("half")
    young.write_text("being written")
    os.utime(old, (1, 1))
    cached("set", [source], 1, lambda: {"x": np.ones(3)})
    assert not old.exists()
    assert young.exists()
