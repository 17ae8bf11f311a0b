"""The temperature record of the 48 states: from `tpt48.npz`, from NOAA's own file, or from GRDA's pickle."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from panacea.data.paths import find_data_dir, missing_files
from panacea.data.pickles import read_pickle
from panacea.data.reading import file_text, npz_arrays
from panacea.data.sources._states import BORDERS, NOAA_ORDER, STATES
from panacea.errors import RequestError
from panacea.graphs import ClientGraph

__all__ = ["GET", "PICKLED", "RECORD", "Record", "Years", "read_record"]

Years = tuple[int, int]
"""First and last year, both included."""

RECORD: Years = (1895, 2019)
PICKLED: Years = (2008, 2019)
_NOAA = "climdiv-tmpcst-v1.0.0-"
_PICKLE = "month_temp_data.pkl"
_HOTTEST = 150.0  # Fahrenheit; nothing near it has been measured anywhere
_MISSING = -90.0  # NOAA writes -99.90; no monthly mean of a state has been near it
GET = (
    f"place NOAA's statewide average temperatures ({_NOAA}YYYYMMDD, published by NOAA NCEI as nClimDiv, plain or .gz) "
    f"or tpt48.npz in that folder; {_PICKLE}, published by the authors of GRDA and VDI (Wang-ML-Lab/VDI), is enough "
    f"for {PICKLED[0]}..{PICKLED[1]}"
)


@dataclass(frozen=True)
class Record:
    """Monthly mean temperatures and borders.

    Attributes:
        fahrenheit: ``[48, years, 12]`` float32: states in the order of their codes, years, months.
        graph: which states have a common border.
    """

    fahrenheit: npt.NDArray[np.float32]
    graph: ClientGraph


def read_record(root: Path | None = None, years: Years = RECORD) -> Record:
    """Read what is in ``<root>/tpt48``, the first of `tpt48.npz`, NOAA's newest file and the pickle.

    The npz has the borders; beside the others they are those of `usa_map.txt`, or built in where there is none.

    Args:
        root: folder with data files.
        years: within 1895..2019; the pickle has 2008..2019 only.
    """
    folder = find_data_dir("tpt48", root)
    if folder is None:
        raise missing_files("tpt48", root, GET)
    if (folder / "tpt48.npz").is_file():
        return _read_npz(folder / "tpt48.npz", years)
    raw = sorted(path for path in folder.glob(f"{_NOAA}*") if path.is_file())
    if raw:
        values = _read_noaa(raw[-1], years)
    elif (folder / _PICKLE).is_file():
        values = _read_pickle(folder / _PICKLE, years)
    else:
        raise missing_files("tpt48", root, GET)
    edges = folder / "usa_map.txt"
    pairs = _read_pairs(edges) if edges.is_file() else BORDERS
    return Record(values, _graph(pairs, edges.name))


def _read_npz(path: Path, years: Years) -> Record:
    needed = ("states", "temp_f_1895_2019", "edge_index")
    arrays = npz_arrays(path, needed)
    states, values, edges = (arrays[name] for name in needed)
    months = _count(RECORD) * 12
    if [str(state) for state in states.ravel()] != list(STATES):
        raise RequestError(f"{path}: 'states' must be the codes of the 48 contiguous states in alphabetical order")
    if values.shape != (len(STATES), months) or not np.issubdtype(values.dtype, np.floating):
        raise RequestError(
            f"{path}: 'temp_f_1895_2019' is {values.dtype} {list(values.shape)}, not float [48, {months}] "
            f"({_count(RECORD)} years of 12 months)"
        )
    if edges.ndim != 2 or edges.shape[0] != 2:
        raise RequestError(f"{path}: 'edge_index' is {list(edges.shape)}, not [2, edges]")
    graph, _ = ClientGraph.from_edges(len(STATES), edges.T, source=f"{path.name} edge_index")
    return Record(_chosen(_float32(values), RECORD, years, path), graph)


def _read_noaa(path: Path, years: Years) -> npt.NDArray[np.float32]:
    """Fixed width: 3 digits state, 1 division, 2 element (02), 4 year, then 12 values of 7 characters in Fahrenheit."""
    values = np.full((len(STATES), _count(years), 12), np.nan, np.float32)
    for number, line in enumerate(file_text(path).splitlines(), 1):
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
        if 1 <= state <= len(NOAA_ORDER) and division == 0 and years[0] <= year <= years[1]:  # others are regions
            own = values[STATES.index(NOAA_ORDER[state - 1]), year - years[0]]
            if not np.isnan(own).all():
                raise RequestError(f"{path} line {number}: state {state:03d} has {year} in a line before, too")
            own[:] = months
    return _chosen(values, years, years, path)


def _read_pickle(path: Path, years: Years) -> npt.NDArray[np.float32]:
    """The authors' file: a dict from a state's code to its 144 months."""
    if years[0] < PICKLED[0] or years[1] > PICKLED[1]:
        raise RequestError(
            f"{path}: it has {PICKLED[0]}..{PICKLED[1]}, data.years={years[0]}..{years[1]} is not within; choose other "
            f"years, or add NOAA's file ({_NOAA}YYYYMMDD)"
        )
    content, months = read_pickle(path), _count(PICKLED) * 12
    if not isinstance(content, dict):
        raise RequestError(f"{path}: holds a {type(content).__name__}, not a dict from a state's code to its months")
    wrong = sorted({str(key) for key in content} ^ set(STATES))
    if wrong:
        what = "is missing" if wrong[0] in STATES else "is not one of the 48 contiguous states"
        raise RequestError(f"{path}: state '{wrong[0]}' {what}; it needs the codes of the {len(STATES)} states")
    for code in STATES:
        own = content[code]
        if not isinstance(own, np.ndarray) or own.shape != (months,) or own.dtype.kind not in "fiu":
            found = f"{own.dtype} {list(own.shape)}" if isinstance(own, np.ndarray) else f"a {type(own).__name__}"
            raise RequestError(f"{path}: state '{code}' has {found}, not {months} numbers (12 years of 12 months)")
    return _chosen(_float32(np.stack([content[code] for code in STATES])), PICKLED, years, path)


def _float32(values: npt.NDArray[np.generic]) -> npt.NDArray[np.float32]:
    with np.errstate(over="ignore"):  # becomes infinite, and is refused as such
        return values.astype(np.float32)


def _count(years: Years) -> int:
    return years[1] - years[0] + 1


def _chosen(values: npt.NDArray[np.float32], given: Years, years: Years, path: Path) -> npt.NDArray[np.float32]:
    """``[48, years, 12]``: the years asked for of those that are given, none of which may have a gap."""
    first = years[0] - given[0]
    chosen = values.reshape(len(STATES), _count(given), 12)[:, first : first + _count(years)]
    missing = ~(np.isfinite(chosen) & (chosen > _MISSING))
    if missing.any():
        state, year, month = (int(place[0]) for place in np.nonzero(missing))
        raise RequestError(
            f"{path}: no value for {STATES[state]} in month {month + 1} of {years[0] + year}; "
            f"all of {years[0]}-{years[1]} is needed for the {len(STATES)} states"
        )
    hot = np.argwhere(chosen > _HOTTEST)
    if len(hot):
        state, year, month = (int(place) for place in hot[0])
        raise RequestError(
            f"{path}: {STATES[state]} has {chosen[state, year, month]:g} in month {month + 1} of {years[0] + year}; a "
            f"mean temperature in Fahrenheit is at most {_HOTTEST:g}"
        )
    return chosen


def _read_pairs(path: Path) -> tuple[tuple[str, str], ...]:
    """Two codes a line; lines with DC, which has no temperatures, are left out."""
    pairs = []
    for number, line in enumerate(file_text(path).splitlines(), 1):
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
