r"""Montevideo bus: passengers who board at 675 bus stops, hour by hour in October 2020, linked along the bus lines.

    x = (passengers, hour / 24) of 4 hours,  y = passengers of the next hour
    744 hours, 740 windows per client, in the order of time
    A_ij = 1 / (1 + d_ij / mean d)  where a line goes from one stop to the other; d the road distance (690 edges)

The file's links have the distance as their weight, so that far stops would count more; here a link of mean length
weighs 1/2 and a shorter one more. Links have a direction, relatedness has none: the graph is undirected.

Passengers are counts and many stops have few: a stop whose train hours all have one value (3 have no passenger at all)
keeps its unit, one passenger is 1 (`Series.flat_range`), and a note counts such stops. Features are the northing and
the easting of the stops (`lat` and `lon` of the file, in metres), each scaled to [0, 1].

Source: `montevideo_bus.json` of PyTorch Geometric Temporal, whose loader has 4 lags and one hour ahead, too; data of
Montevideo's Metropolitan Transportation System from Uruguay's catalogue of open data.

Differences from the paper:
    * The publishers' loader has no time of day, and standardises each stop over all hours, test hours too; here a range
      is fitted on train hours.
    * The weights of the graph (see above).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from panacea.data.federation import Federation
from panacea.data.registry import TrainingDefaults, dataset, found_by
from panacea.data.series import Series, forecasting
from panacea.data.sources._natural import (
    ScaledSeriesKeys,
    entry,
    find_json,
    number_row,
    open_json,
    pyg_temporal_card,
    unit_square,
)
from panacea.errors import RequestError
from panacea.graphs import ClientGraph

__all__ = ["MontevideoBusKeys", "load_montevideo_bus"]


class MontevideoBusKeys(ScaledSeriesKeys):
    """Keys of `montevideo_bus`."""

    length: int = Field(4, ge=1, description="hours of an input")
    horizon: int = Field(1, ge=1, description="hours that are forecast")


@dataset(
    "montevideo_bus",
    summary="hourly passengers at 675 bus stops of Montevideo: the next hour from four, linked along the lines",
    source="montevideo_bus.json of PyTorch Geometric Temporal; features are scaled northing and easting",
    keys=MontevideoBusKeys,
    # Of 0.01, 0.03, 0.1 and 0.3 this rate had the least validation error (FedAvg, 100 rounds, seed 0). Four hours and
    # their time of day are eight numbers: a small MLP, not the GRU of 62,501 parameters that `auto` picks.
    defaults=TrainingDefaults(lr=0.1, rounds=300, cohort=5, novel=0.2, model="mlp"),
    card=pyg_temporal_card(
        "montevideo_bus",
        licence="Uruguay's open data for the records behind it",
        features=("northing", "easting"),
    ),
    files=found_by(lambda root: find_json("montevideo_bus", root)),
)
def load_montevideo_bus(keys: MontevideoBusKeys) -> Federation:
    """Read `montevideo_bus.json` and cut it into windows."""
    path, document = open_json("montevideo_bus", keys.root)
    nodes = entry(document, "nodes", list, path)
    if not nodes:
        raise RequestError(f"{path}: 'nodes' is empty")
    rows: list[npt.NDArray[np.float64]] = []
    places: list[list[float]] = []
    stops: dict[int, int] = {}
    for i, node in enumerate(nodes):
        where = f"nodes[{i}]"
        counts = entry(node, "y", list, path, where)
        rows.append(number_row(counts, path, f"{where}['y']", len(rows[0]) if rows else None, low=0))
        places.append([entry(node, axis, float, path, where) for axis in ("lat", "lon")])
        stop = entry(node, "bus_stop", int, path, where)
        if stops.setdefault(stop, i) != i:
            raise RequestError(f"{path}: {where} is bus stop {stop}, as nodes[{stops[stop]}] is")
    values = np.stack(rows).astype(np.float32)
    graph, notes = _graph(entry(document, "links", list, path), stops, path)
    series = Series(
        values=values,
        names=tuple(str(stop) for stop in stops),
        unit="passengers an hour",
        clock=(np.arange(values.shape[1]) % 24 / 24).astype(np.float32),  # the first value is that of midnight
        graph=graph,
        features=unit_square(places),
        notes=notes,
        flat_range=1.0,
    )
    return forecasting("montevideo_bus", series, keys, keys.scale)


def _graph(links: list[Any], stops: dict[int, int], path: Path) -> tuple[ClientGraph, tuple[str, ...]]:
    """Undirected, near stops with a larger weight; the larger one where the ways there and back differ."""
    pairs, distances = [], []
    for i, link in enumerate(links):
        where = f"links[{i}]"
        ends = [entry(link, end, int, path, where) for end in ("source", "target")]
        unknown = [end for end in ends if end not in stops]
        if unknown:
            raise RequestError(f"{path}: {where} names an unknown bus stop {unknown[0]}")
        distance = entry(link, "weight", float, path, where)
        if distance < 0:
            raise RequestError(f"{path}: {where}['weight'] is {distance}; a road distance is not negative")
        pairs.append([stops[end] for end in ends])
        distances.append(distance)
    length = np.array(distances, np.float64)
    mean = length.mean() if len(length) and length.max() > 0 else 1.0
    graph, notes = ClientGraph.from_edges(
        len(stops), pairs, 1 / (1 + length / mean), f"{path.name} links", directed=True
    )
    return graph.undirected(), notes
