from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from panacea.data.sources import traffic
from tests.data.own import FRAMES
from tests.data.roads import ROWS, write_adjacency


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one CSV file per client and two edges."""
    root = tmp_path / "grid"
    (root / "clients").mkdir(parents=True)
    for name, frame in FRAMES.items():
        frame.to_csv(root / "clients" / f"{name}.csv", index=False)
    (root / "edges.csv").write_text("source,target,weight\nsite1,site2,0.5\nsite2,site10,2\n")
    return root


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Prepared copies of a test go into its own folder."""
    monkeypatch.setenv("PANACEA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def roads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for METR-LA with a graph; the published network is as small as the tests' files."""
    small = dataclasses.replace(traffic.METR_LA, sensors=5, rows=ROWS, links=6)
    monkeypatch.setattr(traffic, "METR_LA", small)
    (tmp_path / "metr-la").mkdir()
    write_adjacency(tmp_path / "metr-la" / "adj_mx.pkl")
    return tmp_path / "metr-la"
