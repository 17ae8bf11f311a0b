"""A folder with one file per client."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from panacea.data import Federation, from_folder, load
from panacea.errors import RequestError
from tests.data.own import FRAMES


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

    big = pd.DataFrame(np.random.default_rng(1).normal(size=(20_000, 10)))
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
