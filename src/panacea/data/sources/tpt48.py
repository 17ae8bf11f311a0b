r"""TPT-48: monthly mean temperatures of the 48 contiguous states of the USA, linked where they share a border.

    one sample per calendar year 1895 .. 2019:  x = January .. June,  y = July .. December     (125 per client)
    80 % train part (a tenth of it for validation), 20 % test, at random by the data seed
    value = (F - min_i) / (max_i - min_i),  min_i and max_i over all months of client i's train split
    A_ij = 1 where two states share a land border (105 edges)

Names are two-letter codes, in alphabetical order. Features are latitude and longitude of a point near the middle of
each state, each scaled to [0, 1] over the 48 states (as GRDA has them).

Differences from the paper:
    * The Panacea papers say 2008 to 2019, which GRDA uses, and 125 samples per client, which only the years 1895 to
      2019 of the record they cite give.
    * They do not say the scale. With a range per client a constant predictor has about the error they print; with one
      range or z-score for all clients it has not. They do not say on what the range is fitted; here it is the train
      split only, so test values may lie outside [0, 1].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from panacea.data.federation import Federation
from panacea.data.registry import NaturalKeys, TrainingDefaults, dataset
from panacea.data.scaling import min_max_per_client
from panacea.data.sources._states import STATES, places
from panacea.data.sources._tpt48_files import read_record
from panacea.data.task import Task
from panacea.errors import RequestError

__all__ = ["Tpt48Keys", "load_tpt48"]

Floats = npt.NDArray[np.float32]


class Tpt48Keys(NaturalKeys):
    """Keys of `tpt48`."""

    window: Literal["yearly"] = Field("yearly", description="yearly: a sample per year, Jan..Jun to Jul..Dec")


def _yearly(months: Floats) -> tuple[Floats, Floats]:
    """``[years, 12]`` of one client to inputs and targets."""
    return months[:, :6], months[:, 6:]


_WINDOWS: dict[str, Callable[[Floats], tuple[Floats, Floats]]] = {"yearly": _yearly}


@dataset(
    "tpt48",
    summary="monthly temperatures of 48 US states: July to December from January to June, linked by borders",
    source="NOAA nClimDiv statewide average temperature (climdiv-tmpcst), 1895-2019; graph of GRDA (Xu et al., ICLR "
    "2023); MSE is in the per-client min-max scale of the train split; features are scaled latitude and longitude",
    keys=Tpt48Keys,
    defaults=TrainingDefaults(lr=0.03, rounds=800, cohort=5, novel=0.2),
)
def load_tpt48(keys: Tpt48Keys) -> Federation:
    """Read the record, cut it into samples and scale each state by its own range."""
    record = read_record(keys.root)
    n = len(STATES) if keys.clients is None else keys.clients
    if n > len(STATES):
        raise RequestError(f"data.clients={n}: tpt48 has {len(STATES)} clients")
    window = _WINDOWS[keys.window]
    federation = Federation.from_clients(
        [window(months) for months in record.fahrenheit[:n]],
        task=Task("regression", inputs=(6,), outputs=(6,)),
        seed=keys.seed,
        val=keys.val,
        test=0.2,
        name="tpt48",
        names=STATES[:n],
        graph=record.graph if n == len(STATES) else record.graph.take(np.arange(n)),
        features=places()[:n],
    )
    return min_max_per_client(federation)
