"""MNIST and Fashion-MNIST: who gets which images."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

import panacea as pn
from panacea.data import Federation, find_dataset, load
from panacea.data.sources import mnist
from panacea.errors import RequestError
from tests.data.images import numbered, write_idx

TRAIN, TEST = numbered((28, 28), 10, 60), numbered((28, 28), 10, 10, first=1000)
SMALL = {"clients": 10, "train_sizes": [50, 40, 30, 20, 10], "test_size": 8}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_idx(tmp_path / "mnist", "train", *TRAIN, gz=True)
    write_idx(tmp_path / "mnist", "t10k", *TEST)
    return tmp_path


def real(folder: Path, name: str) -> Path:
    if not (folder / name).is_dir():
        pytest.skip(f"no {name} in {folder}; set PANACEA_DATA to a folder that has it")
    return folder


def numbers(federation: Federation, *splits: str) -> list[int]:
    """Which images the clients have in these splits, from the pixels in which they say it."""
    found = []
    for client in range(len(federation)):
        for split in splits:
            x, y = federation.client(client, split)
            pixels = (x.reshape(len(x), -1)[:, :3] * 255).round().long()
            assert torch.equal(pixels[:, 0], y), "an image keeps its label"
            found += (pixels[:, 1] + 256 * pixels[:, 2]).tolist()
    return found


@pytest.mark.parametrize("split", ["iid", "pathological", "dirichlet", "practical"])
def test_train_images_from_the_train_file_test_images_from_the_test_file(root: Path, split: str) -> None:
    fed = load("mnist", root=root, split=split, **SMALL)
    fit, test = numbers(fed, "train", "val"), numbers(fed, "test")
    assert len(set(fit)) == len(fit)
    assert len(set(test)) == len(test)
    assert max(fit) < 1000 <= min(test)
    assert (fed.counts("test") >= 1).all()
    assert (fed.counts("val") >= 1).all()
    assert fed.x.dtype == torch.uint8
    assert fed.partial == "PARTIAL 700 of 70,000 images"
    if split == "practical":
        assert (len(fit), len(test)) == (300, 80)
        assert (fed.counts("train") + fed.counts("val")).tolist() == [50, 50, 40, 40, 30, 30, 20, 20, 10, 10]
        assert fed.graph is not None
        assert len(fed.graph.edges) == 5
    else:
        assert (len(fit), len(test)) == (600, 100)
        assert fed.graph is None
        assert fed.groups is None


def test_pathological_clients_are_tested_on_their_own_classes(root: Path) -> None:
    fed = load("mnist", root=root, split="pathological", clients=10)
    for client in range(10):
        own, test = fed.client(client)[1], fed.client(client, "test")[1]
        assert len(own.unique()) <= 2
        assert set(test.tolist()) == set(own.tolist())
        assert len(test) == 10


@pytest.mark.parametrize(("keep", "count"), [("train", 600), ("t10k", 100)])
@pytest.mark.parametrize("split", ["iid", "practical"])
def test_one_file_gives_both_splits(root: Path, keep: str, count: int, split: str) -> None:
    for path in (root / "mnist").iterdir():
        if not path.name.startswith(keep):
            path.unlink()
    fed = load("mnist", root=root, split=split, clients=10, train_sizes=[5] * 5, test_size=2, min_samples=5)
    everything = numbers(fed, "train", "val", "test")
    assert len(set(everything)) == len(everything) == (count if split == "iid" else 70)
    which = "train" if keep == "train" else "test"
    assert fed.partial == f"PARTIAL {count} of 70,000 images ({which} split only)"
    assert set(fed.counts("test").tolist()) == ({2} if split == "practical" else {count // 50})


def test_sizes_that_do_not_fit_are_scaled_and_say_so(root: Path) -> None:
    fed = load("mnist", root=root, clients=10)
    assert fed.partial.startswith("PARTIAL sizes x 0.")
    assert fed.partial.endswith("; 700 of 70,000 images")
    factor = float(fed.partial.split()[3].rstrip(";"))
    assert fed.counts("test")[0] == pytest.approx(100 * factor, abs=1)
    assert (fed.counts("train") + fed.counts("val"))[0] == pytest.approx(500 * factor, abs=1)
    assert any("scaled by" in note for note in fed.notes)


def test_groups_need_sizes(root: Path) -> None:
    with pytest.raises(RequestError, match=r"data\.groups=2: needs data\.train_sizes, a number per group"):
        load("mnist", root=root, clients=10, groups=2)
    with pytest.raises(RequestError, match=r"data\.train_sizes=\[9, 9, 9\]: needs 5 positive numbers"):
        load("mnist", root=root, clients=10, train_sizes=[9, 9, 9])
    for sizes in ([0] * 5, []):
        with pytest.raises(RequestError, match=r"data\.train_sizes=.*: needs 5 positive numbers, one per group"):
            load("mnist", root=root, clients=10, train_sizes=sizes)
    fed = load("mnist", root=root, clients=10, groups=2, train_sizes=[20, 10], test_size=10, dominant=1.0)
    assert fed.client(0)[1].max() < 5 <= fed.client(9)[1].min()


def test_unknown_checksums_are_noted(root: Path) -> None:
    notes = load("mnist", root=root, **SMALL).notes
    assert notes[0] == (
        "not the published files by checksum: t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte, "
        "train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz"
    )
    assert load("mnist", root=root, **SMALL).notes == notes  # from the prepared copy


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
@pytest.mark.parametrize("folder", [False, True])
def test_without_files_one_line_says_what_to_get(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, folder: bool
) -> None:
    monkeypatch.setattr(mnist, "_DEBIAN", tmp_path / "nowhere")
    if folder:
        (tmp_path / name).mkdir()
    with pytest.raises(RequestError, match="place train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k") as caught:
        load(name, root=tmp_path)
    assert str(tmp_path / name) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_fashion_is_found_where_debian_puts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert mnist.FASHION_LAYOUT.elsewhere == (Path("/usr/share/datasets/fashion-mnist"),)
    there = dataclasses.replace(mnist.FASHION_LAYOUT, elsewhere=(tmp_path / "debian",))
    monkeypatch.setattr(mnist, "FASHION_LAYOUT", there)
    write_idx(tmp_path / "debian", "train", *TRAIN, gz=True)
    write_idx(tmp_path / "debian", "t10k", *TEST, gz=True)
    fed = load("fashion_mnist", root=tmp_path / "empty", split="iid", clients=3)
    assert fed.total == 700
    assert fed.task.class_names[9] == "ankle boot"


@pytest.mark.parametrize("model", ["mlp", "auto"])
def test_it_trains(root: Path, model: str) -> None:
    fed = load("mnist", root=root, **SMALL)
    run = pn.train(fed, method="fedavg", model=model, rounds=1, local_steps=1, cohort=2, batch_size=4, seed=0)
    assert run.summary["parameters"] == {"auto": 1_663_370, "mlp": 13_002}[model]  # auto: McMahan's CNN
    assert 0 <= run.summary["mean"] <= 100


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_cards(name: str) -> None:
    entry = find_dataset(name)
    assert all((entry.card.licence, entry.card.citation, entry.card.used_in, entry.card.get, entry.card.splits))
    assert (entry.defaults.cohort, entry.defaults.novel) == (10, 0.0)


@pytest.mark.parametrize(("name", "folder"), [("mnist", "mnist"), ("fashion_mnist", "fashion-mnist")])
def test_the_real_files(real_data: Path, name: str, folder: str) -> None:
    fed = load(name, root=real(real_data, folder))
    assert repr(fed) == f"Federation({name}: 100 clients (0 novel), 40000 samples, classification, 950 edges)"
    assert fed.partial == ""
    assert not any("checksum" in note for note in fed.notes)
    assert (fed.counts("train") + fed.counts("val")).tolist() == np.repeat([500, 400, 300, 200, 100], 20).tolist()
    assert set(fed.counts("test").tolist()) == {100}
    for client in (0, 50, 99):
        for split in ("train", "val", "test"):
            y = fed.client(client, split)[1]
            share = float(torch.isin(y, torch.tensor([client // 20 * 2, client // 20 * 2 + 1])).float().mean())
            assert share == pytest.approx(0.8, abs=1e-6 if split == "test" else 0.2)
    mixed = load(name, root=real_data, split="pathological")
    assert mixed.total == 70_000
    assert max(len(mixed.client(client)[1].unique()) for client in range(100)) <= 4
    mean = float(mixed.x.float().mean() / 255)
    assert mean == pytest.approx({"mnist": 0.1309, "fashion_mnist": 0.2862}[name], abs=2e-4)
    for client in range(100):
        assert set(mixed.client(client, "test")[1].tolist()) <= set(
            torch.cat([mixed.client(client, split)[1] for split in ("train", "val")]).tolist()
        )
