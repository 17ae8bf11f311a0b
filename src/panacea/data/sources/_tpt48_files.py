"""The temperature record of the 48 states, from `tpt48.npz` or from NOAA's own file."""

from __future__ import annotations

import gzip
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from panacea.data.paths import find_data_dir, missing_files
from panacea.data.sources._states import BORDERS, NOAA_ORDER, STATES
from panacea.errors import RequestError
from panacea.graphs import ClientGraph

__all__ = ["FIRST_YEAR", "YEARS", "Record", "read_record"]

FIRST_YEAR, YEARS = 1895, 125
_NOAA = "climdiv-tmpcst-v1.0.0-"
_MISSING = -90.0  # NOAA writes -99.90; no monthly mean of a state has been near it
_GET = (
    f"place NOAA's statewide average temperatures ({_NOAA}YYYYMMDD, published by NOAA NCEI as nClimDiv, plain or .gz) "
    "or tpt48.npz in that folder"
)


@dataclass(frozen=True)
class Record:
    """Monthly mean temperatures and borders.

    Attributes:
        fahrenheit: ``[48, 125, 12]`` float32: states in the order of their codes, years from 1895, months.
        graph: which states have a common border.
    """

    fahrenheit: npt.NDArray[np.float32]
    graph: ClientGraph


def read_record(root: Path | None = None) -> Record:
    """Read what is in ``<root>/tpt48``: `tpt48.npz`, else NOAA's file with `usa_map.txt` or the built-in borders."""
    folder = find_data_dir("tpt48", root)
    if folder is None:
        raise missing_files("tpt48", root, _GET)
    if (folder / "tpt48.npz").is_file():
        return _read_npz(folder / "tpt48.npz")
    raw = sorted(path for path in folder.glob(f"{_NOAA}*") if path.is_file())
    if not raw:
        raise missing_files("tpt48", root, _GET)
    edges = folder / "usa_map.txt"
    pairs = _read_pairs(edges) if edges.is_file() else BORDERS
    return Record(_read_noaa(raw[-1]), _graph(pairs, edges.name))


def _read_npz(path: Path) -> Record:
    needed = ("states", "temp_f_1895_2019", "edge_index")
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in needed if name in file.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error, AttributeError, TypeError) as error:
        raise RequestError(f"{path}: not an npz file of plain arrays ({error})".splitlines()[0]) from None
    absent = [name for name in needed if name not in arrays]
    if absent:
        raise RequestError(f"{path}: no array '{absent[0]}'; it needs {', '.join(needed)}")
    states, values, edges = (arrays[name] for name in needed)
    if [str(state) for state in states.ravel()] != list(STATES):
        raise RequestError(f"{path}: 'states' must be the codes of the 48 contiguous states in alphabetical order")
    if values.shape != (len(STATES), YEARS * 12) or not np.issubdtype(values.dtype, np.floating):
        raise RequestError(
            f"{path}: 'temp_f_1895_2019' is {values.dtype} {list(values.shape)}, not float [48, 1500] "
            f"({YEARS} years of 12 months)"
        )
    if edges.ndim != 2 or edges.shape[0] != 2:
        raise RequestError(f"{path}: 'edge_index' is {list(edges.shape)}, not [2, edges]")
    graph, _ = ClientGraph.from_edges(len(STATES), edges.T, source=f"{path.name} edge_index")
    return Record(_complete(values.astype(np.float32).reshape(len(STATES), YEARS, 12), path), graph)


def _read_noaa(path: Path) -> npt.NDArray[np.float32]:
    """Fixed width: 3 digits state, 1 division, 2 element (02), 4 year, then 12 values of 7 characters in Fahrenheit."""
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("ascii")
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise RequestError(f"{path}: not a text file, plain or gzipped ({error})") from None
    values = np.full((len(STATES), YEARS, 12), np.nan, np.float32)
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            state, division, element, year = int(line[:3]), int(line[3]), line[4:6], int(line[6:10])
            months = [float(line[10 + 7 * month : 17 + 7 * month]) for month in range(12)]
        except (ValueError, IndexError):
            raise RequestError(
                f"{path} line {number}: needs 10 digits (state, division, element, year) and 12 values of 7 characters"
            ) from None
        if element != "02":
            raise RequestError(f"{path} line {number}: element {element}; 02 is the average temperature (tmpcst)")
        if 1 <= state <= len(NOAA_ORDER) and division == 0 and 0 <= year - FIRST_YEAR < YEARS:  # others are regions
            values[STATES.index(NOAA_ORDER[state - 1]), year - FIRST_YEAR] = months
    return _complete(values, path)


def _complete(values: npt.NDArray[np.float32], path: Path) -> npt.NDArray[np.float32]:
    missing = ~(np.isfinite(values) & (values > _MISSING))
    if missing.any():
        state, year, month = (int(place[0]) for place in np.nonzero(missing))
        raise RequestError(
            f"{path}: no value for {STATES[state]} in month {month + 1} of {FIRST_YEAR + year}; "
            f"all of {FIRST_YEAR}-{FIRST_YEAR + YEARS - 1} is needed for the {len(STATES)} states"
        )
    return values


def _read_pairs(path: Path) -> tuple[tuple[str, str], ...]:
    """Two codes a line; lines with DC, which has no temperatures, are left out."""
    pairs = []
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"{path}: not a text file ({error})") from None
    for number, line in enumerate(lines, 1):
        codes = line.split()
        if not codes or "DC" in codes:
            continue
        wrong = [code for code in codes if code not in STATES]
        if len(codes) != 2 or wrong:
            raise RequestError(f"{path} line {number}: '{line.strip()}' is not a pair of codes of contiguous states")
        pairs.append((codes[0], codes[1]))
    return tuple(pairs)


def _graph(pairs: tuple[tuple[str, str], ...], source: str) -> ClientGraph:
    return ClientGraph.from_edges(len(STATES), [(STATES.index(a), STATES.index(b)) for a, b in pairs], source=source)[0]
