"""CIFAR: what is wrong with a file is one line that names it."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from panacea.data import load
from panacea.errors import RequestError
from tests.data.cifar import KEYS, X, Y, binary_batches, png, python2_batches, rows, sheets, tar, write_files


def _pickle(**items: object) -> bytes:
    return pickle.dumps(items)


class _Evil:
    def __reduce__(self) -> tuple[object, ...]:
        return os.system, ("exit 1",)


GOOD = rows(X[:20])
MARKS = Y[:20].tolist()


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("data_batch_2", pickle.dumps(_Evil()), r"not a pickle of plain NumPy arrays, near byte \d+ .*system"),
        ("data_batch_2", python2_batches()["data_batch_2"][:900], r"not a pickle of plain NumPy arrays, near byte \d+"),
        ("data_batch_2", gzip.compress(python2_batches()["data_batch_2"])[:-99], "damaged gzip file, truncated"),
        ("data_batch_2", pickle.dumps([1]), "holds a list, not a dict with 'data' and 'labels'"),
        ("data_batch_2", _pickle(data=GOOD, fine_labels=MARKS), "no 'labels'; .* and has data, fine_labels"),
        (
            "data_batch_2",
            _pickle(data=GOOD[:, :99], labels=MARKS),
            r"'data' is uint8 \[20, 99\], not uint8 \[images, 3",
        ),
        ("data_batch_2", _pickle(data=GOOD / 255, labels=MARKS), r"'data' is float64 \[20, 3072\]"),
        ("data_batch_2", _pickle(data="x", labels=MARKS), "'data' is str"),
        ("data_batch_2", _pickle(data=GOOD, labels=MARKS[:-1]), "'labels': 19 labels for 20 images"),
        ("data_batch_2", _pickle(data=GOOD, labels=[*MARKS[:-1], 10]), "image 19 has label 10; labels are 0..9"),
        ("data_batch_2", _pickle(data=GOOD, labels=[*MARKS[:-1], -1]), "image 19 has label -1"),
        ("data_batch_2", _pickle(data=GOOD, labels=["cat"] * 20), "'labels': not a list of whole numbers"),
        (
            "data_batch_2.bin",
            binary_batches()["data_batch_2.bin"][:-1],
            "byte 61,459: ends in image 19; .* 3,073 bytes",
        ),
        ("data_batch_2.bin", b"\x0a" + binary_batches()["data_batch_2.bin"][1:], "image 0 has label 10"),
    ],
)
def test_a_wrong_batch_is_named(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    folder = write_files(tmp_path / "cifar10", binary_batches() if name.endswith(".bin") else python2_batches())
    write_files(folder, {name: content})
    with pytest.raises(RequestError, match=words) as caught:
        load("cifar10", root=tmp_path, **KEYS)
    assert str(caught.value).startswith(str(folder / name))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "make", "words"),
    [
        ("data_batch_3.png", lambda: b"no picture", "does not decode as a PNG picture"),
        ("data_batch_3.png", lambda: sheets()["data_batch_3.png"][:-3000], "does not decode as a PNG picture"),
        ("data_batch_3.png", lambda: png(np.zeros((20, 32, 3), np.uint8)), "is 32 pixels wide; a row of 1024"),
        ("train_lables.json", lambda: b"[1, 2", "not a JSON list of labels"),
        ("train_lables.json", lambda: b"[1, 2]", "2 labels for 100 images"),
        ("train_lables.json", lambda: json.dumps(Y.tolist()).encode(), "120 labels for 100 images"),
        ("train_lables.json", lambda: b'{"a": 1}', "not a list of whole numbers"),
        ("train_lables.json", lambda: json.dumps([0.5] * 100).encode(), "not a list of whole numbers"),
        ("train_lables.json", lambda: json.dumps([0] * 7 + [11] + [0] * 92).encode(), "image 7 has label 11"),
    ],
)
def test_a_wrong_sheet_is_named(tmp_path: Path, name: str, make: Callable[[], bytes], words: str) -> None:
    folder = write_files(tmp_path / "cifar10", sheets())
    write_files(folder, {name: make()})
    with pytest.raises(RequestError, match=words) as caught:
        load("cifar10", root=tmp_path, **KEYS)
    assert str(caught.value).startswith(str(folder / name))
    assert "\n" not in str(caught.value)


def test_sheets_without_labels_or_pillow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_files(tmp_path / "cifar10", sheets())
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "PIL", None)
        with pytest.raises(RequestError, match=r"data_batch_1.png: .* needs Pillow; run `pip install pillow`"):
            load("cifar10", root=tmp_path, **KEYS)
    (folder / "train_lables.json").unlink()
    with pytest.raises(RequestError, match=r"data_batch_1.png: there is no file train_lables.json beside it"):
        load("cifar10", root=tmp_path, **KEYS)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (tar("cifar-10-batches-py", python2_batches())[:-200], r"damaged gzip file, truncated or altered after [\d,]+"),
        (tar("somewhere", {"else": b"x"}), "has none of data_batch_1, data_batch_2"),
        (b"no archive at all" * 100, "not a tar archive, or a damaged one"),
        (tar("a", {"test_batch": pickle.dumps(_Evil())}), r"tar.gz: a/test_batch: not a pickle of plain NumPy"),
    ],
)
def test_a_wrong_archive_is_named(tmp_path: Path, content: bytes, words: str) -> None:
    folder = write_files(tmp_path / "cifar10", {"cifar-10-python.tar.gz": content})
    with pytest.raises(RequestError, match=words) as caught:
        load("cifar10", root=tmp_path, **KEYS)
    assert str(caught.value).startswith(str(folder / "cifar-10-python.tar.gz"))


@pytest.mark.parametrize(
    ("name", "file"), [("cifar10", "cifar-10-python.tar.gz"), ("cifar100", "cifar-100-python.tar")]
)
def test_without_files_one_line_says_what_to_get(tmp_path: Path, name: str, file: str) -> None:
    with pytest.raises(RequestError, match=file) as caught:
        load(name, root=tmp_path)
    assert str(tmp_path / name) in str(caught.value)
    assert "\n" not in str(caught.value)
