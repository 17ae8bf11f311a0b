"""FEMNIST: LEAF's JSON files, the npz, who is left out, who is novel, and what is wrong in a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from panacea.data import Federation, load
from panacea.data.load import load_keys, resolve_keys
from panacea.data.sources import femnist as module
from panacea.errors import RequestError
from panacea.experiment.config import build_config
from panacea.experiment.experiment import Experiment
from tests.data.pictures import leaf

User = tuple[list[object], list[object]]


def _image(ink: int) -> list[float]:
    """One pixel of an amount of ink in the second row, paper elsewhere."""
    values = [1.0] * 784
    values[28 + 3] = (255 - ink) / 255
    return values


def _user(first: int, count: int) -> User:
    return [_image(first + i) for i in range(count)], [(first + i) % 62 for i in range(count)]


def _inks(fed: Federation, client: int, split: str) -> list[int]:
    x, y = fed.client(client, split)
    inks = torch.round(255 * x[:, 0, 1, 3]).long()
    assert torch.equal(inks % 62, y)
    return sorted(inks.tolist())


def _all(fed: Federation, client: int) -> list[int]:
    return sorted(ink for split in ("train", "val", "test") for ink in _inks(fed, client, split))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three writers in two shards of train and test, a fourth with four images."""
    data = tmp_path / "femnist" / "data"
    shards = {"2": {"a": (1, 10, 3)}, "10": {"b": (21, 20, 2), "few": (61, 3, 1), "c": (81, 8, 1)}}
    for shard, users in shards.items():
        train = {name: _user(first, fit) for name, (first, fit, _) in users.items()}
        test = {name: _user(first + fit, held) for name, (first, fit, held) in users.items()}
        leaf(data / "train" / f"all_data_{shard}_niid_keep_0_train_9.json", train)
        leaf(data / "test" / f"all_data_{shard}_niid_keep_0_test_9.json", test)
    return tmp_path


def test_leafs_own_split(root: Path) -> None:
    fed = load("femnist", root=root)
    assert repr(fed) == (
        "Federation(femnist: 3 clients (0 novel), 44 samples, classification, no graph) PARTIAL 4 of 3,550 writers"
    )
    assert fed.names == ("a", "b", "c")  # shard 2 before shard 10
    assert fed.x.dtype == torch.uint8
    assert fed.rows is None
    assert fed.counts("test").tolist() == [3, 2, 1]
    assert fed.counts("val").tolist() == [1, 2, 1]
    assert _inks(fed, 0, "test") == [11, 12, 13]
    assert sorted(_inks(fed, 1, "train") + _inks(fed, 1, "val")) == list(range(21, 41))
    assert fed.notes == ("1 of 4 writers left out: fewer than 5 images, or none to train on",)
    assert fed.task.class_names[10] == "A"
    assert fed.task.class_names[36] == "a"


def test_seeds_change_the_order_of_the_train_part_only(root: Path) -> None:
    one, same, other = (load("femnist", root=root, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(one.x, same.x)
    assert not torch.equal(one.x, other.x)
    assert [_inks(one, i, "test") for i in range(3)] == [_inks(other, i, "test") for i in range(3)]


def test_all_data_is_split_at_random(tmp_path: Path) -> None:
    leaf(tmp_path / "femnist" / "all_data" / "all_data_0.json", {"a": _user(0, 30), "b": _user(40, 10)})
    (tmp_path / "femnist" / "all_data" / "notes.json").write_text("[]")
    fed = load("femnist", root=tmp_path)
    assert fed.counts("test").tolist() == [3, 1]
    assert load("femnist", root=tmp_path, test=0.5).counts("test").tolist() == [15, 5]
    assert _inks(fed, 0, "test") != [27, 28, 29]
    assert _all(fed, 0) == list(range(30))


def test_another_test_share_pools_leafs_files(root: Path) -> None:
    fed = load("femnist", root=root, test=0.5)
    assert fed.counts("test").tolist() == [6, 11, 4]
    assert fed.total == 44


def test_fewer_writers_and_fewer_images(root: Path) -> None:
    assert load("femnist", root=root, clients=2).names == ("a", "b")
    assert load("femnist", root=root, min_samples=4).names == ("a", "b", "few", "c")
    with pytest.raises(RequestError, match=r"data\.clients=4: femnist has 3 clients here"):
        load("femnist", root=root, clients=4)
    with pytest.raises(RequestError, match=r"data\.min_samples=90: none of 4 writers has so many images"):
        load("femnist", root=root, min_samples=90)


def _people(root: Path, count: int) -> None:
    leaf(root / "femnist" / "all_data_0.json", {f"w{i}": _user(i, 6 + i % 3) for i in range(count)})


@pytest.mark.parametrize(
    ("users", "sizes", "words"),
    [
        ("60/20/20", (30, 10), "30 writers train, 10 are novel (test), 10 are left out"),
        ("10/20", (5, 10), "5 writers train, 10 are novel (test), 35 are left out"),
    ],
)
def test_writers_are_divided(tmp_path: Path, users: str, sizes: tuple[int, int], words: str) -> None:
    _people(tmp_path, 50)
    fed = load("femnist", root=tmp_path, users=users)
    assert (len(fed.train_ids), len(fed.novel_ids)) == sizes
    assert fed.notes[0] == f"data.users={users}: {words}"
    for client, name in enumerate(fed.names):  # everyone has their own images
        number = int(name[1:])
        assert _all(fed, client) == list(range(number, number + 6 + number % 3))
    other = load("femnist", root=tmp_path, users=users, seed=1)
    assert set(other.names) != set(fed.names)
    assert load("femnist", root=tmp_path, users="10/20", clients=3).novel.sum() == 1
    with pytest.raises(RequestError, match=r"data\.users=10/20: 1 writers are too few"):
        load("femnist", root=tmp_path, users="10/20", clients=1)


def test_the_data_sets_own_novel_clients_are_kept(tmp_path: Path) -> None:
    _people(tmp_path, 20)
    keys = resolve_keys("femnist", {"root": tmp_path, "users": "60/20/20"})
    own = load_keys("femnist", keys)
    assert own.novel.sum() == 4
    assert np.array_equal(load_keys("femnist", keys, 0.25).novel, own.novel)  # its own share, as a resumed run asks for
    for share in (0.0, 0.5):  # novel=0 would mean that everyone trains
        with pytest.raises(RequestError, match=rf"novel={share}: the keys of data=femnist say who is novel \(0\.25\)"):
            load_keys("femnist", keys, share)
    assert load("femnist", root=tmp_path, novel=0.5).novel.sum() == 10
    flat = {"data": "femnist", "data.users": "60/20/20", "data.root": str(tmp_path), "method": "fedavg", "rounds": 1}
    experiment = Experiment(build_config({**flat, "model": "linear"}))
    assert np.array_equal(experiment.federation.novel, own.novel)
    assert experiment.config.novel == 0.25
    assert np.array_equal(Experiment(experiment.config).federation.novel, own.novel)  # as on resume


def test_copies_across_train_and_test_are_counted(tmp_path: Path) -> None:
    data = tmp_path / "femnist"
    train, test = _user(1, 9), _user(10, 2)
    twice = ([*test[0], _image(1), _image(1)], [*test[1], 1, 1])
    leaf(data / "train" / "a.json", {"a": train, "b": _user(1, 9)})  # b has the same images as a: not a pair
    leaf(data / "test" / "a.json", {"a": twice, "b": test})
    assert load("femnist", root=tmp_path).notes == (
        "2 pair(s) of equal images of one writer lie across train and test",
    )
    assert load("femnist", root=tmp_path, val=0.5).notes == load("femnist", root=tmp_path).notes


def _npz(folder: Path, **changes: object) -> Path:
    rng = np.random.default_rng(0)
    arrays = {
        "images": rng.integers(0, 256, (30, 28, 28), np.uint8),
        "labels": np.arange(30, dtype=np.uint8),
        "writer": np.repeat([1, 0], 15).astype(np.int16),
        "writer_names": np.array(["x", "y"]),
        "split": np.tile([0, 0, 0, 0, 1], 6).astype(np.uint8),
    }
    (folder / "femnist").mkdir(exist_ok=True)
    kept = {key: value for key, value in {**arrays, **changes}.items() if value is not None}
    np.savez(folder / "femnist" / "femnist_small.npz", **kept)
    return folder


def test_the_npz(tmp_path: Path) -> None:
    fed = load("femnist", root=_npz(tmp_path))
    assert fed.names == ("x", "y")
    assert fed.counts("test").tolist() == [3, 3]
    assert sorted(fed.client(0, "test")[1].tolist()) == [19, 24, 29]
    fed = load("femnist", root=_npz(tmp_path, split=None), test=0.4)
    assert fed.counts("test").tolist() == [6, 6]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"images": np.zeros((30, 28, 28))}, "'images' is float64 [30, 28, 28], not uint8 [images, 28, 28]"),
        ({"images": np.zeros((30, 27, 28), np.uint8)}, "'images' is uint8 [30, 27, 28]"),
        ({"labels": np.full(30, 62)}, "'labels' of image 1 is 62, which is not one of 0..61"),
        ({"writer": np.repeat([0, 2], 15)}, "'writer' of image 16 is 2, which is not one of 0..1"),
        ({"split": np.repeat([0, -1], 15)}, "'split' of image 16 is -1"),
        ({"split": np.zeros(29, np.uint8)}, "'split' is [29], not [30] like the images"),
        ({"labels": None}, "no array 'labels'"),
    ],
)
def test_a_wrong_npz(tmp_path: Path, changes: dict[str, object], words: str) -> None:
    _npz(tmp_path, **changes)
    with pytest.raises(RequestError) as caught:
        load("femnist", root=tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / 'femnist' / 'femnist_small.npz'}: ")
    assert words in str(caught.value)


NAN = float("nan")


@pytest.mark.parametrize(
    ("user", "changes", "words"),
    [
        (([_image(0), [0.5] * 783], [1, 2]), {}, "user 'u', image 2: needs a list of 784 numbers"),
        (([_image(0), "ink"], [1, 2]), {}, "user 'u', image 2: needs a list of 784 numbers"),
        (([_image(0), ["ink"] * 784], [1, 2]), {}, "user 'u': an image holds something that is not a number"),
        (([_image(0), _image(300)], [1, 2]), {}, "user 'u', image 2, pixel 32: -0.176471 is not in [0, 1]"),
        (([_image(0), [1.0, NAN] * 392], [1, 2]), {}, "user 'u', image 2, pixel 2: nan is not in [0, 1]"),
        (([_image(0)], [62]), {}, "user 'u', label 1: 62 is not one of 0..61"),
        (([_image(0)] * 2, [1, -1]), {}, "user 'u', label 2: -1 is not"),
        (([_image(0)], ["a"]), {}, "user 'u', label 1: \"a\" is not"),
        (([_image(0)], [1.5]), {}, "user 'u', label 1: 1.5 is not"),
        (([_image(0)], [NAN]), {}, "user 'u', label 1: NaN is not"),
        (([_image(0)], [True]), {}, "user 'u', label 1: true is not"),
        (([_image(0)], [1, 2]), {}, "user 'u' has 1 samples in 'x' but 2 labels in 'y'"),
        (([_image(0)], [1]), {"num_samples": [7]}, "user 'u' has 1 samples, 'num_samples' says 7"),
        (([_image(0)], [1]), {"num_samples": [1, 1]}, "1 'users' but 2 'num_samples'"),
        (([_image(0)], [1]), {"users": ["u", "v"], "num_samples": None}, "user 'v' has no lists 'x' and 'y'"),
        (([_image(0)], [1]), {"user_data": []}, "'user_data' must be an object"),
        (([_image(0)], [1]), {"users": None}, "needs an object with 'users' and 'user_data'"),
        (([_image(0)], [1]), {"users": [], "num_samples": []}, "no user in any file"),
    ],
)
def test_a_wrong_json(tmp_path: Path, user: User, changes: dict[str, object], words: str) -> None:
    path = leaf(tmp_path / "femnist" / "all_data_0.json", {"u": user}, **changes)
    with pytest.raises(RequestError) as caught:
        load("femnist", root=tmp_path)
    assert str(caught.value).startswith(f"{path}: ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_do_not_fit_together(tmp_path: Path) -> None:
    folder = tmp_path / "femnist"
    path = leaf(folder / "all_data_0.json", {"u": _user(0, 6)})
    again = leaf(folder / "all_data_1.json", {"u": _user(0, 6)})
    with pytest.raises(RequestError, match=f"{again}: user 'u' is in all_data_0.json too"):
        load("femnist", root=tmp_path)
    again.unlink()
    path.write_text(path.read_text()[:-40])
    with pytest.raises(RequestError, match=rf"{path} line 1 column \d+: not JSON"):
        load("femnist", root=tmp_path)
    leaf(folder / "train" / "a.json", {"u": _user(0, 6)})
    with pytest.raises(RequestError, match=r"train/\*\.json without test/\*\.json"):
        load("femnist", root=tmp_path)


def test_missing_files(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(RequestError) as caught:
            load("femnist", root=tmp_path)
        assert str(caught.value).startswith(f"data set 'femnist': no files in {tmp_path / 'femnist'}; place the JSON")
        (tmp_path / "femnist").mkdir(exist_ok=True)


def test_the_second_load_reads_no_json(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load("femnist", root=root)
    monkeypatch.setattr(module, "_leaf", lambda _: pytest.fail("read again"))
    second = load("femnist", root=root)
    assert torch.equal(first.x, second.x)
    assert torch.equal(first.y, second.y)
    assert first.names == second.names


def test_the_real_file(real_data: Path) -> None:
    if not (real_data / "femnist").is_dir():
        pytest.skip(f"no femnist in {real_data}; set PANACEA_DATA to a folder that has it")
    fed = load("femnist", root=real_data)
    if fed.partial != "PARTIAL 105 of 3,550 writers":
        pytest.skip("not the sample of 105 writers")
    assert fed.total == 16393
    assert int(fed.counts("test").sum()) == 1685
    assert fed.counts("train").max() + fed.counts("val").max() + fed.counts("test").max() <= 190
    assert fed.notes == ("22 pair(s) of equal images of one writer lie across train and test",)
    assert int(fed.x[:, 0, 0].median()) == 0  # paper is 0
    assert int(fed.x.amax(dim=(1, 2, 3)).median()) > 200  # ink
    assert module.WRITERS == 3550
    divided = load("femnist", root=real_data, users="60/20/20")
    assert (len(divided.train_ids), len(divided.novel_ids)) == (63, 21)
