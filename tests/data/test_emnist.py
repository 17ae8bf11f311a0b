"""EMNIST: FedAMP's groups exactly as printed when the files are whole, one factor when they are not; orientation."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from panacea.data import Federation, find_dataset, load
from panacea.data.sources._images import ImageFile
from panacea.data.sources.emnist import EMNIST, upright
from panacea.errors import RequestError
from tests.data.images import idx_bytes, write_idx

TEST = "emnist-byclass-test"
DOMINATING = np.repeat([0, 1, 2], [10, 26, 26])  # of a class: digits, upper, lower


def _characters(each: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Noise with a vertical stroke, `each` of every class."""
    labels = np.repeat(np.arange(62), each)
    images = np.random.default_rng(seed).integers(0, 3, (len(labels), 28, 28), np.uint8)
    images[:, 4:24, 13:15] = 255
    return images, labels


def _same(a: Federation, b: Federation) -> bool:
    return torch.equal(a.x, b.x) and torch.equal(a.y, b.y) and np.array_equal(a.bounds, b.bounds)


def _check_groups(fed: Federation) -> None:
    assert fed.groups is not None
    assert np.bincount(fed.groups).tolist() == [10, 26, 26]
    assert fed.graph is not None
    assert len(fed.graph.edges) == 45 + 325 + 325
    for client, group in enumerate(fed.groups):
        fit = torch.cat([fed.client(client, split)[1] for split in ("train", "val")]).numpy()
        for labels in (fit, fed.client(client, "test")[1].numpy()):
            own = DOMINATING[labels] == group
            assert own.sum() == np.rint(0.8 * len(labels))
            counts = np.bincount(labels, minlength=62)
            for mask in (np.equal(DOMINATING, group), np.not_equal(DOMINATING, group)):
                assert np.ptp(counts[mask]) <= 1  # evenly


def test_whole_files_give_the_printed_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough of every class in both files: 1000/700/400 train and 100 test samples, nothing scaled."""
    marks = np.repeat(np.arange(62), [1000] * 10 + [700] * 52)
    train = {"images": np.zeros((len(marks), 1, 28, 28), np.uint8), "labels": marks}
    test = {"images": np.full((62 * 130, 1, 28, 28), 9, np.uint8), "labels": np.repeat(np.arange(62), 130)}
    number = np.arange(len(train["labels"]))
    for place, base in enumerate((1, 256, 65536)):
        train["images"][:, 0, 0, place] = number // base % 256
        test["images"][:, 0, 0, place] = number[: len(test["labels"])] // base % 256
    arrays = {
        f"{split} {what}": array for split, part in (("train", train), ("test", test)) for what, array in part.items()
    }
    write_idx(tmp_path / "emnist", "emnist-byclass-train", np.zeros((1, 28, 28)), np.zeros(1))
    notes = np.frombuffer(b"[]", np.uint8)
    monkeypatch.setattr("panacea.data.sources._idx.cached", lambda *_: arrays | {"notes": notes})
    monkeypatch.setattr("panacea.data.sources._images._partial", lambda found, published, splits, factor: str(factor))
    fed = load("emnist", root=tmp_path)
    assert len(fed) == 62
    assert fed.partial == "1.0"  # the factor
    assert (fed.counts("train") + fed.counts("val")).tolist() == np.repeat([1000, 700, 400], [10, 26, 26]).tolist()
    assert fed.counts("val").tolist() == np.repeat([100, 70, 40], [10, 26, 26]).tolist()
    assert set(fed.counts("test").tolist()) == {100}
    assert fed.total == 38_600 + 6_200
    _check_groups(fed)
    pixels = fed.x.reshape(len(fed.x), -1).long()
    is_test = torch.zeros(len(fed.x), dtype=torch.bool)
    for _, _, first, end in fed.bounds:
        is_test[first:end] = True
    assert torch.equal(pixels[:, 783] == 9, is_test)  # test images from the test file, and only those
    number = pixels[:, 0] + 256 * pixels[:, 1] + 65536 * pixels[:, 2]
    assert len(number[is_test].unique()) == 6_200
    assert len(number[~is_test].unique()) == 38_600  # no image shared by two clients


def test_the_test_split_alone_is_scaled_by_one_factor(tmp_path: Path) -> None:
    write_idx(tmp_path / "emnist" / "gzip", TEST, *_characters(60), gz=True)
    fed = load("emnist", root=tmp_path)
    assert len(fed) == 62
    assert fed.partial.startswith("PARTIAL sizes x 0.0")
    assert fed.partial.endswith("; test split only")
    factor = float(fed.partial.split()[3].rstrip(";"))
    fit = fed.counts("train") + fed.counts("val")
    for size, group in ((1000, 0), (700, 1), (400, 2)):
        assert set(fit[np.asarray(fed.groups) == group].tolist()) <= {int(size * factor) + d for d in (-1, 0, 1)}
    assert any("were scaled by" in note for note in fed.notes)
    _check_groups(fed)


def test_other_numbers_of_clients_keep_the_proportions(tmp_path: Path) -> None:
    write_idx(tmp_path / "emnist", TEST, *_characters(20))
    sizes = {"train_sizes": [30, 20, 10], "test_size": 5}
    assert np.bincount(load("emnist", root=tmp_path, clients=31, **sizes).groups).tolist() == [5, 13, 13]
    assert np.bincount(load("emnist", root=tmp_path, clients=3, **sizes).groups).tolist() == [1, 1, 1]


@pytest.mark.parametrize("split", ["iid", "pathological", "dirichlet"])
def test_other_splits_have_62_clients(tmp_path: Path, split: str) -> None:
    write_idx(tmp_path / "emnist", TEST, *_characters(20))
    fed = load("emnist", root=tmp_path, split=split)
    assert len(fed) == 62
    assert fed.total == 1240
    assert fed.partial == "PARTIAL 1,240 of 814,255 images (test split only)"


def test_orientation_is_seen_or_said(tmp_path: Path) -> None:
    images, labels = _characters(12)
    keys = {"split": "iid", "clients": 4}
    write_idx(tmp_path / "a" / "emnist", TEST, images, labels)
    write_idx(tmp_path / "b" / "emnist", TEST, images.swapaxes(1, 2), labels)
    standing = load("emnist", root=tmp_path / "a", **keys)
    assert _same(standing, load("emnist", root=tmp_path / "b", **keys))
    assert int(standing.x[0, 0, 23, 13]) == 255
    assert int(standing.x[0, 0, 13, 23]) < 3
    assert _same(standing, load("emnist", root=tmp_path / "b", orientation="transposed", **keys))
    lying = load("emnist", root=tmp_path / "b", orientation="as_is", **keys)
    assert torch.equal(lying.x, standing.x.transpose(2, 3))


def test_unclear_orientation_asks(tmp_path: Path) -> None:
    images, labels = _characters(2)
    images = np.maximum(images, images.swapaxes(1, 2))
    write_idx(tmp_path / "emnist", TEST, images, labels)
    with pytest.raises(RequestError, match=r"images-idx3-ubyte: its 6 images of 1, I and l do not show .*=transposed"):
        load("emnist", root=tmp_path)
    with pytest.raises(RequestError, match="its 0 images"):
        upright(ImageFile(images[:2, None], np.array([5, 6], np.uint8)), Path("x"))


def test_a_wrong_label_and_missing_files(tmp_path: Path) -> None:
    images, labels = _characters(2)
    labels[3] = 62
    write_idx(tmp_path / "emnist", TEST, images, labels)
    with pytest.raises(RequestError, match=r"labels-idx1-ubyte: image 3 has label 62; labels are 0..61"):
        load("emnist", root=tmp_path)
    with pytest.raises(
        RequestError, match=r"no files in .*emnist; place emnist-byclass-\{train,test\}-images"
    ) as caught:
        load("emnist", root=tmp_path / "nowhere")
    assert "\n" not in str(caught.value)


def test_facts() -> None:
    entry = find_dataset("emnist")
    assert "".join(EMNIST.class_names) == "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    assert [EMNIST.class_names[label] for label in (1, 18, 47)] == ["1", "I", "l"]
    assert (entry.defaults.cohort, entry.defaults.novel) == (10, 0.0)
    assert all((entry.card.licence, entry.card.citation, entry.card.used_in, entry.card.get, entry.card.splits))


def test_the_real_file_upright_and_transposed(real_data: Path, tmp_path: Path) -> None:
    source = real_data / "emnist"
    if not (source / f"{TEST}-images-idx3-ubyte.gz").is_file():
        pytest.skip(f"no {TEST}-images-idx3-ubyte.gz in {source}")
    fed = load("emnist", root=real_data)
    assert len(fed) == 62
    assert fed.partial == "PARTIAL sizes x 0.507; test split only"
    assert set(fed.counts("test").tolist()) == {50}
    _check_groups(fed)
    sevens = fed.x[fed.y == 7].float().mean(dim=0)[0]
    assert sevens[:12].sum() > sevens[16:].sum()  # the bar of a 7 is on top
    data = gzip.decompress((source / f"{TEST}-images-idx3-ubyte.gz").read_bytes())
    images = np.frombuffer(data, np.uint8, offset=16).reshape(-1, 28, 28)
    assert len(images) == 116_323
    folder = tmp_path / "emnist"
    folder.mkdir()
    (folder / f"{TEST}-images-idx3-ubyte").write_bytes(idx_bytes(images.swapaxes(1, 2)))
    labels = f"{TEST}-labels-idx1-ubyte.gz"
    (folder / labels).write_bytes((source / labels).read_bytes())
    assert _same(fed, load("emnist", root=tmp_path))
