"""A folder with one file per client: every way to be told what is wrong."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from panacea.data import from_folder
from panacea.errors import RequestError
from tests.data.own import FRAMES


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
