"""Which runs belong together: suites (one data set and metric), and in them series (one setting, several seeds)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from panacea.experiment.table import data_title
from panacea.report.page.reading import Floats, StoredRun

__all__ = ["Series", "Suite", "group_runs", "setting", "skewed"]

# keys that change no number of a run, or that only say where it lies
_PLACES = ("out", "data_digest", "checkpoint_every", "track", "block", "threads", "data.root")


@dataclass(frozen=True)
class Series:
    """Runs that differ in their seed only.

    Attributes:
        label: the method's name, and the keys in which its series differ.
        setting: all keys that matter, without seeds.
        runs: one per seed, in order.
    """

    label: str
    setting: dict[str, Any]
    runs: tuple[StoredRun, ...]

    @property
    def method(self) -> str:
        """The method's name."""
        return str(self.runs[0].summary["method"])

    def numbers(self, key: str) -> list[float]:
        """A number of the summaries, of the runs that have it."""
        return [float(run.summary[key]) for run in self.runs if run.summary.get(key) is not None]

    def pooled(self, *, novel: bool = False) -> Floats:
        """The metric of all clients of all seeds: honest training clients, or novel ones."""
        parts = [run.columns["metric"][run.novel if novel else run.counted] for run in self.runs]
        values = np.concatenate(parts)
        return np.asarray(values[~np.isnan(values)])


@dataclass(frozen=True)
class Suite:
    """Series that can be compared: the same data set and metric."""

    title: str
    metric: str
    series: tuple[Series, ...]

    @property
    def higher_is_better(self) -> bool:
        """Direction of the metric."""
        return self.metric == "accuracy"

    @property
    def runs(self) -> list[StoredRun]:
        """All of them, series by series."""
        return [run for one in self.series for run in one.runs]

    @property
    def attacked(self) -> bool:
        """Whether somebody attacks in some run, so that means are over the honest."""
        return any(run.summary.get("attackers") for run in self.runs)

    @property
    def axis(self) -> str:
        """The metric with its unit."""
        return "accuracy, %" if self.higher_is_better else "mean squared error"


def skewed(suite: Suite) -> bool:
    """Whether a few clients have an error so much larger than the others that only a logarithmic axis shows both."""
    values = np.concatenate([one.pooled() for one in suite.series])
    positive = values[values > 0]
    if suite.higher_is_better or not len(positive) or len(positive) < len(values):
        return False
    return bool(positive.max() > 20 * np.median(positive))


def setting(run: StoredRun) -> dict[str, Any]:
    """The keys of a run that decide its numbers, without seeds."""
    return {key: value for key, value in run.config.items() if key not in _PLACES and key.rpartition(".")[2] != "seed"}


def group_runs(runs: Iterable[StoredRun]) -> list[Suite]:
    """Suites in the order of their first run; series likewise, numbers of varied keys ascending."""
    suites: dict[tuple[str, str], list[StoredRun]] = {}
    for run in runs:
        suites.setdefault((data_title(run.summary), str(run.summary["metric"])), []).append(run)
    return [Suite(title, metric, _series(some)) for (title, metric), some in suites.items()]


def _series(runs: Sequence[StoredRun]) -> tuple[Series, ...]:
    methods: dict[str, list[StoredRun]] = {}
    for run in runs:
        methods.setdefault(str(run.summary["method"]), []).append(run)
    found = []
    for method, some in methods.items():
        together: dict[str, list[StoredRun]] = {}
        for run in some:
            together.setdefault(repr(sorted(setting(run).items(), key=lambda item: item[0])), []).append(run)
        settings = [setting(members[0]) for members in together.values()]
        varied = [key for key in _all_keys(settings) if len({repr(one[key]) for one in settings if key in one}) > 1]
        named = [_label(method, one, varied) for one in settings]
        lines = [
            Series(label, one, tuple(sorted(members, key=lambda run: run.seed)))
            for label, one, members in zip(named, settings, together.values(), strict=True)
        ]
        found += sorted(lines, key=lambda line: [_sortable(line.setting.get(key)) for key in varied])
    return tuple(found)


def _all_keys(settings: Iterable[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(key for one in settings for key in one))


def _label(method: str, one: dict[str, Any], varied: Sequence[str]) -> str:
    """The method, and its values of the varied keys that it has (without an attack there are no keys of one)."""
    parts = [f"{key}={one[key]}" for key in varied if key in one]
    return ", ".join([method, *parts])


def _sortable(value: Any) -> tuple[int, float, str]:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return (0, float(value), "") if number else (1, 0.0, str(value))
