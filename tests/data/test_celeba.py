"""CelebA: LEAF's lists or the original text files, images on disk, people left out, domains."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from panacea.data import Federation, load
from panacea.data import image_store as store_module
from panacea.data.sources._celeba_files import DOMAIN_ATTRIBUTES
from panacea.errors import RequestError
from panacea.experiment.config import build_config
from panacea.experiment.experiment import Experiment
from tests.data.pictures import leaf, near, picture

PEOPLE = {"2880": 10, "7": 6, "31": 3, "400": 7}  # images of each; the third has too few
OWNERS = [person for person, count in PEOPLE.items() for _ in range(count)]
ATTRIBUTES = ("5_o_Clock_Shadow", *DOMAIN_ATTRIBUTES, "Smiling", "Young")


def _file(place: int) -> str:
    return f"{place + 1:06d}.jpg"


def _smiles(place: int) -> bool:
    return place % 3 == 0


def _pattern(person: str, place: int) -> list[bool]:
    """Everyone: attractive; 2880: wavy hair too, but for one image; 7: heavy makeup on half of the images."""
    return [True, person == "7" and place % 2 == 0, False, False, person == "2880" and place != 0]


def _attribute_lines() -> list[str]:
    lines = [str(len(OWNERS)), " ".join(ATTRIBUTES)]
    for place, person in enumerate(OWNERS):
        values = [False, *_pattern(person, place), _smiles(place), True]
        lines.append(f"{_file(place)} " + " ".join("1" if value else "-1" for value in values))
    return lines


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The original files."""
    folder = tmp_path / "celeba"
    for place in range(len(OWNERS)):
        picture(folder / "img_align_celeba" / _file(place), place, (178, 218))
    (folder / "identity_CelebA.txt").write_text("".join(f"{_file(i)} {own}\n" for i, own in enumerate(OWNERS)))
    (folder / "list_attr_celeba.txt").write_text("\n".join(_attribute_lines()))
    return folder


def _load(folder: Path, **keys: object) -> Federation:
    return load("celeba", root=folder.parent, **keys)


def _places(fed: Federation, client: int) -> list[int]:
    """Which pictures a client has, told by their colours; labels are checked on the way."""
    found = []
    for split in ("train", "val", "test"):
        x, y = fed.client(client, split)
        for image, label in zip(x.numpy(), y.tolist(), strict=True):
            place = next(i for i in range(len(OWNERS)) if near(image, i))
            assert label == _smiles(place)
            found.append(place)
    return sorted(found)


def test_the_original_files(folder: Path) -> None:
    fed = _load(folder)
    assert repr(fed) == (
        "Federation(celeba: 3 clients (0 novel), 23 samples, classification, no graph) PARTIAL 3 of 9,343 people"
    )
    assert fed.names == ("2880", "7", "400")
    assert [_places(fed, i) for i in range(3)] == [list(range(10)), list(range(10, 16)), list(range(19, 26))]
    assert fed.notes == ("1 of 4 people left out: fewer than 5 images, or none to train on",)
    assert fed.task.inputs == (3, 84, 84)
    assert fed.x.dtype == torch.uint8
    assert fed.rows is not None
    assert fed.fingerprint.startswith("images-")
    assert fed.counts("test").tolist() == [1, 1, 1]


def test_domains_are_the_patterns_of_most_images(folder: Path) -> None:
    fed = _load(folder)
    assert fed.groups is not None
    assert fed.groups.tolist() == [1 + 16, 1, 1]  # 7's makeup: an even count is a no
    (folder / "list_attr_celeba.txt").unlink()
    leaf(folder / "all_data" / "all_data.json", _leaf_users())
    assert _load(folder).groups is None


def _leaf_users(split: slice = slice(None)) -> dict[str, tuple[list[object], list[object]]]:
    users = {}
    for person in PEOPLE:
        places = [place for place, own in enumerate(OWNERS) if own == person][split]
        users[person] = ([_file(place) for place in places], [int(_smiles(place)) for place in places])
    return users


def test_leafs_lists(folder: Path) -> None:
    whole = _load(folder)
    leaf(folder / "data" / "all_data" / "all_data.json", _leaf_users())
    same = _load(folder)
    assert torch.equal(same.y, whole.y)
    assert same.names == whole.names
    leaf(folder / "data" / "train" / "all_data_niid_train_9.json", _leaf_users(slice(2, None)))
    leaf(folder / "data" / "test" / "all_data_niid_test_9.json", _leaf_users(slice(2)))
    (folder / "img_align_celeba").rename(folder / "raw")
    (folder / "data" / "raw").mkdir()
    (folder / "raw").rename(folder / "data" / "raw" / "img_align_celeba")
    fed = _load(folder)
    assert fed.counts("test").tolist() == [2, 2, 2]
    assert sorted(np.concatenate([fed.client(0, s)[1] for s in ("train", "val")]).tolist()) == [0] * 5 + [1] * 3
    assert _places(fed, 1) == list(range(10, 16))


def test_only_the_images_of_the_clients_taken_are_decoded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decode, seen = store_module._decode, []

    def count(path: Path, size: int) -> bytes | str:
        seen.append(path.name)
        return decode(path, size)

    monkeypatch.setattr(store_module, "_decode", count)
    fed = _load(folder, clients=2)
    assert sorted(seen) == [_file(i) for i in range(16)]
    assert len(fed.x) == 16
    again = _load(folder, clients=2, seed=4)
    assert len(seen) == 16
    assert again.fingerprint == fed.fingerprint


def test_people_are_divided(folder: Path) -> None:
    fed = _load(folder, users="10/20", min_samples=3)
    assert (len(fed.train_ids), len(fed.novel_ids)) == (1, 1)
    assert fed.notes[-1] == "data.users=10/20: 1 people train, 1 are novel (test), 2 are left out"
    for client, name in enumerate(fed.names):
        assert _places(fed, client) == [place for place, own in enumerate(OWNERS) if own == name]
    assert fed.groups is not None
    assert len(fed.groups) == 2


def _many(folder: Path, people: int = 22) -> list[str]:
    """More people with five images each, so that one lost image is not many."""
    files = []
    identities = (folder / "identity_CelebA.txt").read_text()
    attributes = (folder / "list_attr_celeba.txt").read_text()
    for place in range(len(OWNERS), len(OWNERS) + 5 * people):
        picture(folder / "img_align_celeba" / _file(place), place)
        identities += f"{_file(place)} {9000 + (place - len(OWNERS)) // 5}\n"
        attributes += f"\n{_file(place)} " + " ".join(["-1"] * len(ATTRIBUTES))
        files.append(_file(place))
    (folder / "identity_CelebA.txt").write_text(identities)
    (folder / "list_attr_celeba.txt").write_text(attributes)
    return files


def test_a_lost_image_is_counted_and_so_is_who_has_too_few_then(folder: Path) -> None:
    files = _many(folder)
    (folder / "img_align_celeba" / files[5]).write_text("no image")
    for _ in range(2):
        fed = _load(folder)
        assert len(fed) == 24
        assert "9001" not in fed.names
        assert fed.total == 23 + 5 * 21
        assert len(fed.notes) == 3
        assert fed.notes[1].startswith(f"1 of 133 images were left out: missing or damaged, first {files[5]} (does not")
        assert fed.notes[2] == "1 of 25 people left out: fewer than 5 images, or none to train on"
    fed = _load(folder, min_samples=4)
    assert fed.names.index("9001") == 4
    assert fed.counts("train")[4] + fed.counts("val")[4] + fed.counts("test")[4] == 4
    assert _places(fed, 0) == list(range(10))


def test_missing_images_are_an_error(folder: Path) -> None:
    path = folder / "img_align_celeba" / _file(2)
    path.unlink()
    with pytest.raises(RequestError, match=f"{path}: missing; 1 of the first 3 of 23 images are missing or damaged"):
        _load(folder)


@pytest.mark.parametrize(
    ("file", "line", "text", "words"),
    [
        ("identity_CelebA.txt", 3, "000003.jpg", " line 3: needs the name of an image file and the number of a person"),
        ("identity_CelebA.txt", 2, "../a.jpg 3", " line 2: needs the name of an image file"),
        ("identity_CelebA.txt", 1, "a.jpg x", " line 1: needs the name of an image file"),
        ("identity_CelebA.txt", 1, "a.jpg 7", "list_attr_celeba.txt: no line for image 'a.jpg'"),
        ("list_attr_celeba.txt", 2, "Young Smiling", " line 2: no attribute 'Attractive' in the header"),
        ("list_attr_celeba.txt", 4, "000002.jpg 1 1", " line 4: 3 words, an image and 8 values are needed"),
        ("list_attr_celeba.txt", 3, "000001.jpg 1 1 1 1 1 1 0 1", " line 3, attribute 'Smiling': '0' is not 1 or -1"),
    ],
)
def test_wrong_lines(folder: Path, file: str, line: int, text: str, words: str) -> None:
    lines = (folder / file).read_text().splitlines()
    lines[line - 1] = text
    (folder / file).write_text("\n".join(lines))
    with pytest.raises(RequestError) as caught:
        _load(folder)
    assert words in str(caught.value)
    assert str(caught.value).startswith(str(folder))
    assert "\n" not in str(caught.value)


def test_wrong_lists(folder: Path) -> None:
    path = leaf(folder / "all_data.json", {"7": (["000001.jpg", 5], [0, 1])})
    with pytest.raises(RequestError, match=f"{path}: user '7', sample 2: needs the name of an image file"):
        _load(folder)
    leaf(path, {"7": (["000001.jpg"], [2])})
    with pytest.raises(RequestError, match=r"user '7', label 1: 2 is not one of 0\.\.1"):
        _load(folder)


@pytest.mark.parametrize("gone", ["identity_CelebA.txt", "list_attr_celeba.txt", "img_align_celeba", "."])
def test_missing_files(folder: Path, gone: str) -> None:
    (folder / gone).rename(folder.parent / "elsewhere")
    with pytest.raises(RequestError) as caught:
        _load(folder)
    start = f"data set 'celeba': no files in {folder}; place the folder img_align_celeba"
    assert str(caught.value).startswith(start)
    assert "identity_CelebA.txt and list_attr_celeba.txt" in str(caught.value)


def test_the_digest_follows_the_split(folder: Path) -> None:
    keys = {"data": "celeba", "data.root": str(folder.parent), "method": "fedavg", "model": "linear", "rounds": 1}
    digests = [Experiment(build_config({**keys, "seed": seed})).config.data_digest for seed in (0, 0, 1)]
    assert digests[0] == digests[1]
    assert digests[0] != digests[2]
