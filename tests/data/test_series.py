"""Federations of time series: how windows are divided, and whom an error names."""

from __future__ import annotations

import numpy as np
import pytest

from panacea.data.federation import Federation
from panacea.data.series import Series, SeriesKeys, forecasting, spans
from panacea.errors import RequestError


def _federation(values: np.ndarray, **keys: float) -> Federation:
    names = tuple("abcdef"[: len(values)])
    return forecasting("toy", Series(values, names, "unit"), SeriesKeys(**keys), "raw")  # type: ignore[arg-type]


@pytest.mark.parametrize(("client", "step"), [(0, 3), (0, 59), (1, 40), (1, 50), (1, 59), (2, 59)])
@pytest.mark.parametrize("sizes", [{"length": 12, "horizon": 12}, {"length": 4, "horizon": 1}])
def test_an_infinite_value_is_laid_to_its_own_client(client: int, step: int, sizes: dict[str, float]) -> None:
    """Also behind the client's last window, where the next client's rows have not begun."""
    values = np.ones((3, 60), np.float32)
    values[client, step] = np.inf
    with pytest.raises(RequestError, match=f"toy: client '{'abc'[client]}' has a NaN or infinite (input|target)"):
        _federation(values, **sizes)


@pytest.mark.parametrize("steps", range(30, 50))
@pytest.mark.parametrize(("val", "test"), [(0.0, 0.5), (0.0, 0.2), (0.25, 0.25), (0.1, 0.2)])
def test_shares_that_are_both_rounded_up_still_fit(steps: int, val: float, test: float) -> None:
    """15 windows in two halves: 8 are test, 7 train; and without validation nothing is left between."""
    fed = _federation(np.arange(steps, dtype=np.float32)[None], length=3, horizon=1, val=val, test=test)
    windows = steps - 3
    n_train, n_val, n_test = (int(fed.counts(split)[0]) for split in ("train", "val", "test"))
    assert (n_train + n_val + n_test, n_test) == (windows, round(test * windows))
    assert abs(n_train - (1 - val - test) * windows) <= 1
    assert n_val == 0 or val > 0
    span, first = spans("toy", steps, SeriesKeys(length=3, horizon=1, val=val, test=test))
    assert (span, first) == (n_train + 3, windows - n_test + 3)
