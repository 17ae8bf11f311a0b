"""IDX files: every spelling and folder, and what is wrong with a file, with its name and the position."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from panacea.data import load
from panacea.data.sources._idx import parse_idx
from panacea.errors import RequestError
from tests.data.images import idx_bytes, numbered, write_idx

KEYS = {"split": "iid", "clients": 4}
TRAIN, TEST = numbered((28, 28), 10, 20), numbered((28, 28), 10, 4, first=1000)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_idx(tmp_path / "mnist", "train", *TRAIN)
    write_idx(tmp_path / "mnist", "t10k", *TEST)
    return tmp_path


@pytest.mark.parametrize("place", ["mnist", "mnist/raw", "mnist/MNIST/raw", "MNIST/raw"])
@pytest.mark.parametrize(("dot", "gz"), [(False, True), (True, False), (True, True)])
def test_every_spelling_and_place_is_the_same_federation(
    root: Path, tmp_path: Path, place: str, dot: bool, gz: bool
) -> None:
    other = tmp_path / "other"
    write_idx(other / place, "train", *TRAIN, dot=dot, gz=gz)
    write_idx(other / place, "t10k", *TEST, dot=dot, gz=gz)
    first, second = load("mnist", root=root, **KEYS), load("mnist", root=other, **KEYS)
    assert torch.equal(first.x, second.x)
    assert torch.equal(first.y, second.y)
    assert np.array_equal(first.bounds, second.bounds)


def test_the_array() -> None:
    array = np.arange(24).reshape(2, 3, 4)
    assert np.array_equal(parse_idx(idx_bytes(array), Path("a"), 3), array)


GOOD = idx_bytes(TRAIN[0])
LABELS = idx_bytes(TRAIN[1])


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("train-images-idx3-ubyte", LABELS, r"byte 0: not an IDX file of 3 axes .*0x00000801 .* must be 0x00000803"),
        ("train-images-idx3-ubyte", b"", r"byte 0: not an IDX file .* in 0 bytes"),
        ("train-images-idx3-ubyte", GOOD[:11], r"byte 0: not an IDX file .* in 11 bytes"),
        ("train-images-idx3-ubyte", GOOD[: 16 + 784 * 3 + 5], r"byte 2,373: the header says 200 x 28 x 28 .* item 3$"),
        ("train-images-idx3-ubyte", GOOD + b"xx", "the file has 2 more"),
        ("train-images-idx3-ubyte", idx_bytes(np.zeros((200, 27, 28))), "byte 8: images of 27 x 28; mnist has 28 x 28"),
        ("train-images-idx3-ubyte", gzip.compress(GOOD, 0)[:-900], r"damaged gzip file, truncated .* after [\d,]+ unp"),
        ("train-labels-idx1-ubyte", idx_bytes(TRAIN[1][:-1]), "199 labels, but train-images-idx3-ubyte has 200 images"),
        ("train-labels-idx1-ubyte", idx_bytes(np.where(np.arange(200) == 7, 10, 3)), "image 7 has label 10; .* 0..9"),
    ],
)
def test_a_wrong_file_is_named_with_the_position(root: Path, name: str, content: bytes, words: str) -> None:
    (root / "mnist" / name).write_bytes(content)
    with pytest.raises(RequestError, match=words) as caught:
        load("mnist", root=root, **KEYS)
    assert str(caught.value).startswith(str(root / "mnist" / name))
    assert "\n" not in str(caught.value)


def test_images_without_labels(root: Path) -> None:
    (root / "mnist" / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(RequestError, match=r"t10k-images-idx3-ubyte: there is no file t10k-labels-idx\* beside it"):
        load("mnist", root=root, **KEYS)


def test_another_file_is_read_anew_and_the_same_one_is_not(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load("mnist", root=root, **KEYS)
    with monkeypatch.context() as patch:
        patch.setattr("panacea.data.sources._idx.parse_idx", None)  # would fail if anything was parsed
        assert torch.equal(load("mnist", root=root, **KEYS).x, first.x)
    write_idx(root / "mnist", "train", 255 - TRAIN[0], TRAIN[1])
    assert not torch.equal(load("mnist", root=root, **KEYS).x, first.x)
