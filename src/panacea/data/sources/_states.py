"""The 48 contiguous states of the USA: codes, NOAA numbers, borders and places, as plain facts.

Borders are land borders; states that meet in a point (AZ-CO, NM-UT) or across a lake (MI-MN, MI-IL) are no neighbours.
Places are one point near the middle of each state, in degrees of latitude and longitude.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["BORDERS", "NOAA_ORDER", "STATES", "places"]

_BY_NAME = """
AL AZ AR CA CO CT DE FL GA ID IL IN IA KS KY LA ME MD MA MI MN MS MO MT NE NV NH NJ NM NY NC ND OH OK OR PA RI SC SD TN
TX UT VT VA WA WV WI WY
"""

NOAA_ORDER = tuple(_BY_NAME.split())
"""The states numbered 001 .. 048 in NOAA's files (alphabetical by name)."""

STATES = tuple(sorted(NOAA_ORDER))
"""The order of the clients: alphabetical by code."""

# a state: those of its neighbours that come after it
_AFTER = """
AL FL GA MS TN; AR LA MO MS OK TN TX; AZ CA NM NV UT; CA NV OR; CO KS NE NM OK UT WY; CT MA NY RI; DE MD NJ PA; FL GA;
GA NC SC TN; IA IL MN MO NE SD WI; ID MT NV OR UT WA WY; IL IN KY MO WI; IN KY MI OH; KS MO NE OK; KY MO OH TN VA WV;
LA MS TX; MA NH NY RI VT; MD PA VA WV; ME NH; MI OH WI; MN ND SD WI; MO NE OK TN; MS TN; MT ND SD WY; NC SC TN VA;
ND SD; NE SD WY; NH VT; NJ NY PA; NM OK TX; NV OR UT; NY PA VT; OH PA WV; OK TX; OR WA; PA WV; SD WY; TN VA; UT WY;
VA WV
"""

BORDERS = tuple((row.split()[0], other) for row in _AFTER.split(";") for other in row.split()[1:])
"""The 105 pairs of states with a common border."""

_DEGREES = """
32.318231 -86.902298 35.201050 -91.831833 34.048928 -111.093731 36.778261 -119.417932 39.550051 -105.782067
41.603221 -73.087749 38.910832 -75.527670 27.664827 -81.515754 32.157435 -82.907123 41.878003 -93.097702
44.068202 -114.742041 40.633125 -89.398528 40.551217 -85.602364 39.011902 -98.484246 37.839333 -84.270018
31.244823 -92.145024 42.407211 -71.382437 39.045755 -76.641271 45.253783 -69.445469 44.314844 -85.602364
46.729553 -94.685900 37.964253 -91.831833 32.354668 -89.398528 46.879682 -110.362566 35.759573 -79.019300
47.551493 -101.002012 41.492537 -99.901813 43.193852 -71.572395 40.058324 -74.405661 34.972730 -105.032363
38.802610 -116.419389 43.299428 -74.217933 40.417287 -82.907123 35.007752 -97.092877 43.804133 -120.554201
41.203322 -77.194525 41.580095 -71.477429 33.836081 -81.163725 43.969515 -99.901813 35.517491 -86.580447
31.968599 -99.901813 39.320980 -111.093731 37.431573 -78.656894 44.558803 -72.577841 47.751074 -120.740139
43.784440 -88.787868 38.597626 -80.454903 43.075968 -107.290284
"""


def places() -> npt.NDArray[np.float32]:
    """``[48, 2]`` latitude and longitude of `STATES`, each scaled so that the extreme states have 0 and 1."""
    degrees = np.array(_DEGREES.split(), np.float64).reshape(-1, 2)
    low, high = degrees.min(axis=0), degrees.max(axis=0)
    scaled: npt.NDArray[np.float32] = ((degrees - low) / (high - low)).astype(np.float32)
    return scaled
