r"""Federations of time series: every client has one, and forecasts its own future from its own past.

    x_t = (s_{t-L+1}, .., s_t),   y_t = (s_{t+1}, .., s_{t+H})        stride 1, T - L - H + 1 windows per client
    train | validation | test = the first round((1 - val - test) n), the rest, the last round(test n) of n windows
    (val = 0: all but the test windows are train)

Windows are views of the series (`panacea.data.storage`): 207 sensors with 34,249 windows each take the memory of 207
series, not of 24 times as much.

A missing value is NaN here. As a target it counts in no loss and no metric (`Task.missing`). As an input it is replaced
by the last observed value of the same series, and before the first one by the client's mean over the train span; so
nothing of the future is used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field, model_validator

from panacea.data.federation import Federation
from panacea.data.registry import NaturalKeys
from panacea.data.scaling import MIN_MAX
from panacea.data.storage import window_views
from panacea.data.task import Task
from panacea.errors import RequestError
from panacea.graphs import ClientGraph

__all__ = ["Scale", "Series", "SeriesKeys", "forecasting", "spans"]

Scale = Literal["client_minmax", "global_zscore", "raw"]

Floats = npt.NDArray[np.float32]


class SeriesKeys(NaturalKeys):
    """Keys of a federation of time series; a data set sets its own defaults."""

    val: float = Field(0.1, ge=0, lt=1, description="share of all windows, between train and test, to choose rounds")
    test: float = Field(0.2, gt=0, lt=1, description="share of all windows, the last ones, for the test split")
    length: int = Field(12, ge=1, description="steps of an input")
    horizon: int = Field(12, ge=1, description="steps that are forecast")

    @model_validator(mode="after")
    def _leaves_train(self) -> SeriesKeys:
        if self.val + self.test >= 1:
            raise ValueError(f"val={self.val} and test={self.test} leave no train windows")
        return self


@dataclass(frozen=True)
class Series:
    """What a loader read.

    Attributes:
        values: ``[clients, steps]`` float32 in the data's own unit, NaN where missing.
        names: one per client.
        unit: of the values, e.g. ``mph``; the stated scale where nothing is scaled.
        clock: ``[steps]`` a second input in [0, 1), the same for all clients (the time of day), or None.
        graph: over the clients in this order.
        features: ``[clients, d]``, coordinates for instance, or None.
        partial: see `Federation.partial`.
        notes: see `Federation.notes`.
        flat_range: what a client whose train values are all equal is divided by in `client_minmax` (1 for counts: one
            passenger stays one); by default such a client is refused.
    """

    values: Floats
    names: tuple[str, ...]
    unit: str
    clock: Floats | None = None
    graph: ClientGraph | None = None
    features: Floats | None = None
    partial: str = ""
    notes: tuple[str, ...] = ()
    flat_range: float | None = None

    def take(self, clients: int | None, name: str) -> Series:
        """The first clients only."""
        total = len(self.names)
        if clients is None or clients == total:
            return self
        if clients > total:
            raise RequestError(f"data.clients={clients}: {name} has {total} clients here")
        return replace(
            self,
            values=self.values[:clients],
            names=self.names[:clients],
            graph=None if self.graph is None else self.graph.take(np.arange(clients)),
            features=None if self.features is None else self.features[:clients],
        )


def forecasting(name: str, series: Series, keys: SeriesKeys, scale: Scale) -> Federation:
    """Cut every client's series into windows, split them by time and scale them by what the train windows hold."""
    series = series.take(keys.clients, name)
    clients, steps = series.values.shape
    n_train, n_test, windows = _counts(name, steps, keys)
    span, _ = spans(name, steps, keys)
    values, stated, level = _scaled(name, series, scale, span)
    inputs, filled = _filled(values, span)
    columns = [inputs] if series.clock is None else [inputs, np.broadcast_to(series.clock, inputs.shape)]
    stacked = np.stack(columns, axis=-1).astype(np.float32, copy=False).reshape(clients * steps, len(columns))
    flat = torch.from_numpy(stacked)
    x, y = window_views(flat, torch.from_numpy(np.ascontiguousarray(values).reshape(-1)), keys.length, keys.horizon)
    first = np.arange(clients, dtype=np.int64)[:, None] * steps
    notes = series.notes
    if level:
        notes = (
            *notes,
            f"{level} client(s) with one value throughout the train span: divided by {series.flat_range:g}",
        )
    if filled:
        share = f"{100 * filled / values.size:.2g} %"
        notes = (*notes, f"{filled:,} of {values.size:,} values ({share}) are missing: not scored, not trained on")
    return Federation(
        name=name,
        task=Task(
            "forecasting",
            inputs=(keys.length, len(columns)),
            outputs=(keys.horizon,),
            scale=stated,
            missing=filled > 0,
        ),
        x=x,
        y=y,
        bounds=first + np.array([0, n_train, windows - n_test, windows], np.int64),
        names=series.names,
        graph=series.graph,
        features=series.features,
        notes=notes,
        partial=series.partial,
    )


def spans(name: str, steps: int, keys: SeriesKeys) -> tuple[int, int]:
    """How many first steps train windows see (scales are fitted on them), and the first step of a test target."""
    n_train, n_test, windows = _counts(name, steps, keys)
    return n_train + keys.length + keys.horizon - 1, windows - n_test + keys.length


def _counts(name: str, steps: int, keys: SeriesKeys) -> tuple[int, int, int]:
    """Windows for training, for the test, and in all."""
    windows = steps - keys.length - keys.horizon + 1
    n_test = round(keys.test * windows)
    n_train = windows - n_test  # all that is left without validation; never more, though both may be rounded up
    if keys.val > 0:
        n_train = min(n_train, round((1 - keys.val - keys.test) * windows))
    if windows < 1 or n_train < 1 or n_test < 1:
        raise RequestError(
            f"{name}: {steps} steps give {max(windows, 0)} windows of {keys.length} + {keys.horizon} steps; too few to "
            "divide into train, validation and test (data.length, data.horizon)"
        )
    return n_train, n_test, windows


def _scaled(name: str, series: Series, scale: Scale, span: int) -> tuple[Floats, str, int]:
    """The values in the scale asked for, its name, and how many clients had no range of their own.

    Fitted on the steps that train windows see.
    """
    train = series.values[:, :span]
    _check_observed(name, series.names, train)
    if scale == "raw":
        return series.values, series.unit, 0
    if scale == "global_zscore":
        mean, spread = np.nanmean(train, dtype=np.float64), np.nanstd(train, dtype=np.float64)
        ones = np.ones(len(train))
        return _moved(series.values, mean * ones, (spread if spread > 0 else 1.0) * ones), "global z-score", 0
    low, high = np.nanmin(train, axis=1).astype(np.float64), np.nanmax(train, axis=1).astype(np.float64)
    flat = np.flatnonzero(~(high > low))
    if len(flat) and series.flat_range is None:
        raise RequestError(
            f"{name}: client '{series.names[flat[0]]}' has the same value in the whole train span "
            f"({low[flat[0]]:g}); it cannot be scaled to [0, 1]: choose another data.scale"
        )
    width = np.where(high > low, high - low, series.flat_range or 1.0)
    return _moved(series.values, low, width), MIN_MAX, len(flat)


def _moved(values: Floats, shift: npt.NDArray[np.float64], width: npt.NDArray[np.float64]) -> Floats:
    """``(values - shift) / width`` per client, in double precision; one client at a time needs little memory."""
    moved = np.empty_like(values)
    for client, row in enumerate(values):
        moved[client] = (row - shift[client]) / width[client]
    return moved


def _check_observed(name: str, names: tuple[str, ...], train: Floats) -> None:
    empty = np.flatnonzero(np.isnan(train).all(axis=1))
    if len(empty):
        raise RequestError(f"{name}: client '{names[empty[0]]}' has no observed value in the train span")


def _filled(values: Floats, span: int) -> tuple[Floats, int]:
    """Inputs without gaps (see the module), and how many values were missing."""
    gaps = np.isnan(values)
    if not gaps.any():
        return values, 0
    filled = values.copy()
    steps = np.arange(values.shape[1])
    for client in np.flatnonzero(gaps.any(axis=1)):
        last = np.maximum.accumulate(np.where(gaps[client], -1, steps))
        before = np.nanmean(values[client, :span], dtype=np.float64)
        filled[client] = np.where(last >= 0, values[client, np.maximum(last, 0)], before)
    return filled, int(gaps.sum())
