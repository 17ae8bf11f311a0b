r"""Molene: hourly temperatures of 32 weather stations of Brittany in January 2014, linked where they are near.

    x = (temperature, hour / 24) of 10 hours,  y = temperatures of the next 5 hours
    744 hours, 730 windows per client, in the order of time
    A_ij = the published weight of two stations (193 edges)

Three files: the temperatures in kelvin, one column a station; the adjacency matrix in the order of those columns; the
table of stations. Names are the stations', features their latitude and longitude, each scaled to [0, 1]. An empty cell
is a missing value (there is none in the published file).

Source: the set of Meteo-France's open data that Girault (2015) introduced, as prepared for CITRUS (Einizade et al.,
NeurIPS 2024), which observes 10 hours and forecasts 1 to 5.

Differences from the paper:
    * CITRUS trains on 35 % of the windows and tests on 50 %; here 70, 10 and 20 % as for the other series.
    * CITRUS states a normalised error; here it is the mean squared error in the scale asked for.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import numpy.typing as npt
from pydantic import Field

from panacea.data.federation import Federation
from panacea.data.paths import missing_files
from panacea.data.reading import file_text
from panacea.data.registry import Card, TrainingDefaults, dataset, found_by
from panacea.data.series import Series, forecasting
from panacea.data.sources._natural import SPLITS, ScaledSeriesKeys, find_folders, unit_square
from panacea.data.sources._tables import csv_rows
from panacea.errors import RequestError
from panacea.graphs import ClientGraph
from panacea.graphs.convert import graph_of_adjacency

__all__ = ["MoleneKeys", "load_molene"]

_VALUES, _GRAPH, _STATIONS = (
    "filtered_data_Molene.csv",
    "weighted_adjacency.npy",
    "weather_stations_filtered_Molene.csv",
)
_COLUMNS = ("Numéro", "Nom", "Latitude", "Longitude")
_ANGLE = re.compile(r"(\d+)°(\d+)'(\d+)([NSEW])")
_COLDEST, _HOTTEST = 150.0, 350.0  # kelvin; a value outside is in another unit, or no temperature of air


class MoleneKeys(ScaledSeriesKeys):
    """Keys of `molene`."""

    length: int = Field(10, ge=1, description="hours of an input")
    horizon: int = Field(5, ge=1, description="hours that are forecast")


CARD = Card(
    licence="MIT (CITRUS); Meteo-France open data",
    citation="Girault, Stationary Graph Signals Using an Isometric Graph Translation, EUSIPCO 2015; Einizade et al., "
    "Continuous Product Graph Neural Networks, NeurIPS 2024",
    used_in="no table of the Panacea papers; a benchmark of graph signal processing",
    get=f"place {_VALUES}, {_GRAPH} and {_STATIONS} there or in natural-graphs/molene beside it; they are in "
    "Molene/dataset/processed/ of the project CITRUS (github.com/ArefEinizade2/CITRUS)",
    splits=SPLITS,
    features=("latitude", "longitude"),
)


@dataset(
    "molene",
    summary="hourly temperatures of 32 weather stations of Brittany: the next five hours from ten, linked by nearness",
    source="Meteo-France, January 2014, as prepared for CITRUS; features are scaled latitude and longitude",
    keys=MoleneKeys,
    # Validation error of FedAvg after 100 rounds (seed 0) with rates 0.01, 0.03, 0.1 and 0.3: 0.0111, 0.0085, 0.0067,
    # 0.0066, the last no longer falling. The MLP has 693 parameters, the GRU that `auto` picks 62,501.
    defaults=TrainingDefaults(lr=0.1, rounds=300, cohort=5, novel=0.2, model="mlp"),
    card=CARD,
    files=found_by(lambda root: _find(root)),  # noqa: PLW0108  (it is defined below)
)
def load_molene(keys: MoleneKeys) -> Federation:
    """Read the three files and cut the temperatures into windows."""
    folder = _find(keys.root)
    stations, clock, values = _temperatures(folder / _VALUES)
    table = _stations(folder / _STATIONS)
    absent = [station for station in stations if station not in table]
    if absent:
        raise RequestError(f"{folder / _STATIONS}: no station {absent[0]}, which is a column of {_VALUES}")
    names = tuple(table[station][0] for station in stations)
    graph, notes = _graph(folder / _GRAPH, len(stations))
    series = Series(
        values=values,
        names=names if len(set(names)) == len(names) else stations,
        unit="kelvin",
        clock=clock,
        graph=graph,
        features=unit_square(table[station][1] for station in stations),
        notes=notes,
    )
    return forecasting("molene", series, keys, keys.scale)


def _find(root: Path | None) -> Path:
    """The folder that has all three files."""
    places = [place for folder in find_folders("molene", root) for place in (folder, folder / "molene")]
    for folder in places:
        present = [(folder / name).is_file() for name in (_VALUES, _GRAPH, _STATIONS)]
        if all(present):
            return folder
        if any(present):
            lost = (_VALUES, _GRAPH, _STATIONS)[present.index(False)]
            raise RequestError(f"data set 'molene': no {lost} in {folder}; {CARD.get}")
    raise missing_files("molene", root, CARD.get)


def _rows(path: Path) -> list[list[str]]:
    return csv_rows(path, file_text(path).splitlines())


def _temperatures(path: Path) -> tuple[tuple[str, ...], npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Station numbers, the time of day of each row, and ``[stations, hours]`` in kelvin."""
    header, *rows = _rows(path) or [[]]
    stations = tuple(header[1:])
    if len(header) < 2 or header[0] != "date" or len(set(stations)) != len(stations) or not rows:
        raise RequestError(f"{path} line 1: needs 'date' and different station numbers, and an hour per line below")
    values = np.full((len(rows), len(stations)), np.nan, np.float32)
    start = _date(rows[0], path, 2)
    for i, row in enumerate(rows):
        place = f"{path} line {i + 2}"
        if len(row) != len(header):
            raise RequestError(f"{place}: {len(row)} cells, not {len(header)}")
        if _date(row, path, i + 2) != start + timedelta(hours=i):
            raise RequestError(f"{place}: {row[0]} is not one hour after the line before")
        for column, cell in enumerate(row[1:]):
            if cell:
                values[i, column] = _kelvin(cell, f"{place}, station {stations[column]}")
    hours = (start.hour + np.arange(len(rows))) % 24
    return stations, (hours / 24 + start.minute / 1440).astype(np.float32), np.ascontiguousarray(values.T)


def _kelvin(cell: str, place: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        raise RequestError(f"{place}: '{cell}' is not a number") from None
    if not _COLDEST <= value <= _HOTTEST:
        raise RequestError(f"{place}: {cell} is not a temperature in kelvin ({_COLDEST:g} to {_HOTTEST:g})")
    return value


def _date(row: list[str], path: Path, line: int) -> datetime:
    try:
        return datetime.strptime(row[0] if row else "", "%Y-%m-%d %H:%M:%S")
    except ValueError:
        given = row[0] if row else ""
        raise RequestError(f"{path} line {line}: '{given}' is not a date like 2014-01-01 00:00:00") from None


def _stations(path: Path) -> dict[str, tuple[str, tuple[float, float]]]:
    """Name, latitude and longitude of each station, by its number."""
    header, *rows = _rows(path) or [[]]
    absent = [column for column in _COLUMNS if column not in header]
    if absent:
        raise RequestError(f"{path} line 1: no column '{absent[0]}'; it needs {', '.join(_COLUMNS)}")
    places = [header.index(column) for column in _COLUMNS]
    table: dict[str, tuple[str, tuple[float, float]]] = {}
    for line, row in enumerate(rows, 2):
        if len(row) != len(header):
            raise RequestError(f"{path} line {line}: {len(row)} cells, not {len(header)}")
        number, name, latitude, longitude = (row[place] for place in places)
        if number in table:
            raise RequestError(f"{path} line {line}: station {number} a second time")
        table[number] = name, (_degrees(latitude, path, line), _degrees(longitude, path, line))
    return table


def _degrees(text: str, path: Path, line: int) -> float:
    """``48°51'18N`` in degrees, south and west negative."""
    match = _ANGLE.fullmatch(text)
    if not match:
        raise RequestError(f"{path} line {line}: '{text}' is not an angle like 48°51'18N")
    degrees, minutes, seconds = (int(part) for part in match.groups()[:3])
    if minutes >= 60 or seconds >= 60 or degrees >= (90 if match[4] in "NS" else 180):
        raise RequestError(f"{path} line {line}: '{text}' is no place on earth")
    return (degrees + minutes / 60 + seconds / 3600) * (-1 if match[4] in "SW" else 1)


def _graph(path: Path, stations: int) -> tuple[ClientGraph, tuple[str, ...]]:
    try:
        matrix = np.load(path, allow_pickle=False)
    except Exception as error:  # a damaged header may fail in any way
        raise RequestError(f"{path}: not a npy file of one plain array ({error})".splitlines()[0]) from None
    if not isinstance(matrix, np.ndarray):
        raise RequestError(f"{path}: an npz file, not a npy file of one array")
    return graph_of_adjacency(matrix, stations, str(path))
