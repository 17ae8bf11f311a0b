"""Digits: the real images, divided."""

from __future__ import annotations

import gzip
import importlib.util
import shutil
from pathlib import Path

import numpy as np
import pytest

from panacea.data import find_dataset, load
from panacea.data.sources.digits import read_digits
from panacea.errors import RequestError


def test_the_real_images() -> None:
    x, y = read_digits()
    assert x.shape == (1797, 1, 8, 8)
    assert x.dtype == np.float32
    assert x.min() == 0
    assert x.max() == 1
    assert np.bincount(y).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert (x[0, 0, 0] * 16).tolist() == [0, 0, 5, 13, 9, 1, 0, 0]
    # they are digits: the nearest mean image of a class is right nine times in ten
    flat = x.reshape(-1, 64)
    means = np.stack([flat[y == label].mean(axis=0) for label in range(10)])
    nearest = ((flat[:, None] - means) ** 2).sum(axis=-1).argmin(axis=1)
    assert (nearest == y).mean() > 0.88


def test_practical_groups_are_cliques() -> None:
    fed = load("digits")
    assert len(fed) == 20
    assert fed.groups is not None
    assert fed.graph is not None
    assert fed.novel.sum() == 0
    assert fed.task.inputs == (1, 8, 8)
    dense = fed.graph.dense()
    same = fed.groups[:, None] == fed.groups[None, :]
    assert np.array_equal(dense > 0, same & ~np.eye(20, dtype=bool))
    assert "1797" in fed.notes[0]
    assert (fed.counts("test") >= 1).all()


@pytest.mark.parametrize("split", ["iid", "pathological", "dirichlet"])
def test_other_splits_use_every_image_and_know_no_graph(split: str) -> None:
    fed = load("digits", split=split, clients=12)
    assert len(fed.x) == 1797
    assert fed.graph is None
    assert (fed.bounds[:, 3] - fed.bounds[:, 0]).min() >= 10


def test_two_domains_are_groups_of_clients() -> None:
    plain, two = load("digits", split="iid", seed=3), load("digits", split="iid", seed=3, domains=2)
    assert plain.groups is None
    assert two.groups is not None
    assert sorted(two.groups.tolist()) == [0] * 10 + [1] * 10
    assert two.graph is not None
    assert np.array_equal(two.graph.dense() > 0, (two.groups[:, None] == two.groups) & ~np.eye(20, dtype=bool))
    assert "10 of 20 clients have inverted images turned by 90 degrees" in two.notes[-1]
    assert np.array_equal(plain.y, two.y)
    for client, (start, end) in enumerate(plain.bounds[:, [0, 3]]):
        before, after = plain.x[start:end].numpy(), two.x[start:end].numpy()
        if two.groups[client]:  # turned back and inverted again
            assert np.array_equal(before, 1 - np.rot90(after, k=-1, axes=(2, 3)))
            assert after[0, 0, 7, 0] == 1 - before[0, 0, 0, 0]  # the upper left corner goes to the lower left
        else:
            assert np.array_equal(before, after)
    assert not np.array_equal(two.groups, load("digits", split="iid", seed=4, domains=2).groups)


def test_domains_and_labels_together() -> None:
    """Divided by label as well: links join clients that are alike in both."""
    labels, both = load("digits"), load("digits", domains=2)
    assert labels.groups is not None
    assert both.groups is not None
    assert both.graph is not None
    alike = (labels.groups[:, None] == labels.groups) & (both.groups[:, None] == both.groups)
    assert np.array_equal(both.graph.dense() > 0, alike & ~np.eye(20, dtype=bool))


@pytest.mark.parametrize("given", [0, 3])
def test_a_wrong_number_of_domains(given: int) -> None:
    with pytest.raises(RequestError, match=f"data.domains={given}: must be"):
        load("digits", domains=given)


def test_keys_reach_the_scheme() -> None:
    def classes(**keys: object) -> int:
        fed = load("digits", **keys)
        return max(len(np.unique(fed.y[a:b].numpy())) for a, b in fed.bounds[:, [0, 3]])

    assert classes(split="pathological", classes_per_client=1) <= 2
    assert classes(split="pathological", classes_per_client=6) > 4
    assert classes(dominant=1.0, groups=10, min_samples=1) == 1
    few, many = (load("digits", split="dirichlet", alpha=a, min_samples=1) for a in (0.05, 100.0))
    assert np.std(few.counts("train")) > 3 * np.std(many.counts("train"))


def test_a_placed_file_is_used(tmp_path: Path) -> None:
    (tmp_path / "digits").mkdir()
    row = ",".join(["8"] * 64)
    with gzip.open(tmp_path / "digits" / "digits.csv.gz", "wt") as file:
        file.write("".join(f"{row},{label}\n" for label in range(10) for _ in range(4)))
    fed = load("digits", root=tmp_path, split="iid", clients=2)
    assert len(fed.x) == 40
    assert bool((fed.x == 0.5).all())


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "digits" / "digits.csv.gz"
    path.parent.mkdir()
    for content in (b"no gzip", gzip.compress(b"1,2,3\n"), gzip.compress(b"a,b\n"), gzip.compress(b"99,")):
        path.write_bytes(content)
        with pytest.raises(RequestError) as caught:
            load("digits", root=tmp_path)
        assert str(path) in str(caught.value)


def test_without_scikit_learn_one_line_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = importlib.util.find_spec("sklearn")
    assert source is not None
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PANACEA_DATA", str(tmp_path))
    with pytest.raises(RequestError, match="pip install scikit-learn") as caught:
        load("digits")
    assert str(tmp_path / "digits") in str(caught.value)
    with pytest.raises(RequestError, match=str(tmp_path / "other" / "digits")):
        load("digits", root=tmp_path / "other")
    (tmp_path / "digits").mkdir()
    shutil.copy(Path(source.submodule_search_locations[0]) / "datasets/data/digits.csv.gz", tmp_path / "digits")
    assert len(load("digits", split="iid").x) == 1797


def test_defaults() -> None:
    assert find_dataset("digits").defaults.novel == 0
    assert find_dataset("digits").defaults.rounds == 200
    assert find_dataset("fl60").defaults.lr == 0.1
    assert find_dataset("fl60").defaults.novel == 0.2
