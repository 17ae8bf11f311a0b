"""Something like NOAA's file of 48 climates, for the tests of `tpt48`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from panacea.data import Federation
from panacea.data.sources._states import NOAA_ORDER, STATES

NOAA = "climdiv-tmpcst-v1.0.0-20200106"


def noaa_line(state: int, year: int, months: np.ndarray, element: str = "02") -> str:
    return f"{state:03d}0{element}{year}" + "".join(f"{value:7.2f}" for value in months) + "   \n"


def temperatures() -> np.ndarray:
    """``[48, 125, 12]`` by code, two decimals, as NOAA has them."""
    generator = np.random.default_rng(0)
    season = -20 * np.cos(2 * np.pi * np.arange(12) / 12)
    return np.round(50 + generator.normal(size=(48, 1, 1)) * 8 + season + generator.normal(size=(48, 125, 12)) * 2, 2)


def noaa_lines() -> list[str]:
    """NOAA's layout: states in NOAA's order, then a region, and a year after the last with a month missing."""
    values = temperatures()
    rows = [
        noaa_line(number, 1895 + year, values[STATES.index(code), year])
        for number, code in enumerate(NOAA_ORDER, 1)
        for year in range(125)
    ]
    return [*rows, noaa_line(1, 2020, np.full(12, -99.90)), noaa_line(101, 1895, np.full(12, 40.0))]


def noaa_folder(root: Path) -> Path:
    """`root` with NOAA's file where the loader looks for it."""
    (root / "tpt48").mkdir()
    (root / "tpt48" / NOAA).write_text("".join(noaa_lines()))
    return root


def real_folder(folder: Path) -> Path:
    if not (folder / "tpt48" / "tpt48.npz").is_file():
        pytest.skip(f"no tpt48.npz in {folder}/tpt48; set PANACEA_DATA to a folder that has it")
    return folder


def same(a: Federation, b: Federation) -> bool:
    assert a.graph is not None
    assert b.graph is not None
    arrays = [(a.bounds, b.bounds), (a.features, b.features), (a.graph.edges, b.graph.edges), (a.novel, b.novel)]
    tensors = torch.equal(a.x, b.x) and torch.equal(a.y, b.y)
    return tensors and a.names == b.names and a.task == b.task and all(np.array_equal(*pair) for pair in arrays)
