"""Curves over rounds, bytes and seconds: one per series, with a band."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from panacea.report.page.overview import MEGA
from panacea.report.page.packing import plain
from panacea.report.page.reading import Floats
from panacea.report.page.series import Series, Suite

__all__ = ["WHAT", "curve", "curves"]

WHAT = {
    "mean": "test", "val_mean": "validation", "novel_mean": "novel clients", "worst_decile": "worst decile",
    "train_loss": "training loss", "asr_mean": "attack success",
}  # fmt: skip
_POINTS = 200  # of a curve, at most


def curve(one: Series, suite: Suite) -> dict[str, Any]:
    """The curves of a series: the mean over seeds and around it one standard deviation over seeds.

    With one seed the band of the test metric is one standard deviation over clients instead, which `band` says. Runs
    evaluated at different rounds have those in common that are evaluated in all.
    """
    common = set.intersection(*({line["round"] for line in run.lines} for run in one.runs)) if one.runs else set()
    rounds = _thinned(sorted(common))
    lines = [{line["round"]: line for line in run.lines} for run in one.runs]
    clock = [{line["round"]: spent for line, spent in zip(run.lines, run.seconds, strict=True)} for run in one.runs]

    def column(key: str) -> Floats:
        cells = [[_number(some[round].get(key)) for round in rounds] for some in lines]
        return np.array(cells, float).reshape(len(lines), len(rounds))

    traffic = (column("bytes_down") + column("bytes_up")) / MEGA
    seconds = np.array([[some[round] for round in rounds] for some in clock], float).reshape(traffic.shape)
    found: dict[str, Any] = {
        "rounds": rounds, "bytes": plain(_mean(traffic)), "seconds": plain(_mean(seconds)), "what": {},
        "band": "seeds" if len(one.runs) > 1 else "clients",
    }  # fmt: skip
    for key in WHAT:
        values = column(key)
        if not np.isfinite(values).any():
            continue
        mean, around = _mean(values), _spread(values)
        if len(one.runs) == 1:
            around = column("std")[0] if key == "mean" else np.full(len(rounds), np.nan)
        low, high = _band(key, mean, around, suite)
        found["what"][key] = {"mean": plain(mean), "low": plain(low), "high": plain(high)}
    return found


def curves(suite: Suite) -> list[dict[str, Any]]:
    """One for every series."""
    return [curve(one, suite) for one in suite.series]


def _band(key: str, mean: Floats, around: Floats, suite: Suite) -> tuple[Floats, Floats]:
    """Around the mean, cut off at what a metric can be."""
    low, high = np.maximum(mean - around, 0), mean + around
    percent = key == "asr_mean" or (suite.higher_is_better and key != "train_loss")
    return low, np.minimum(high, 100) if percent else high


def _thinned(rounds: list[int]) -> list[int]:
    """At most 200 of them, evenly, with the first and the last."""
    if len(rounds) <= _POINTS:
        return rounds
    places = np.unique(np.linspace(0, len(rounds) - 1, _POINTS).round().astype(int))
    return [rounds[place] for place in places]


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)


def _mean(values: Floats) -> Floats:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of nothing: NaN, which is what we want
        return np.asarray(np.nanmean(values, axis=0))


def _spread(values: Floats) -> Floats:
    """Standard deviation over seeds, as an estimate for other seeds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(np.nanstd(values, axis=0, ddof=1))
