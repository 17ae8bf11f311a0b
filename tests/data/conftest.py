from __future__ import annotations

from pathlib import Path

import pytest

from tests.data.own import FRAMES


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
def _prepared_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees a prepared copy of another."""
    monkeypatch.setenv("PANACEA_CACHE", str(tmp_path / "cache"))
