"""Small clients for the tests of a user's own data."""

from __future__ import annotations

import numpy as np
import pandas as pd

RNG = np.random.default_rng(0)
X = [RNG.normal(size=(n, 3)) for n in (10, 7, 12)]
LABELS = [RNG.integers(0, 3, n) for n in (10, 7, 12)]
AMOUNTS = [RNG.normal(size=n) for n in (10, 7, 12)]


def frames() -> list[pd.DataFrame]:
    return [pd.DataFrame(x, columns=["temp", "wind", "rain"]).assign(load=y) for x, y in zip(X, AMOUNTS, strict=True)]


FRAMES = {
    name: pd.DataFrame(np.random.default_rng(n).normal(size=(n, 3)), columns=["temp", "wind", "load"])
    for name, n in (("site1", 10), ("site2", 8), ("site10", 20))
}
