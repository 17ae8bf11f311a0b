r"""PeMSD7(M): five-minute mean speeds of 228 stations of Caltrans' district 7 (Los Angeles) on weekdays.

    228 stations, 12,672 rows = 44 weekdays of May and June 2012 from 2012-05-01; samples, splits and scale as `metr_la`
    w_ij = exp(-(d_ij / 10 km)^2 / 0.1),  d_ij the road distance;  A_ij = 1 where w_ij >= 0.5 and i != j   (832 edges)

The time of day follows from the row: every day has 288. Features are latitude and longitude in degrees.

Source: Yu et al., "Spatio-Temporal Graph Convolutional Networks", IJCAI 2018, https://arxiv.org/abs/1709.04875.

Differences from the paper:
    * STGCN cuts each day into windows of its own and splits by days (34/5/5). Here windows reach over midnight, also
      from a Friday to a Monday, as in the other traffic sets.
    * A speed of 0 would be a missing value; the published files have none.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from panacea.data.cache import Arrays, cached, unpacked
from panacea.data.federation import Federation
from panacea.data.paths import find_data_dir, missing_files
from panacea.data.reading import npz_arrays
from panacea.data.registry import Card, TrainingDefaults, dataset
from panacea.data.sources._tables import csv_lines, csv_numbers, csv_places, find_file
from panacea.data.sources._traffic import TrafficKeys, prepared, speed_federation
from panacea.data.sources._traffic_files import Floats, Speeds
from panacea.data.sources._traffic_graph import Roads, kernel_graph
from panacea.errors import RequestError

__all__ = ["STATIONS", "load_pemsd7_m"]

STATIONS, DAYS, DAY, LINKS = 228, 44, 288, 1_664
_SIGMA, _THRESHOLD = 10_000 * 0.1**0.5, 0.5  # metres
_VERSION = 1

_CARD = Card(
    licence="Caltrans PeMS, public after registration; the STGCN project's files are BSD-2",
    citation="Yu, Yin and Zhu, Spatio-Temporal Graph Convolutional Networks, IJCAI 2018; data of the California "
    "Department of Transportation (PeMS)",
    used_in="STGCN (IJCAI 2018); no table of the Panacea papers",
    get="place PeMSD7_V_228.csv and PeMSD7_W_228.csv, and if you like PeMSD7_M_Station_Info.csv, in that folder "
    "(published by the STGCN project, github.com/VeritasYin/STGCN_IJCAI-18); an npz with speed and distance_m "
    "(pemsd7_m.npz) will do",
    features=("latitude", "longitude"),
    splits="windows of 12 + 12 steps in the order of time: 70 % train, 10 % validation, 20 % test",
)


@dataset(
    "pemsd7_m",
    summary="traffic speeds of 228 stations in Los Angeles on weekdays: the next hour from the last, by road distance",
    source="STGCN (Yu et al., IJCAI 2018), Caltrans PeMS; MSE is in the per-station min-max scale of the train span "
    "unless data.scale says otherwise; features are latitude and longitude",
    keys=TrafficKeys,
    defaults=TrainingDefaults(lr=0.1, rounds=800, cohort=5, novel=0.2),
    card=_CARD,
)
def load_pemsd7_m(keys: TrafficKeys) -> Federation:
    """Read the original tables, else the npz."""
    folder = find_data_dir("pemsd7_m", keys.root)
    if folder is None:
        raise missing_files("pemsd7_m", keys.root, _CARD.get)
    speeds = find_file(folder, ("pemsd7-v-228.csv", "v-228.csv"))
    metres = find_file(folder, ("pemsd7-w-228.csv", "w-228.csv"))
    table = find_file(folder, ("pemsd7-m-station-info.csv",))
    arrays = find_file(folder, ("pemsd7m-week.npz", "pemsd7-m.npz"))
    if speeds is not None and metres is not None:
        path, files = speeds, [file for file in (speeds, metres, table) if file is not None]
        stored = cached("pemsd7_m-csv", files, _VERSION, lambda: _of_tables(speeds, metres, table))
    elif arrays is not None:
        path = arrays
        stored = cached("pemsd7_m-npz", [arrays], _VERSION, lambda: _of_npz(arrays))
    else:
        raise missing_files("pemsd7_m", keys.root, _CARD.get)
    ids = tuple(unpacked(stored["ids"]))
    source = metres.name if metres is not None and path is speeds else path.name
    places = stored["places"].tolist()
    return speed_federation(
        "pemsd7_m",
        path,
        stored,
        keys,
        partial=_partial,
        roads=Roads(ids, kernel_graph(stored["metres"].astype(np.float32), _SIGMA, _THRESHOLD), source),
        links=LINKS,
        places=dict(zip(ids, ((north, east) for north, east in places), strict=True)) if places else None,
    )


def _partial(stations: int, rows: int) -> str:
    parts = [f"{stations} of {STATIONS} stations"] if stations < STATIONS else []
    if rows < DAYS * DAY:
        parts.append(f"{rows / DAY:g} of {DAYS} days" if rows % DAY == 0 else f"{rows:,} of {DAYS * DAY:,} rows")
    return f"PARTIAL {', '.join(parts)}" if parts else ""


def _of_tables(speeds: Path, metres: Path, table: Path | None) -> Arrays:
    """No header in either; a column per station."""
    lines = csv_lines(speeds)
    stations = [str(column) for column in range(lines[0].count(",") + 1)]
    values = csv_numbers(speeds, lines, 1, stations)
    distances = csv_numbers(metres, csv_lines(metres), 1, stations)
    ids, places = stations, np.zeros((0, 2), np.float32)
    if table is not None:
        known = csv_places(table)
        if len(known) != len(stations):
            raise RequestError(f"{table}: {len(known)} stations, but {speeds.name} has {len(stations)} columns")
        ids, places = list(known), np.array(list(known.values()), np.float32)
    return _stored(speeds, Speeds(values, tuple(ids), first_line=1), metres, distances, places)


def _of_npz(path: Path) -> Arrays:
    arrays: dict[str, Any] = npz_arrays(path, ("speed", "distance_m"), ("station_id", "latlon"))
    speed = arrays["speed"]
    if speed.ndim != 2 or speed.dtype.kind not in "fiu":
        raise RequestError(f"{path}: 'speed' is {speed.dtype} {list(speed.shape)}, not numbers [rows, stations]")
    ids = arrays.get("station_id", np.arange(speed.shape[1]))
    places = arrays.get("latlon", np.zeros((0, 2)))
    if ids.shape != (speed.shape[1],) or places.shape not in ((0, 2), (speed.shape[1], 2)):
        raise RequestError(f"{path}: 'station_id' and 'latlon' must have a row for each of {speed.shape[1]} stations")
    if places.dtype.kind not in "fiu" or not (np.abs(places) <= (90, 180)).all():
        raise RequestError(f"{path}: 'latlon' must be latitudes within 90 and longitudes within 180 degrees")
    values = Speeds(speed.astype(np.float32), tuple(str(station) for station in ids.tolist()))
    return _stored(path, values, path, arrays["distance_m"], places.astype(np.float32))


def _stored(path: Path, speeds: Speeds, source: Path, metres: Any, places: Floats) -> Arrays:
    rows, stations = speeds.values.shape
    if len(set(speeds.ids)) < stations:
        raise RequestError(f"{path}: two stations have the same id")
    if metres.shape != (stations, stations) or metres.dtype.kind not in "fiu":
        raise RequestError(f"{source}: distances are {list(metres.shape)}, not [{stations}, {stations}]")
    if metres.max(initial=0) <= 1:  # STGCN takes such a matrix as it is; in metres everyone would be near everyone
        raise RequestError(f"{source}: nothing above 1; distances in metres are needed, not the weights of a graph")
    wrong = np.argwhere(~(np.isfinite(metres) & (metres >= 0)))
    if len(wrong):
        row, column = wrong[0]
        raise RequestError(
            f"{source}: row {row}, column {column} (from 0): {metres[row, column]:g} is no distance in metres"
        )
    clock = (np.arange(rows) % DAY / DAY).astype(np.float32)
    return {**prepared(path, speeds, clock), "metres": metres.astype(np.float32), "places": places}
