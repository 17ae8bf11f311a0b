"""A folder with one file per client."""

from __future__ import annotations

import builtins
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from panacea.data import Federation, from_folder, load
from panacea.errors import RequestError

RNG = np.random.default_rng(1)
FRAMES = {
    name: pd.DataFrame(RNG.normal(size=(n, 3)), columns=["temp", "wind", "load"])
    for name, n in (("site1", 10), ("site2", 8), ("site10", 20))
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "grid"
    (root / "clients").mkdir(parents=True)
    for name, frame in FRAMES.items():
        frame.to_csv(root / "clients" / f"{name}.csv", index=False)
    (root / "edges.csv").write_text("source,target,weight\nsite1,site2,0.5\nsite2,site10,2\n")
    return root


def check(fed: Federation, outputs: tuple[int, ...] = (1,)) -> None:
    assert fed.names == ("site1", "site2", "site10")  # 2 before 10
    assert fed.task.kind == "regression"
    assert fed.task.outputs == outputs
    for i, frame in enumerate(FRAMES.values()):
        start, end = fed.bounds[i, 0], fed.bounds[i, 3]
        got = np.column_stack([fed.x[start:end].numpy(), fed.y[start:end].numpy()])
        want = frame.to_numpy().astype(np.float32)
        np.testing.assert_allclose(got[np.lexsort(got.T)], want[np.lexsort(want.T)], rtol=1e-6)


def test_csv(folder: Path) -> None:
    fed = from_folder(folder)
    check(fed)
    assert fed.name == "grid"
    assert fed.graph is not None
    assert fed.graph.edges.tolist() == [[0, 1], [1, 2]]
    assert fed.graph.weights.tolist() == [0.5, 2.0]
    assert bool((Federation.from_folder(folder).x == fed.x).all())


def test_parquet_and_npz_and_a_mixture_give_the_same(folder: Path) -> None:
    plain = from_folder(folder)
    FRAMES["site2"].to_parquet(folder / "clients" / "site2.parquet")
    (folder / "clients" / "site2.csv").unlink()
    check(from_folder(folder))
    values = FRAMES["site10"].to_numpy()
    np.savez(folder / "clients" / "site10.npz", x=values[:, :2], y=values[:, 2])
    (folder / "clients" / "site10.csv").unlink()
    mixed = from_folder(folder)
    check(mixed)
    np.testing.assert_allclose(mixed.x, plain.x, rtol=1e-6)


def test_npz_with_its_own_test_samples(folder: Path) -> None:
    for path in (folder / "clients").iterdir():
        values = FRAMES[path.stem].to_numpy()
        path.unlink()
        np.savez(
            path.with_suffix(".npz"), x=values[:, :2], y=values[:, 2], x_test=values[:3, :2] + 100, y_test=values[:3, 2]
        )
    fed = from_folder(folder)
    assert (fed.counts("test") == 3).all()
    assert (fed.client(2, "test")[0].numpy() > 50).all()
    np.savez(folder / "clients" / "site2.npz", x=values[:, :2], y=values[:, 2])
    with pytest.raises(RequestError, match=r"clients/site2.npz does not say which samples are for testing"):
        from_folder(folder)


def test_a_split_column(folder: Path) -> None:
    for path in (folder / "clients").iterdir():
        frame = FRAMES[path.stem]
        frame.assign(split=["test", "test"] + ["train"] * (len(frame) - 2)).to_csv(path, index=False)
    fed = from_folder(folder, target="load")
    assert (fed.counts("test") == 2).all()
    np.testing.assert_allclose(fed.client(1, "test")[1][:, 0], FRAMES["site2"]["load"][:2], rtol=1e-6)


def test_labels_words_and_blank_lines(folder: Path) -> None:
    for i, path in enumerate(sorted((folder / "clients").iterdir())):
        path.write_text('﻿a,kind\n1,"owl"\n\n2,cat\n3.5,owl\r\n' + ("4,bee\n" if i else ""))
    fed = from_folder(folder)
    assert fed.task.class_names == ("bee", "cat", "owl")
    assert fed.task.inputs == (1,)
    for path in (folder / "clients").iterdir():
        path.write_text("a,b,target\n0.5,1,0\n0.25,2,1\n0.1,3,2\n")
    fed = from_folder(folder)
    assert fed.task.kind == "classification"
    assert fed.task.classes == 3
    assert from_folder(folder, target="b").task.classes == 4
    for path in (folder / "clients").iterdir():
        path.write_text("a,b,target\n0.5,1,0.0\n0.25,2,1.0\n")
    assert from_folder(folder).task.kind == "regression"
    assert from_folder(folder, task="classification").task.kind == "classification"


def test_task_file(folder: Path) -> None:
    (folder / "task.yaml").write_text("kind: forecasting\ntarget: [wind, load]\nscale: MWh\ntest: 0.5\nval: 0\n")
    fed = from_folder(folder)
    assert fed.task.kind == "forecasting"
    assert fed.task.outputs == (2,)
    assert fed.task.scale == "MWh"
    assert (fed.counts("test") == [5, 4, 10]).all()
    assert (fed.counts("val") == 0).all()
    np.testing.assert_allclose(fed.x[:10, 0], FRAMES["site1"]["temp"], rtol=1e-6)  # in order
    asked = from_folder(folder, target="temp", task="regression", test=0.1, val=0.2, chronological=False)
    assert asked.task.kind == "regression"
    assert (asked.counts("test") == [1, 1, 2]).all()
    assert (asked.counts("val") == [2, 1, 4]).all()
    (folder / "task.yaml").write_text("")
    assert from_folder(folder).task.kind == "regression"


def test_as_a_data_set(folder: Path) -> None:
    fed = load("folder", root=folder)
    check(fed)
    assert fed.novel.sum() == 0
    assert load("folder", root=str(folder), novel=0.4).novel.sum() == 1
    two = load("folder", root=folder, clients=2)
    assert two.names == ("site1", "site2")
    assert two.graph is not None
    assert two.graph.edges.tolist() == [[0, 1]]
    (folder / "task.yaml").write_text("val: 0.5\n")
    assert load("folder", root=folder).counts("val")[0] == 4
    assert load("folder", root=folder, val=0.25).counts("val")[0] == 2
    with pytest.raises(RequestError, match=r"data\.root is missing: data=folder needs data\.root=PATH"):
        load("folder")
    with pytest.raises(RequestError, match=r"clients=4: .* has 3 clients"):
        load("folder", root=folder, clients=4)


def test_edges_by_position_loops_and_none(folder: Path) -> None:
    (folder / "edges.csv").write_text("source,target\n0,1\n2,2\n\n0,2\n")
    fed = from_folder(folder)
    assert fed.graph is not None
    assert fed.graph.edges.tolist() == [[0, 1], [0, 2]]
    assert fed.notes == ("edges.csv: 1 self loop(s) dropped",)
    (folder / "edges.csv").unlink()
    assert from_folder(folder).graph is None
    for number, path in zip((7, 1, 30), sorted((folder / "clients").iterdir()), strict=True):
        path.rename(path.with_name(f"{number}.csv"))
    (folder / "edges.csv").write_text("Source, Target\n1,7\n30,1\n")  # names win over positions
    assert from_folder(folder).graph.edges.tolist() == [[0, 1], [0, 2]]


def test_other_files_are_ignored_with_a_note(folder: Path) -> None:
    (folder / "clients" / "README.txt").write_text("hello")
    (folder / "clients" / ".hidden.csv").write_text("junk")
    assert from_folder(folder).notes == ("clients: README.txt ignored, not a .csv, .parquet or .npz file",)


def text(name: str, content: str) -> Callable[[Path], None]:
    return lambda root: (root / name).write_text(content) and None


def arrays(**content: Any) -> Callable[[Path], None]:
    def write(root: Path) -> None:
        (root / "clients" / "site2.csv").unlink()
        np.savez(root / "clients" / "site2.npz", **content)

    return write


def foreign_pickle(root: Path) -> None:
    (root / "clients" / "site2.csv").unlink()
    (root / "clients" / "site2.npz").write_bytes(pickle.dumps([1, 2]))


def nulls(root: Path) -> None:
    (root / "clients" / "site2.csv").unlink()
    FRAMES["site2"].assign(wind=[1, None, *range(6)]).to_parquet(root / "clients" / "site2.parquet")


HEAD = "temp,wind,load\n1,2,3.5\n"
SITE = "clients/site2.csv"
BAD: list[tuple[str, Callable[[Path], None], str]] = [
    ("word", text(SITE, HEAD + "4,abc,6\n"), "clients/site2.csv line 3, column 'wind': 'abc' is not a number"),
    ("word after a blank line", text(SITE, HEAD + "\n4,abc,6\n"), "clients/site2.csv line 4, column 'wind'"),
    ("target word", text(SITE, HEAD + "4,5,abc\n"), "clients/site2.csv line 3, column 'load': 'abc' is not a number"),
    ("empty cell", text(SITE, HEAD + "4,,6\n"), "clients/site2.csv line 3, column 'wind': the value is missing"),
    ("empty target", text(SITE, HEAD + "4,5,\n"), "clients/site2.csv line 3, column 'load': the target is missing"),
    ("nan", text(SITE, HEAD + "4,nan,6\n"), "clients/site2.csv line 3, column 'wind': nan is not a finite number"),
    ("infinity", text(SITE, HEAD + "4,5,-inf\n"), "clients/site2.csv line 3, column 'load': -inf is not a finite"),
    ("short row", text(SITE, HEAD + "4,5\n"), "clients/site2.csv line 3: 2 values, the header has 3"),
    ("long row", text(SITE, "temp,wind,load\n1,2,3,4\n"), "clients/site2.csv line 2: 4 values, the header has 3"),
    ("other columns", text(SITE, "temp,load\n1,2.5\n"), "clients/site2.csv has no column 'wind', which clients/site1"),
    ("more columns", text(SITE, "temp,wind,x,load\n1,2,3,4.5\n"), "clients/site2.csv has a column 'x', which"),
    ("no header", text("clients/site1.csv", "1,2,3\n4,5,6\n"), "clients/site1.csv line 1: the header must name"),
    ("twice", text(SITE, "temp,wind,wind\n1,2,3\n"), "clients/site2.csv line 1: two columns are called 'wind'"),
    ("empty file", text(SITE, ""), "clients/site2.csv is empty"),
    ("header only", text(SITE, "temp,wind,load\n"), "clients/site2.csv has no rows"),
    ("semicolons", text("clients/site1.csv", "a;b\n1;2\n"), "no column beside the target 'a;b' (comma-separated?)"),
    (
        "binary",
        lambda r: (r / SITE).write_bytes(b"\xff\xfe\x00") and None,
        "clients/site2.csv: not a text file in UTF-8",
    ),
    ("npz width", arrays(x=np.ones((2, 5)), y=np.ones(2)), "clients/site2.npz has samples of shape (5,) in x"),
    (
        "npz nan",
        arrays(x=np.ones((2, 2)) * np.nan, y=np.ones(2)),
        "clients/site2.npz, row 0 (from 0), column 0 of x: nan",
    ),
    ("npz length", arrays(x=np.ones((3, 2)), y=np.ones(2)), "clients/site2.npz has 3 rows in x but 2 in y"),
    ("npz keys", arrays(x=np.ones((2, 2)), z=np.ones(2)), "clients/site2.npz holds x, z; it needs x and y"),
    (
        "npz objects",
        arrays(x=np.array([{}], object), y=np.ones(1)),
        "clients/site2.npz: not an npz file of plain arrays",
    ),
    ("a pickle", foreign_pickle, "clients/site2.npz: not an npz file of plain arrays"),
    ("parquet null", nulls, "clients/site2.parquet, row 1 (from 0), column 'wind': nan is not a finite number"),
    ("parquet junk", text("clients/site3.parquet", "junk"), "clients/site3.parquet: not a readable Parquet file"),
    ("same name", text("clients/site2.npz", "junk"), "two files for client 'site2'"),
    (
        "unknown client",
        text("edges.csv", "source,target\nsite1,site22\n"),
        "edges.csv line 2 names an unknown client 'site22'; did you mean 'site2'",
    ),
    (
        "unknown position",
        text("edges.csv", "source,target\n0,1\n1,3\n"),
        "edges.csv line 3 names an unknown client 3; positions are 0..2",
    ),
    (
        "duplicate",
        text("edges.csv", "source,target\nsite1,site2\nsite2,site1\n"),
        "edges.csv line 3: the edge between 'site2' and 'site1' is given twice (first at edges.csv line 2)",
    ),
    ("edge header", text("edges.csv", "a,b\n0,1\n"), "edges.csv line 1: the header must be source,target"),
    ("edge row", text("edges.csv", "source,target\nsite1\n"), "edges.csv line 2: 1 values, the header has 2"),
    (
        "edge weight",
        text("edges.csv", "source,target,weight\nsite1,site2,x\n"),
        "edges.csv line 2: weight 'x' is not a positive number",
    ),
    (
        "unknown key",
        text("task.yaml", "knid: regression\n"),
        "unknown key 'task.yaml: knid'; did you mean 'task.yaml: kind'?",
    ),
    (
        "bad kind",
        text("task.yaml", "kind: regresion\n"),
        "task.yaml: kind=regresion: must be 'classification', 'regression' or",
    ),
    ("bad share", text("task.yaml", "test: 2\n"), "task.yaml: test=2: must be less than 1"),
    ("no mapping", text("task.yaml", "- a\n"), "task.yaml: needs keys and values"),
    ("bad yaml", text("task.yaml", "a: [\n"), "task.yaml: not valid YAML"),
    (
        "no such target",
        text("task.yaml", "target: power\n"),
        "clients/site1.csv has no target column 'power'; its columns are",
    ),
]


@pytest.mark.parametrize(("name", "spoil", "words"), BAD, ids=[name for name, _, _ in BAD])
def test_bad_folders_get_one_line_that_says_where(folder: Path, name: str, spoil: Any, words: str) -> None:
    spoil(folder)
    with pytest.raises(RequestError) as caught:
        from_folder(folder)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_folders(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="nowhere is not a folder; expected"):
        from_folder(tmp_path / "nowhere")
    with pytest.raises(RequestError, match="has no folder 'clients'"):
        from_folder(tmp_path)
    (tmp_path / "clients").mkdir()
    with pytest.raises(RequestError, match=r"has no \.csv, \.parquet or \.npz file"):
        from_folder(tmp_path)


def test_parquet_without_pyarrow(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FRAMES["site2"].to_parquet(folder / "clients" / "site4.parquet")
    whole = builtins.__import__

    def refuse(name: str, *rest: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return whole(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(RequestError, match=r"clients/site4.parquet: reading Parquet needs pyarrow; run `pip install"):
        from_folder(folder)


def test_parquet_words_and_booleans(folder: Path) -> None:
    for path in (folder / "clients").iterdir():
        path.unlink()
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [True, False, True], "kind": ["x", "y", "x"]})
    frame.to_parquet(folder / "clients" / "site1.parquet")
    frame.assign(kind=frame["kind"].astype("category")).to_parquet(folder / "clients" / "site2.parquet")
    (folder / "edges.csv").unlink()
    fed = from_folder(folder)
    assert fed.task.class_names == ("x", "y")
    assert fed.task.inputs == (2,)


def test_large_csv_is_read_quickly(folder: Path) -> None:
    import time

    big = pd.DataFrame(RNG.normal(size=(20_000, 10)))
    for path in (folder / "clients").iterdir():
        path.unlink()
    big.to_csv(folder / "clients" / "site1.csv", index=False)
    (folder / "edges.csv").unlink()
    with pytest.raises(RequestError, match="holds numbers only"):  # pandas names columns 0, 1, ...
        from_folder(folder)
    big.columns = [f"c{i}" for i in range(10)]
    big.to_csv(folder / "clients" / "site1.csv", index=False)
    start = time.perf_counter()
    assert len(from_folder(folder).x) == 20_000
    assert time.perf_counter() - start < 2
