"""Windows as views: what is moved to an engine is what the federation holds."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from panacea.core.random import Streams
from panacea.data.series import Series, SeriesKeys, forecasting
from panacea.data.storage import contents, moved, window_views
from panacea.engines.base import Samples

CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("horizon", [1, 2, 5])
def test_moved_windows_hold_the_same_values(dtype: torch.dtype, horizon: int) -> None:
    """Targets begin `length` steps into their series; moving without a copy must not lose that."""
    steps = torch.arange(20.0)
    x, y = window_views(torch.stack([steps, -steps], dim=1), steps.clone(), 4, horizon)
    for tensor in (x, y, x[3:], y[3:], x[2:9], y[2:9]):
        found = moved(tensor, CPU, dtype)
        assert found.dtype == dtype
        assert torch.equal(found, tensor.to(dtype))
    assert y[0].tolist() == [4.0 + i for i in range(horizon)]
    assert contents(y).tolist() == list(range(4, 20))


def test_moved_windows_still_overlap() -> None:
    steps = torch.arange(1000.0)
    x, _ = window_views(steps[:, None].clone(), steps.clone(), 12, 12)
    for dtype in (torch.float32, torch.float64):
        assert moved(x, CPU, dtype).untyped_storage().nbytes() <= 1000 * dtype.itemsize


def test_an_engine_gets_the_future_as_the_target() -> None:
    """From a series to the tensors that are trained on and scored: y follows x."""
    series = Series(np.arange(120, dtype=np.float32).reshape(2, 60), ("a", "b"), "steps")
    federation = forecasting("ramp", series, SeriesKeys(length=4, horizon=3), "raw")
    samples = Samples(federation, Streams(0), CPU, torch.float32)
    for client in (0, 1):
        first, end = federation.bounds[client, [0, 3]]
        following = samples.x[first:end, -1:, 0] + torch.arange(1.0, 4.0)
        assert torch.equal(samples.y[first:end], following)
