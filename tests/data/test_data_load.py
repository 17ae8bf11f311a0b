"""Loading by name: keys, defaults, held-out clients, and what must not be imported for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from panacea.data import dataset_names, find_dataset, load
from panacea.data.load import load_keys, resolve_keys
from panacea.data.paths import data_root, find_data_dir
from panacea.errors import RequestError


def test_names_and_entries() -> None:
    assert {"fl60", "fl60_text", "digits", "folder"} <= set(dataset_names())
    for name in dataset_names():
        entry = find_dataset(name)
        assert entry.name == name
        assert entry.summary
        assert entry.source
        assert all(field.description for field in entry.keys.model_fields.values())


@pytest.mark.parametrize(
    ("name", "keys", "words"),
    [
        ("fl6", {}, "unknown data set 'fl6'; did you mean 'fl60'?"),
        ("fl60", {"cleints": 6}, "unknown key 'data.cleints'; did you mean 'data.clients'? allowed: clients,"),
        ("fl60", {"split": "iid"}, "data.split=iid: must be 'natural'"),
        ("fl60", {"clients": 0}, "data.clients=0: must be greater than or equal to 1"),
        ("fl60", {"clients": "six"}, "data.clients=six: must be a valid integer"),
        ("fl60", {"clients": 1.5}, "data.clients=1.5: must be a valid integer"),
        ("fl60", {"val": 1.0}, "data.val=1.0: must be less than 1"),
        ("fl60", {"val": float("nan")}, "data.val=nan"),
        ("digits", {"split": "pratcical"}, "did you mean 'practical'?"),
        ("digits", {"alpha": float("inf"), "split": "dirichlet"}, "data.alpha=inf"),
        ("digits", {"clients": 5000, "split": "iid"}, "data.clients=5000: there are only 1797 samples"),
        ("digits", {"clients": 100, "min_samples": 30, "split": "iid"}, "data.min_samples=30: 100 clients need 3000"),
    ],
)
def test_bad_keys(name: str, keys: dict[str, object], words: str) -> None:
    with pytest.raises(RequestError) as caught:
        load(name, **keys)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bad_seed_and_novel() -> None:
    with pytest.raises(RequestError, match=r"data\.seed=-1"):
        load("fl60", seed=-1)
    with pytest.raises(RequestError, match=r"novel=1\.0"):
        load("fl60", novel=1.0)


def test_values_may_be_text_as_from_the_command_line() -> None:
    assert len(load("fl60", clients="7", val="0.25")) == 7


def test_seeds() -> None:
    keys = resolve_keys("fl60", {"seed": 5}, seed=1)
    assert keys.seed == 5  # data.seed wins over seed
    assert resolve_keys("fl60", {}, seed=1).seed == 1
    direct, by_keys = load("fl60", seed=5), load_keys("fl60", keys)
    assert bool((direct.x == by_keys.x).all())
    assert np.array_equal(direct.novel, by_keys.novel)


def test_novel_clients() -> None:
    assert load("fl60", novel=0).novel.sum() == 0
    assert load("fl60", novel=0.5).novel.sum() == 30
    assert load("fl60").novel.sum() == 12
    assert not np.array_equal(load("fl60", seed=1).novel, load("fl60", seed=2).novel)


def test_where_files_are_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PANACEA_DATA", str(tmp_path))
    assert data_root() == tmp_path
    assert data_root(tmp_path / "a") == tmp_path / "a"
    assert find_data_dir("metr_la") is None
    (tmp_path / "metr-la").mkdir()
    assert find_data_dir("metr_la") == tmp_path / "metr-la"
    (tmp_path / "metr_la").mkdir()
    assert find_data_dir("metr_la") == tmp_path / "metr_la"
    assert find_data_dir("metr-la") == tmp_path / "metr-la"
    monkeypatch.delenv("PANACEA_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_root() == tmp_path / "cache" / "panacea"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_root() == tmp_path / ".cache" / "panacea"


def test_training_data_load_without_heavy_libraries(tmp_path: Path) -> None:
    (tmp_path / "clients").mkdir()
    for name in "ab":
        (tmp_path / "clients" / f"{name}.csv").write_text("x,target\n1,0\n2,1\n3,1\n")
    np.savez(tmp_path / "clients" / "c.npz", x=np.ones((3, 1)), y=np.array([0, 1, 0]))
    (tmp_path / "edges.csv").write_text("source,target\na,b\n")
    script = (
        "import sys\n"
        "from panacea.data import load\n"
        "load('fl60'), load('digits'), load('folder', root=sys.argv[1])\n"
        "heavy = {'pandas', 'scipy', 'plotly', 'sklearn', 'matplotlib', 'pyarrow'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
