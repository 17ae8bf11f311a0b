"""Numbers over clients. Clients without samples in a split are NaN and do not count."""

from __future__ import annotations

import math
import warnings

import numpy as np
import numpy.typing as npt

__all__ = ["mean", "spread", "worst_decile"]

Values = npt.NDArray[np.float64]


def _quiet(function: np.ufunc | object, values: Values) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # an empty mean is NaN, which is what we want
        return float(function(values)) if len(values) else math.nan  # type: ignore[operator]


def mean(values: Values) -> float:
    """Mean over clients."""
    return _quiet(np.nanmean, values)


def spread(values: Values) -> float:
    """Standard deviation over clients (of the clients at hand, not an estimate for others)."""
    return _quiet(np.nanstd, values)


def worst_decile(values: Values, higher_is_better: bool) -> float:
    """Mean of the worst tenth of the clients, at least one.

    >>> worst_decile(np.arange(20.0), True), worst_decile(np.arange(20.0), False)
    (0.5, 18.5)
    """
    known = np.sort(values[~np.isnan(values)])
    count = max(1, math.ceil(len(known) / 10))
    return mean(known[:count] if higher_is_better else known[-count:])
