r"""England COVID: daily new cases in 129 regions of England, spring 2020, linked by how many people moved between them.

    x = cases of 8 days,  y = cases of the next day              61 days, 53 windows per client, in the order of time
    A_ij = people who moved between regions i and j, both ways together, mean over the days, divided by the largest

The file has a mobility graph for each day. A federation has one graph, so the client graph is their union with the mean
weight (a day without an edge counts 0): 1,185 edges. Those who stayed in their region are self loops, which are
left out. The mean is over all days, test days too: it says which regions belong together, not how many are ill.

The file has no names of regions; they are called by their position. Cases are counts, so a region whose train
days all have one value keeps its unit (`Series.flat_range`).

Source: `england_covid.json` of PyTorch Geometric Temporal, whose loader has 8 lags and one day ahead, too; data of
Panagopoulos et al., "Transfer Graph Neural Networks for Pandemic Forecasting", AAAI 2021 (NUTS3 regions, 13 March to
12 May 2020; mobility from Facebook Data for Good).

Differences from the paper:
    * One graph for all days (see above).
    * The publishers' loader standardises each region over all days, test days too; here only train days count.
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
    node_pairs,
    number_row,
    number_table,
    open_json,
    pyg_temporal_card,
)
from panacea.errors import RequestError
from panacea.graphs.convert import graph_of_adjacency

__all__ = ["EnglandCovidKeys", "load_england_covid"]


class EnglandCovidKeys(ScaledSeriesKeys):
    """Keys of `england_covid`."""

    length: int = Field(8, ge=1, description="days of an input")
    horizon: int = Field(1, ge=1, description="days that are forecast")


@dataset(
    "england_covid",
    summary="daily COVID-19 cases of 129 English regions: the next day from eight, linked by mobility",
    source="england_covid.json of PyTorch Geometric Temporal; data of Panagopoulos et al., AAAI 2021",
    keys=EnglandCovidKeys,
    # Of 0.01, 0.03, 0.1 and 0.3 this rate had the least validation error (FedAvg, 100 rounds, seed 0), after 40 rounds.
    # The GRU that `auto` picks was a little better (0.0392 against 0.0401, 40 rounds) at ten times the time.
    defaults=TrainingDefaults(lr=0.03, rounds=200, cohort=5, novel=0.2, model="mlp"),
    card=pyg_temporal_card(
        "england_covid", "Panagopoulos et al., Transfer Graph Neural Networks for Pandemic Forecasting, AAAI 2021"
    ),
    files=found_by(lambda root: find_json("england_covid", root)),
)
def load_england_covid(keys: EnglandCovidKeys) -> Federation:
    """Read `england_covid.json`, join its daily graphs and cut the cases into windows."""
    path, document = open_json("england_covid", keys.root)
    cases = number_table(entry(document, "y", list, path), path, "y", low=0)
    days, regions = cases.shape
    if entry(document, "time_periods", int, path) != days:
        raise RequestError(f"{path}: 'time_periods' is {document['time_periods']}, but 'y' has {days} days")
    moved = _mobility(entry(document, "edge_mapping", dict, path), days, regions, path)
    graph, notes = graph_of_adjacency(moved, regions, f"{path.name} edge_mapping")
    series = Series(
        values=cases.T.astype(np.float32),
        names=tuple(str(region) for region in range(regions)),
        unit="cases a day",
        graph=graph,
        notes=notes,
        flat_range=1.0,
    )
    return forecasting("england_covid", series, keys, keys.scale)


def _mobility(mapping: dict[str, Any], days: int, regions: int, path: Path) -> npt.NDArray[np.float32]:
    """The mean over the days of the people between two regions, the largest between two different ones being 1."""
    indices, weights = (entry(mapping, key, dict, path, "edge_mapping") for key in ("edge_index", "edge_weight"))
    total = np.zeros((regions, regions))
    for day in range(days):
        place, weighted = (f"edge_mapping['{key}']['{day}']" for key in ("edge_index", "edge_weight"))
        given = entry(indices, str(day), list, path, "edge_mapping['edge_index']")
        people = entry(weights, str(day), list, path, "edge_mapping['edge_weight']")
        pairs = node_pairs(given, regions, path, place)
        total[pairs[:, 0], pairs[:, 1]] += number_row(people, path, weighted, len(pairs), low=0)
    both = total + total.T
    largest = both[~np.eye(regions, dtype=np.bool_)].max(initial=0)
    return (both / (largest if largest > 0 else 1)).astype(np.float32)
