r"""TPT-48: monthly mean temperatures of the 48 contiguous states of the USA, linked where they share a border.

    yearly    one sample per calendar year:  x = January .. June,  y = July .. December     (125 of 1895 .. 2019)
              80 % train part (a tenth of it for validation), 20 % test, at random by the data seed
    sliding   one sample per month:  x = months t .. t+5,  y = months t+6 .. t+11           (133 of 2008 .. 2019)
              in the order of time: train | validation | test, in the same shares
    value = (F - min_i) / (max_i - min_i),  min_i and max_i over all months of client i's train split
    A_ij = 1 where two states share a land border (105 edges)

Neighbouring sliding windows share 11 of 12 months, so a random split would test on months that were trained on. In the
order of time the validation windows lie between: with 11 of them (2008 .. 2019 and the default shares) no month is in
both train and test; where there are fewer, a note says how many months are.

Names are two-letter codes, in alphabetical order. Features are latitude and longitude of a point near the middle of
each state, each scaled to [0, 1] over the 48 states (as GRDA has them).

Differences from the paper:
    * The Panacea papers say 2008 to 2019, which GRDA uses, and 125 samples per client, which only the years 1895 to
      2019 of the record they cite give. The first is `sliding`, the second `yearly`, the default.
    * They do not say the scale. With a range per client a constant predictor has about the error they print; with one
      range or z-score for all clients it has not. They do not say on what the range is fitted; here it is the train
      split only, so test values may lie outside [0, 1].
    * They split at random; sliding windows are not (see above).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field, field_validator

from panacea.data.federation import Federation
from panacea.data.registry import Card, NaturalKeys, TrainingDefaults, dataset
from panacea.data.scaling import min_max_per_client
from panacea.data.sources._states import STATES, places
from panacea.data.sources._tpt48_files import GET, PICKLED, RECORD, Years, read_record
from panacea.data.task import Task
from panacea.errors import RequestError

__all__ = ["Tpt48Keys", "load_tpt48"]

Floats = npt.NDArray[np.float32]

_HALF = 6  # months of an input, and of a target
_RANGE = re.compile(r"\s*(\d{4})\s*\.\.\s*(\d{4})\s*")


def _yearly(months: Floats) -> Floats:
    return months


def _sliding(months: Floats) -> Floats:
    return np.lib.stride_tricks.sliding_window_view(months.ravel(), 2 * _HALF)


class _Window(NamedTuple):
    """How months become samples.

    Attributes:
        cut: ``[years, 12]`` of one client to its samples ``[samples, 12]``.
        years: the default.
        chronological: whether samples are split in their order.
    """

    cut: Callable[[Floats], Floats]
    years: Years
    chronological: bool


_WINDOWS = {"yearly": _Window(_yearly, RECORD, False), "sliding": _Window(_sliding, PICKLED, True)}


class Tpt48Keys(NaturalKeys):
    """Keys of `tpt48`."""

    window: Literal["yearly", "sliding"] = Field(
        "yearly", description="yearly: a sample per year, Jan..Jun to Jul..Dec; sliding: one per month, 6 to 6 months"
    )
    years: tuple[int, int] | None = Field(
        None, description="FIRST..LAST; default 1895..2019 for yearly, 2008..2019 for sliding windows"
    )

    @field_validator("years", mode="before")
    @classmethod
    def _first_and_last(cls, value: object) -> Years | None:
        """``2008..2019`` as text, as the list of all years that the command line makes of it, or as a pair."""
        if value is None:
            return None
        match = _RANGE.fullmatch(value) if isinstance(value, str) else None
        given = [int(year) for year in match.groups()] if match else value
        if isinstance(given, list | tuple) and len(given) >= 2 and all(type(year) is int for year in given):
            first, last = int(given[0]), int(given[-1])
            whole = len(given) == 2 or list(given) == list(range(first, last + 1))
            if whole and RECORD[0] <= first < last <= RECORD[1]:
                return first, last
        raise ValueError(f"must be FIRST..LAST, two or more years within {RECORD[0]}..{RECORD[1]}")


CARD = Card(
    licence="NOAA's record: a work of the US government, no copyright there; GRDA's and VDI's files: MIT",
    citation="Vose et al., Improved Historical Temperature and Precipitation Time Series for U.S. Climate Divisions, "
    "J. Appl. Meteorol. Climatol. 53, 2014 (nClimDiv); graph: Xu et al., Graph-Relational Domain Adaptation, ICLR 2022",
    used_in="the TPT-48 columns of the Panacea papers (MSE x 1e-3)",
    get=GET,
    features=("latitude", "longitude"),
    splits="yearly: 80/20 at random by the data seed; sliding: the first 80 % and the last 20 % in the order of time; "
    "a tenth of the train part is for validation",
)


@dataset(
    "tpt48",
    summary="monthly temperatures of 48 US states: July to December from January to June, linked by borders",
    source="NOAA nClimDiv statewide average temperature (climdiv-tmpcst), 1895-2019; graph of GRDA (Xu et al., ICLR "
    "2022); MSE is in the per-client min-max scale of the train split; features are scaled latitude and longitude",
    keys=Tpt48Keys,
    defaults=TrainingDefaults(lr=0.03, rounds=800, cohort=5, novel=0.2),
    card=CARD,
)
def load_tpt48(keys: Tpt48Keys) -> Federation:
    """Read the record, cut it into samples and scale each state by its own range."""
    window = _WINDOWS[keys.window]
    n = len(STATES) if keys.clients is None else keys.clients
    if n > len(STATES):
        raise RequestError(f"data.clients={n}: tpt48 has {len(STATES)} clients")
    record = read_record(keys.root, keys.years or window.years)
    samples = [np.ascontiguousarray(window.cut(months)) for months in record.fahrenheit[:n]]
    federation = Federation.from_clients(
        [(own[:, :_HALF], own[:, _HALF:]) for own in samples],
        task=Task("regression", inputs=(_HALF,), outputs=(_HALF,)),
        seed=keys.seed,
        val=keys.val,
        test=0.2,
        chronological=window.chronological,
        name="tpt48",
        names=STATES[:n],
        graph=record.graph if n == len(STATES) else record.graph.take(np.arange(n)),
        features=places()[:n],
    )
    return _with_note(min_max_per_client(federation)) if window.chronological else min_max_per_client(federation)


def _with_note(federation: Federation) -> Federation:
    """Say how many months train and test windows share, if any."""
    shared = 2 * _HALF - 1 - int(federation.counts("val")[0])
    if shared <= 0:
        return federation
    note = f"{shared} months are in both train and test windows; more validation windows (data.val) would part them"
    return replace(federation, notes=(*federation.notes, note))
