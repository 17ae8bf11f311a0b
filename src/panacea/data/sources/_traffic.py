"""What the federations of loop detectors have in common: keys, the files of a network, and sensors that say little."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from panacea.data.cache import Arrays, cached, packed, unpacked
from panacea.data.federation import Federation
from panacea.data.paths import find_data_dir, missing_files
from panacea.data.series import Scale, Series, SeriesKeys, forecasting, spans
from panacea.data.sources._tables import csv_places, find_file
from panacea.data.sources._traffic_files import WEEK, Floats, Speeds, day_shares, observed, read_speeds
from panacea.data.sources._traffic_graph import Roads, read_roads
from panacea.errors import RequestError
from panacea.graphs import ClientGraph

__all__ = ["Network", "TrafficKeys", "load_network", "prepared", "speed_federation"]

_VERSION = 1  # of the prepared copies
_MUCH = 0.4  # a sensor that misses more than this share is worth a word

_SCALES: dict[str, Scale] = {"client_minmax": "client_minmax", "global_zscore": "global_zscore", "mph": "raw"}


class TrafficKeys(SeriesKeys):
    """Keys of a network of speed sensors."""

    scale: Literal["client_minmax", "global_zscore", "mph"] = Field(
        "client_minmax",
        description="of the speed, fitted on the train span: per sensor to [0, 1], one z-score, or none",
    )
    graph_weights: Literal["binary", "kernel"] = Field(
        "binary", description="edges of weight 1 without direction, or the kernel's weights (and directions, if any)"
    )


@dataclass(frozen=True)
class Network:
    """A published network of sensors: how large it is and how its files are called (see `find_file`).

    Attributes:
        name: of the data set.
        sensors, rows, links: of the whole set; links are directed.
        start: when row 0 is, where a file does not say.
        jump: the first row after the hour that summer time leaves out; None where that hour has rows.
        speeds: names of files with speeds, the best first.
        adjacency, distances, listed, places: names of files about the graph.
    """

    name: str
    sensors: int
    rows: int
    links: int
    start: str
    jump: int | None
    speeds: tuple[str, ...]
    adjacency: tuple[str, ...]
    distances: tuple[str, ...]
    listed: tuple[str, ...]
    places: tuple[str, ...]

    def partial(self, sensors: int, rows: int) -> str:
        """What part of the published set this is; empty where it is all of it."""
        parts = [f"{sensors} of {self.sensors} sensors"] if sensors < self.sensors else []
        if rows < self.rows:
            weeks = rows % WEEK == 0 and self.rows % WEEK == 0
            parts.append(f"{rows // WEEK} of {self.rows // WEEK} weeks" if weeks else f"{rows:,} of {self.rows:,} rows")
        return f"PARTIAL {', '.join(parts)}" if parts else ""

    def seconds(self, rows: int) -> npt.NDArray[np.int64]:
        """Times of the first rows of the published set."""
        times = np.datetime64(self.start, "s").astype(np.int64) + 300 * np.arange(rows)
        if self.jump is not None:
            times[self.jump :] += 3600
        return times


def load_network(network: Network, keys: TrafficKeys, get: str, *, week: bool = False) -> Federation:
    """A federation from whatever files of a network there are."""
    folder = find_data_dir(network.name, keys.root)
    path = None if folder is None else find_file(folder, network.speeds)
    if folder is None or path is None:
        raise missing_files(network.name, keys.root, get)
    stored = cached(
        f"{network.name}-{'week' if week else 'speeds'}", [path], _VERSION, lambda: _prepared(network, path, week)
    )
    roads = _roads(network, folder, path, unpacked(stored["ids"]))
    table = find_file(folder, network.places)
    return speed_federation(
        network.name,
        path,
        stored,
        keys,
        partial=network.partial,
        roads=roads,
        links=network.links,
        places=None if table is None else csv_places(table),
    )


def _prepared(network: Network, path: Path, week: bool) -> Arrays:
    speeds = read_speeds(path, week)
    seconds = network.seconds(len(speeds.values)) if speeds.seconds is None else speeds.seconds
    clock, jumps = day_shares(path, seconds)
    return prepared(path, speeds, clock, jumps)


def prepared(path: Path, speeds: Speeds, clock: Floats, notes: tuple[str, ...] = ()) -> Arrays:
    """Speeds as they are kept: ``values [sensors, rows]``, NaN where missing, the time of day, ids and notes."""
    notes = (*speeds.notes, *notes)
    return {"values": observed(path, speeds), "clock": clock, "ids": packed(speeds.ids), "notes": packed(notes)}


def _roads(network: Network, folder: Path, path: Path, ids: Sequence[str]) -> Roads | None:
    """The network's graph, from its prepared copy where there is one."""
    adjacency, distances, listed = (
        find_file(folder, names) for names in (network.adjacency, network.distances, network.listed)
    )
    arrays = path if path.suffix == ".npz" else None
    files = [file for file in (adjacency, distances, listed, arrays) if file is not None]
    own = hashlib.sha256(" ".join(ids).encode()).hexdigest()[:8]  # the kernel of distances may depend on them

    def read() -> Arrays:
        found = read_roads(adjacency, distances, listed, arrays, ids)
        if found is None:
            return {}
        texts = packed([found.source, *found.ids])
        return {"edges": found.graph.edges, "weights": found.graph.weights, "texts": texts}

    stored = cached(f"{network.name}-graph-{own}", files, _VERSION, read) if files else {}
    if not stored:
        return None
    source, *sensors = unpacked(stored["texts"])
    edges, weights = stored["edges"].astype(np.int64), stored["weights"].astype(np.float32)
    return Roads(tuple(sensors), ClientGraph(len(sensors), edges, weights, directed=True), source)


def speed_federation(
    name: str,
    path: Path,
    stored: Arrays,
    keys: TrafficKeys,
    *,
    partial: Callable[[int, int], str],
    roads: Roads | None,
    links: int,
    places: Mapping[str, tuple[float, float]] | None,
) -> Federation:
    """A federation with a client per sensor.

    Args:
        name: of the data set.
        path: where the speeds are from.
        stored: what `prepared` gave.
        keys: of the data set.
        partial: the label of so many sensors and rows.
        roads: the graph of the published network, or None.
        links: directed links it should have.
        places: latitude and longitude of sensors, or None.
    """
    values, ids = stored["values"].astype(np.float32, copy=False), np.array(unpacked(stored["ids"]))
    train, test = spans(name, values.shape[1], keys)
    gaps = np.isnan(values[:, :train]).mean(axis=1)
    notes = unpacked(stored["notes"])
    dead, silent = gaps == 1, np.isnan(values[:, test:]).all(axis=1)  # nothing to learn from, nothing to be scored on
    for where, gone in (("train", dead), ("test", silent & ~dead)):
        if gone.any():
            shown = ", ".join(ids[gone][:5]) + (", ..." if gone.sum() > 5 else "")
            notes.append(f"{gone.sum()} sensor(s) without an observed value in the {where} span left out: {shown}")
    if (dead | silent).any():
        values, ids, gaps = (part[~(dead | silent)] for part in (values, ids, gaps))
    if not len(ids):
        raise RequestError(
            f"{path}: no sensor has observed values both in the first {train:,} rows and from row {test:,}"
        )
    whole = Series(
        values,
        tuple(ids.tolist()),
        "mph",
        clock=stored["clock"].astype(np.float32, copy=False),
        partial=partial(len(ids), values.shape[1]),
    )
    series = whole.take(keys.clients, name)
    gaps = gaps[: len(series.names)]
    if (gaps > _MUCH).any():
        worst = int(gaps.argmax())
        notes.append(
            f"{(gaps > _MUCH).sum()} of {len(gaps)} sensors miss over {_MUCH:.0%} of the train span; sensor "
            f"'{series.names[worst]}' misses {gaps[worst]:.0%}"
        )
    graph = None
    if roads is None:
        notes.append(f"{name}: no graph, for there is no file with one")
    else:
        graph, said = _links(roads, series.names, path, keys.graph_weights, links)
        notes.append(said)
    features = None
    if places is not None:
        features, missed = _features(places, series.names)
        notes += missed
    series = replace(series, graph=graph, features=features, notes=tuple(notes))
    return forecasting(name, series, keys, _SCALES[keys.scale])


def _links(
    roads: Roads, ids: Sequence[str], path: Path, weights: Literal["binary", "kernel"], expected: int
) -> tuple[ClientGraph, str]:
    """The graph between these sensors as asked for, and what to say about it."""
    graph = roads.between(ids, path)
    if weights == "binary":
        graph = graph.undirected().binary()
    count = len(roads.graph.edges)
    said = f"graph: {count:,} directed links between {len(roads.ids)} sensors in {roads.source}"
    said += f"; {len(graph.edges):,} {'directed' if graph.directed else 'undirected'} between the {len(ids)} here"
    return graph, said if count == expected else f"{said} (the published graph has {expected:,} directed links)"


def _features(places: Mapping[str, tuple[float, float]], ids: Sequence[str]) -> tuple[Floats | None, list[str]]:
    """``[sensors, 2]``; None and a note where some are nowhere."""
    absent = [sensor for sensor in ids if sensor not in places]
    if absent:
        return None, [f"no place is known of {len(absent)} of {len(ids)} sensors (first '{absent[0]}'): no features"]
    return np.array([places[sensor] for sensor in ids], np.float32), []
