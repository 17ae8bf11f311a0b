"""Numbers over clients. Clients without samples in a split are NaN and do not count."""

from __future__ import annotations

import math
import warnings

import numpy as np
import numpy.typing as npt

__all__ = ["fairness", "mean", "spread", "worst_decile"]

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


def fairness(values: Values) -> dict[str, float]:
    """How evenly a metric is spread over clients, beside its standard deviation and worst decile.

    ``gini`` is 0 where all are equal; ``jain`` is 1 where all are equal and 1/n where one has everything; ``gap`` is
    the best minus the worst client.

    >>> fairness(np.array([1.0, 3.0]))
    {'gini': 0.25, 'jain': 0.8, 'gap': 2.0}
    """
    known = np.sort(values[~np.isnan(values)])
    n, total = len(known), float(known.sum())
    if n == 0 or total == 0:
        return {"gini": 0.0 if n else math.nan, "jain": 1.0 if n else math.nan, "gap": 0.0 if n else math.nan}
    gini = float((2 * np.arange(1, n + 1) - n - 1) @ known) / (n * total)
    return {"gini": gini, "jain": total**2 / (n * float(known @ known)), "gap": float(known[-1] - known[0])}
