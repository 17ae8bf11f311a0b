"""Small files of a network of five sensors, in the formats in which the large ones are published."""

from __future__ import annotations

import gzip
import pickle
from collections.abc import Sequence
from pathlib import Path

import h5py
import numpy as np

from panacea.data import Federation, load

IDS = ("773869", "767541", "767542", "717447", "717446")
ROWS = 120
START = np.datetime64("2012-03-01T00:00")

# 6 directed links, 4 undirected edges; self loops as DCRNN has them
ADJACENCY = np.eye(5, dtype=np.float32)
for _a, _b, _w in ((0, 1, 0.5), (1, 0, 0.25), (1, 2, 0.75), (3, 4, 0.5), (4, 3, 0.5), (4, 0, 0.125)):
    ADJACENCY[_a, _b] = _w
EDGES = [[0, 1], [0, 4], [1, 2], [3, 4]]


def speeds(rows: int = ROWS, sensors: int = 5) -> np.ndarray:
    """``[rows, sensors]`` in eighths of a mile per hour: exact in every format."""
    return np.random.default_rng(0).integers(80, 560, (rows, sensors)) / 8


def times(rows: int = ROWS) -> np.ndarray:
    return START + 5 * np.arange(rows).astype("timedelta64[m]")


def write_h5(
    path: Path, values: np.ndarray, ids: Sequence[str] | np.ndarray = IDS, group: str = "df", unit: str = "ns"
) -> Path:
    """As pandas' fixed format has it; ids as bytes or numbers."""
    names = ids if isinstance(ids, np.ndarray) else np.array(ids, "S")
    with h5py.File(path, "w") as file:
        frame = file.create_group(group)
        frame["axis0"] = frame["block0_items"] = names
        frame["axis1"] = times(len(values)).astype(f"datetime64[{unit}]").astype(np.int64)
        frame["block0_values"] = values
    return path


def csv_text(values: np.ndarray, ids: Sequence[str] = IDS, *, timed: bool = True) -> str:
    stamps = [f"{str(time).replace('T', ' ')}:00," if timed else "" for time in times(len(values))]
    head = ("timestamp," if timed else "") + ",".join(ids)
    rows = [stamp + ",".join(repr(float(v)) for v in row) for stamp, row in zip(stamps, values, strict=True)]
    return "\n".join([head, *rows]) + "\n"


def write_csv(path: Path, values: np.ndarray, ids: Sequence[str] = IDS, *, timed: bool = True) -> Path:
    text = csv_text(values, ids, timed=timed)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def write_adjacency(path: Path, matrix: object = ADJACENCY, ids: Sequence[str] = IDS) -> Path:
    data = pickle.dumps([list(ids), {sensor: i for i, sensor in enumerate(ids)}, matrix], protocol=2)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def write_places(path: Path, ids: Sequence[str] = IDS, *, header: bool = True) -> Path:
    head = "index,sensor_id,latitude,longitude\n" if header else ""
    lines = [(f"{i}," if header else "") + f"{sensor},{34 + i / 8},{-118 + i / 4}\n" for i, sensor in enumerate(ids)]
    path.write_text(head + "".join(lines))
    return path


def load_small(folder: Path, **keys: object) -> Federation:
    """METR-LA from a folder, nobody held out."""
    return load("metr_la", root=folder.parent, novel=0, **keys)
