r"""Chickenpox: weekly cases of chickenpox in the 20 counties of Hungary over ten years, linked by borders.

    x = cases of 4 weeks,  y = cases of the next week          521 weeks, 517 windows per client, in the order of time
    A_ij = 1 where two counties are neighbours (41 edges)

The file holds cases that its publishers standardised, county by county, over all weeks; `raw` keeps that scale. The 102
edges of the file go both ways and include a self loop for each county, which the graph does not need.

Source: `chickenpox.json` of PyTorch Geometric Temporal (Rozemberczki et al. 2021), whose loader has 4 lags and one week
ahead, too.

Differences from the paper:
    * PyTorch Geometric Temporal divides its snapshots into train and test only; here the last of the train weeks are
      for validation.
    * The publishers' mean and deviation include the test weeks; `data.scale=client_minmax` fits a range on train weeks.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from panacea.data.federation import Federation
from panacea.data.registry import TrainingDefaults, dataset, found_by
from panacea.data.series import Scale, Series, forecasting
from panacea.data.sources._natural import (
    ScaledSeriesKeys,
    entry,
    find_json,
    node_pairs,
    number_table,
    open_json,
    pyg_temporal_card,
)
from panacea.errors import RequestError
from panacea.graphs.convert import graph_of_adjacency

__all__ = ["ChickenpoxKeys", "load_chickenpox"]


class ChickenpoxKeys(ScaledSeriesKeys):
    """Keys of `chickenpox`."""

    length: int = Field(4, ge=1, description="weeks of an input")
    horizon: int = Field(1, ge=1, description="weeks that are forecast")
    scale: Scale = Field("raw", description="raw: standardised per county, as published; client_minmax; global_zscore")


@dataset(
    "chickenpox",
    summary="weekly chickenpox cases of 20 Hungarian counties: the next week from four, linked by borders",
    source="chickenpox.json of PyTorch Geometric Temporal; standardised per county by its publishers",
    keys=ChickenpoxKeys,
    # Of 0.01, 0.03, 0.1 and 0.3 this rate had the least validation error (FedAvg, 100 rounds, seed 0), after 20 rounds.
    # The GRU that `auto` picks was no better (0.619 against 0.612, 40 rounds) at ten times the time.
    defaults=TrainingDefaults(lr=0.03, rounds=200, cohort=5, novel=0.2, model="mlp"),
    card=pyg_temporal_card("chickenpox", "Rozemberczki et al., Chickenpox Cases in Hungary: a Benchmark Dataset, 2021"),
    files=found_by(lambda root: find_json("chickenpox", root)),
)
def load_chickenpox(keys: ChickenpoxKeys) -> Federation:
    """Read `chickenpox.json` and cut it into windows."""
    path, document = open_json("chickenpox", keys.root)
    values = number_table(entry(document, "FX", list, path), path, "FX")
    n = values.shape[1]
    ids = entry(document, "node_ids", dict, path)
    if any(type(place) is not int for place in ids.values()) or sorted(ids.values()) != list(range(n)):
        raise RequestError(f"{path}: 'node_ids' must give each of the {n} columns of FX, 0..{n - 1}, one name")
    pairs = node_pairs(entry(document, "edges", list, path), n, path, "edges")
    matrix = np.zeros((n, n))
    matrix[pairs[:, 0], pairs[:, 1]] = 1
    graph, notes = graph_of_adjacency(np.maximum(matrix, matrix.T), n, f"{path.name} edges")
    series = Series(
        values=values.T.astype(np.float32),
        names=tuple(sorted(ids, key=ids.__getitem__)),
        unit="standardised per county, as published",
        graph=graph,
        notes=notes,
    )
    return forecasting("chickenpox", series, keys, keys.scale)
