"""CompCars from folders as published, the graph rules, and the stand-in."""

from __future__ import annotations

import gzip
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from panacea.data import Federation, load
from panacea.data.sources._compcars_files import TYPES
from panacea.data.sources._view_year import NAMES, VIEWS, YEARS, Rule, view_year_graph
from panacea.data.sources.compcars_like import _turned
from panacea.errors import RequestError
from tests.data.pictures import near, picture

HEADER = "model_id maximum_speed displacement door_number seat_number type"
KINDS = {"101": 1, "102": 2, "7": 3, "8": 4, "9": 5, "10": 0}  # a minibus and an unknown type among them
VIEWPOINTS = {"F": 1, "R": 2, "S": 3, "FS": 4, "RS": 5}


def _car(folder: Path, model: str, year: str, name: str, viewpoint: int, place: int) -> None:
    inside = Path("make1") / model / year / name
    picture((folder / "image" / inside).with_suffix(".jpg"), place)
    label = (folder / "label" / inside).with_suffix(".txt")
    label.parent.mkdir(parents=True, exist_ok=True)
    label.write_text(f"{viewpoint}\n1\n1 1 18 12\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three cars of each viewpoint and year, and some that are not wanted."""
    data = tmp_path / "compcars" / "data"
    (data / "misc").mkdir(parents=True)
    lines = [HEADER, *(f"{model} 235 1.8 5 5 {kind}" for model, kind in KINDS.items())]
    (data / "misc" / "attributes.txt").write_text("\n".join(lines) + "\n")
    for client, (view, year) in enumerate((view, year) for view in VIEWS for year in YEARS):
        for i in range(3):
            model = ("101", "102", "7", "8")[(client + i) % 4]
            _car(data, model, str(year), f"{view}{i}", VIEWPOINTS[view], 3 * client + i)
    _car(data, "9", "2010", "minibus", 1, 99)
    _car(data, "10", "2010", "what", 1, 99)
    _car(data, "7", "2008", "old", 1, 99)
    _car(data, "7", "unknown", "when", 1, 99)
    _car(data, "7", "2011", "where", -1, 99)
    return data


def _load(folder: Path, **keys: object) -> Federation:
    return load("compcars", **{"root": folder.parents[1], "size": 12, **keys})


@pytest.mark.parametrize(("rule", "edges"), [("or", 315), ("grid", 49), ("king", 89), ("rook", 135)])
def test_rules(rule: Rule, edges: int) -> None:
    graph = view_year_graph(rule)
    assert graph.n == 30
    assert len(graph.edges) == edges
    assert (graph.edges[:, 0] < graph.edges[:, 1]).all()
    linked = {(NAMES[a], NAMES[b]) for a, b in graph.edges.tolist()}
    expected = {
        ("F-2009", "F-2010"): {"or", "grid", "king", "rook"},
        ("F-2009", "FS-2009"): {"or", "grid", "king", "rook"},
        ("F-2009", "FS-2010"): {"or", "king"},
        ("F-2009", "F-2014"): {"or", "rook"},
        ("F-2009", "R-2010"): {"or"},
        ("F-2009", "S-2011"): set(),
        ("F-2014", "FS-2009"): {"or"},
    }
    for pair, rules in expected.items():
        assert (pair in linked) == (rule in rules), pair


def test_the_published_folders(folder: Path) -> None:
    fed = _load(folder)
    assert repr(fed) == (
        "Federation(compcars: 30 clients (6 novel), 90 samples, classification, 315 edges) PARTIAL 90 of 24,151 images"
    )
    assert fed.names == NAMES
    assert fed.task.class_names == TYPES == ("MPV", "SUV", "sedan", "hatchback")
    assert fed.task.inputs == (3, 12, 12)
    assert fed.notes == ("1 pictures left out: their viewpoint is unknown",)
    assert fed.features is not None
    assert fed.features[[0, 5, 29]].tolist() == [[0, 0], [0, 1], [1, 1]]
    assert fed.groups is not None
    assert fed.groups.tolist() == np.repeat(np.arange(5), 6).tolist()
    assert (fed.counts("test") == 1).all()
    for client in range(30):
        found = []
        for split in ("train", "val", "test"):
            x, y = fed.client(client, split)
            for image, label in zip(x.numpy(), y.tolist(), strict=True):
                i = next(i for i in range(3) if near(image, 3 * client + i))
                assert label == (client + i) % 4
                found.append(i)
        assert sorted(found) == [0, 1, 2]


def test_keys(folder: Path) -> None:
    fed = _load(folder, clients=8, rule="grid", size=16)
    assert fed.names == NAMES[:8]
    assert fed.task.inputs == (3, 16, 16)
    assert fed.graph is not None
    assert {tuple(edge) for edge in fed.graph.edges.tolist()} == {(i, i + 1) for i in (0, 1, 2, 3, 4, 6)} | {
        (0, 6),
        (1, 7),
    }
    assert len(fed.x) == 24
    with pytest.raises(RequestError, match=r"data\.clients=31: compcars has 30 clients here"):
        _load(folder, clients=31)
    with pytest.raises(RequestError, match=r"data\.rule=bishop: must be 'or', 'grid', 'king' or 'rook'"):
        _load(folder, rule="bishop")


def test_folders_without_data_and_a_client_without_images(folder: Path) -> None:
    for image in (folder / "image").rglob("F[0-9].jpg"):
        if image.parent.name == "2010":
            image.unlink()
    for part in ("image", "label", "misc"):
        (folder / part).rename(folder.parent / part)
    fed = _load(folder)
    assert len(fed) == 29
    assert "F-2010" not in fed.names
    assert fed.graph is not None
    assert fed.graph.n == 29
    assert len(fed.graph.edges) == 315 - view_year_graph("or").degree[1]
    assert "1 of 30 clients left out: fewer than 2 images, or none to train on" in fed.notes


def test_a_new_image_is_found(folder: Path) -> None:
    _load(folder)
    _car(folder, "8", "2012", "late", 3, 77)
    assert _load(folder).total == 91


def test_more_than_published(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("panacea.data.sources.compcars.PICTURES", 89)
    fed = _load(folder)
    assert fed.partial == ""
    assert "90 pictures fit; the papers use 89 of them and do not say which" in fed.notes


def test_wrong_files(folder: Path) -> None:
    attributes, label = folder / "misc" / "attributes.txt", folder / "label/make1/101/2009/F0.txt"
    good = attributes.read_text()
    for text, words in [
        ("model type\n", r"line 1: needs the columns model_id and type, found 'model type'"),
        (good + "\n11 2 3\n", r"line 9: needs 6 values, the type a whole number"),
        (good + "11 235 1.8 5 5 van\n", r"line 8: needs 6 values, the type a whole number"),
        (HEADER, r"image: no image of a MPV, SUV, sedan, hatchback of 2009-2014 in it"),
    ]:
        attributes.write_text(text)
        with pytest.raises(RequestError, match=words):
            _load(folder)
    attributes.write_text(good)
    label.write_text("6\n1\n1 1 2 2\n")
    with pytest.raises(RequestError, match=rf"{label} line 1: '6' is not a viewpoint \(-1, or 1 to 5\)"):
        _load(folder)
    label.unlink()
    with pytest.raises(RequestError, match=f"{label}: missing; every image needs its label file"):
        _load(folder)


@pytest.mark.parametrize("gone", ["image", "label", "misc/attributes.txt"])
def test_missing_files(folder: Path, gone: str) -> None:
    (folder / gone).rename(folder / "elsewhere")
    with pytest.raises(RequestError) as caught:
        _load(folder)
    start = f"data set 'compcars': no files in {folder.parent}; place the folders data/image, data/label and data/misc"
    assert str(caught.value).startswith(start)
    assert "data=compcars_like is a stand-in" in str(caught.value)


# --- the stand-in ---------------------------------------------------------------------------------------------------


def _idx(path: Path, array: np.ndarray) -> None:
    head = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    data = head + array.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


@pytest.fixture
def clothes(tmp_path: Path) -> Path:
    """360 + 60 images: the label and a number of its own in each, in the top left quarter."""
    folder = tmp_path / "fashion-mnist"
    folder.mkdir()
    images, labels = np.zeros((420, 28, 28), np.uint8), np.arange(420) % 10
    images[:, 7:13, 7:13] = 100 + np.arange(420)[:, None, None] % 150
    for prefix, part, end in (("train", slice(360), ""), ("t10k", slice(360, None), ".gz")):
        _idx(folder / f"{prefix}-images-idx3-ubyte{end}", images[part])
        _idx(folder / f"{prefix}-labels-idx1-ubyte{end}", labels[part])
    return tmp_path


def test_the_stand_in(clothes: Path) -> None:
    fed = load("compcars_like", root=clothes, rule="king")
    assert repr(fed) == "Federation(compcars_like: 30 clients (6 novel), 420 samples, classification, 89 edges)"
    assert fed.names == NAMES
    assert fed.notes[0].startswith("a STAND-IN, not CompCars: fashion_mnist turned by 0 to 180 degrees")
    assert np.bincount(fed.y.numpy()).tolist() == [168, 84, 126, 42]
    # where the square is, along the views: top left, left, bottom left, bottom, bottom right
    for view, (row, column) in enumerate([(10, 10), (14, 8), (17, 10), (19, 14), (17, 17)]):
        image = fed.client(6 * view)[0][0, 0]
        middle = torch.nonzero(image > 0.2).float().mean(0)
        assert middle.tolist() == pytest.approx([row, column], abs=1.0), view
    for level in range(6):  # darkest and brightest pixel along the years
        images = fed.client(level)[0]
        assert float(images.min()) == pytest.approx(0.1 * level, abs=0.003)
        assert float(images.max()) <= 1 - 0.02 * level


def test_no_image_is_used_twice(clothes: Path) -> None:
    fed = load("compcars_like", root=clothes, samples=14)
    level0 = [fed.x[fed.bounds[6 * view, 0] : fed.bounds[6 * view, 3]] for view in (0, 2, 4)]
    values = torch.cat([part.amax(dim=(1, 2, 3)) for part in level0]).tolist()
    assert max(values.count(value) for value in values) <= 3  # 420 images with 150 values: none more than three times
    few, many = (load("compcars_like", root=clothes, samples=n, seed=3) for n in (5, 14))
    assert (few.total, many.total) == (150, 420)
    first = load("compcars_like", root=clothes, clients=4, seed=3)
    assert torch.equal(first.client(3)[0], many.client(3)[0])


def test_stand_in_of_digits() -> None:
    fed = load("compcars_like", base="digits")
    assert (fed.total, fed.task.inputs, fed.task.class_names) == (1770, (1, 28, 28), ("0-2", "3-4", "5-7", "8-9"))
    assert load("compcars_like", base="digits", seed=1).total == 1770
    with pytest.raises(RequestError, match=r"data\.samples=60: digits has 1,797 images, at most 59 for each"):
        load("compcars_like", base="digits", samples=60)


def test_turning() -> None:
    image = torch.rand(2, 1, 28, 28)
    assert torch.equal(_turned(image, 0), image)
    assert torch.equal(_turned(image, 90), torch.rot90(image, 1, (2, 3)))
    smooth = torch.zeros(1, 1, 28, 28)
    smooth[:, :, 10:18, 6:22] = 1
    twice = _turned(_turned(smooth, 45), 45)
    assert float((twice - _turned(smooth, 90)).abs().mean()) < 0.03


def test_wrong_files_of_the_stand_in(clothes: Path) -> None:
    folder = clothes / "fashion-mnist"
    path = folder / "t10k-labels-idx1-ubyte.gz"
    _idx(path, np.arange(59) % 10)
    with pytest.raises(RequestError, match=f"{path}: 59 labels, but t10k-images-idx3-ubyte.gz has 60 images"):
        load("compcars_like", root=clothes)
    path.write_bytes(gzip.compress(b"\0\0\x08\x01\0\0"))
    with pytest.raises(RequestError, match=f"{path} byte 0: not an IDX file"):
        load("compcars_like", root=clothes)
    path.unlink()
    with pytest.raises(RequestError, match=r"no file t10k-labels-idx\* beside it"):
        load("compcars_like", root=clothes)
    shutil.rmtree(folder)
    with pytest.raises(RequestError, match=r"place train-images-idx3-ubyte, .* or use data\.base=digits"):
        load("compcars_like", root=clothes)


def test_the_real_clothes(real_data: Path) -> None:
    if not (real_data / "fashion-mnist").is_dir():
        pytest.skip(f"no fashion-mnist in {real_data}; set PANACEA_DATA to a folder that has it")
    fed = load("compcars_like", root=real_data, samples=100)
    assert fed.total == 3000
    assert (np.bincount(fed.y.numpy()) > 200).all()
