r"""METR-LA and PEMS-BAY: five-minute mean speeds of loop detectors, every sensor a client, linked by road distance.

    METR-LA   207 sensors of Los Angeles, 34,272 rows from 2012-03-01        23,974 / 3,425 / 6,850 windows a sensor
    PEMS-BAY  325 sensors of the Bay Area, 52,116 rows from 2017-01-01       36,465 / 5,209 / 10,419
    x = 12 steps of (speed, time of day in [0, 1)),  y = the next 12 speeds; train | validation | test = 70 | 10 | 20 %
    in the order of time (`panacea.data.series`)
    speed = (s - min_i) / (max_i - min_i)  over sensor i's train span (`data.scale`)
    w_ij = exp(-d_ij^2 / sigma^2) >= 0.1,  d_ij the road distance: 1,515 and 2,369 directed links
    A_ij = 1 where w_ij > 0 or w_ji > 0:  1,313 and 2,079 edges (`data.graph_weights=kernel`: w itself, with directions)

A speed of 0 is a missing value: it counts in no loss and no metric, and as an input it is replaced by the last one that
was observed. Features are latitude and longitude in degrees. The hour that summer time left out in 2017 has no rows in
PEMS-BAY; the windows that reach across it are used, as in DCRNN. `data.part=week` of `metr_la` is the first week (2,016
rows); for 80/10/10 add ``data.test=0.1``. T-GCN's los_speed.csv, that week of all sensors, is read too.

Source: Li et al., "Diffusion Convolutional Recurrent Neural Network", ICLR 2018, https://arxiv.org/abs/1707.01926,
which publishes the files; speeds of METR-LA by Jagadish et al. (2014), of PEMS-BAY by Caltrans PeMS.

Differences from the paper:
    * Panacea's text says that all data sets are split 80/20 at random; windows that overlap would leak, and its Table I
      gives the counts above, so those are used.
    * Its scale is not stated. Here it is each sensor's own range in the train span.
    * DCRNN and CNFGNN standardise with zeros included, and CNFGNN has missing targets (0) in its loss.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from panacea.data.federation import Federation
from panacea.data.registry import Card, TrainingDefaults, dataset
from panacea.data.sources._traffic import Network, TrafficKeys, load_network

__all__ = ["METR_LA", "PEMS_BAY", "MetrLaKeys", "load_metr_la", "load_pems_bay"]

METR_LA = Network(
    name="metr_la",
    sensors=207,
    rows=34_272,
    links=1_515,
    start="2012-03-01",
    jump=None,
    speeds=("metr-la.h5", "metr-la.npz", "metr-la.csv", "metr-la.csv.gz", "los-speed.csv"),
    adjacency=("adj-mx.pkl", "adj-mx.pkl.gz"),
    distances=("distances-la-2012.csv", "distances-la-2012.csv.gz"),
    listed=("graph-sensor-ids.txt", "graph-sensor-locations.csv"),
    places=("graph-sensor-locations.csv",),
)

PEMS_BAY = Network(
    name="pems_bay",
    sensors=325,
    rows=52_116,
    links=2_369,
    start="2017-01-01",
    jump=20_184,  # 2017-03-12 02:00
    speeds=("pems-bay.h5", "pems-bay.npz", "pems-bay-subset.npz", "pems-bay.csv", "pems-bay.csv.gz"),
    adjacency=("adj-mx-bay.pkl", "adj-mx-bay.pkl.gz"),
    distances=("distances-bay-2017.csv", "distances-bay-2017.csv.gz"),
    listed=("graph-sensor-ids-bay.txt", "graph-sensor-locations-bay.csv"),
    places=("graph-sensor-locations-bay.csv",),
)

_CITATION = "Li, Yu, Shahabi and Liu, Diffusion Convolutional Recurrent Neural Network, ICLR 2018"
_USED = "Panacea, Tables I and II; CNFGNN (KDD 2021); DCRNN (ICLR 2018)"
_SPLITS = "windows of 12 + 12 steps in the order of time: 70 % train, 10 % validation, 20 % test; {} each when whole"

_GET = (
    "place {} (published by the DCRNN project, github.com/liyaguang/DCRNN, through the links in its README) and, of "
    "its folder data/sensor_graph, {} and {} in that folder; a CSV with a header of sensor ids"
)

_METR_LA_CARD = Card(
    licence="not stated for the speeds; DCRNN's graph files are MIT",
    citation=f"{_CITATION}; Jagadish et al., Big Data and Its Technical Challenges, CACM 2014",
    used_in=_USED,
    get=_GET.format(
        "metr-la.h5", "adj_mx.pkl (or distances_la_2012.csv with graph_sensor_ids.txt)", "graph_sensor_locations.csv"
    )
    + " (metr_la.csv) or an npz with speed and sensor_ids (metr_la.npz) will do for the speeds",
    features=("latitude", "longitude"),
    splits=_SPLITS.format("23,974 / 3,425 / 6,850"),
)

_PEMS_BAY_CARD = Card(
    licence="Caltrans PeMS, public after registration; DCRNN's graph files are MIT",
    citation=f"{_CITATION}; data of the California Department of Transportation (PeMS)",
    used_in=_USED,
    get=_GET.format("pems-bay.h5", "adj_mx_bay.pkl (or distances_bay_2017.csv)", "graph_sensor_locations_bay.csv")
    + " (pems_bay.csv) or an npz with speed and sensor_ids (pems_bay.npz) will do for the speeds",
    features=("latitude", "longitude"),
    splits=_SPLITS.format("36,465 / 5,209 / 10,419"),
)

# lr: the best of 0.01, 0.03, 0.1 and 0.3 on the validation windows of four METR-LA sensors after 30 rounds of FedAvg
# (MSE 25.8, 23.7, 20.4 and 21.5 x 1e-3); PEMS-BAY has the same.
_DEFAULTS = TrainingDefaults(lr=0.1, rounds=800, cohort=5, novel=0.2)


class MetrLaKeys(TrafficKeys):
    """Keys of `metr_la`."""

    part: Literal["all", "week"] = Field("all", description="all rows, or the first week (2,016 rows)")


@dataset(
    "metr_la",
    summary="traffic speeds of 207 sensors in Los Angeles: the next hour from the last, linked by road distance",
    source="DCRNN (Li et al., ICLR 2018); MSE is in the per-sensor min-max scale of the train span unless data.scale "
    "says otherwise; features are latitude and longitude",
    keys=MetrLaKeys,
    defaults=_DEFAULTS,
    card=_METR_LA_CARD,
)
def load_metr_la(keys: MetrLaKeys) -> Federation:
    """Read METR-LA's speeds and graph."""
    return load_network(METR_LA, keys, _METR_LA_CARD.get, week=keys.part == "week")


@dataset(
    "pems_bay",
    summary="traffic speeds of 325 sensors in the Bay Area: the next hour from the last, linked by road distance",
    source="DCRNN (Li et al., ICLR 2018), Caltrans PeMS; MSE is in the per-sensor min-max scale of the train span "
    "unless data.scale says otherwise; features are latitude and longitude",
    keys=TrafficKeys,
    defaults=_DEFAULTS,
    card=_PEMS_BAY_CARD,
)
def load_pems_bay(keys: TrafficKeys) -> Federation:
    """Read PEMS-BAY's speeds and graph."""
    return load_network(PEMS_BAY, keys, _PEMS_BAY_CARD.get)
