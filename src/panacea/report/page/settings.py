"""The tab on configuration and environment: what differs between runs first, then what they share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from panacea.experiment.keys import flatten
from panacea.report.page.reading import StoredRun
from panacea.report.page.series import Suite

__all__ = ["settings"]

_TEXTS = 400_000  # characters of whole configurations, at most
_QUIET = ("out", "data_digest", "environment.started")  # differ always and say nothing


def _keys(run: StoredRun) -> dict[str, str]:
    """Configuration and environment as text; a method's own parameters carry its name: ``ditto: lam``."""
    found = {}
    for key, value in run.config.items():
        own = key.startswith("method.")
        found[f"{run.summary['method']}: {key[7:]}" if own else key] = _text(value)
    return found | {f"environment.{key}": _text(value) for key, value in flatten(run.environment).items()}


def _text(value: Any) -> str:
    return "-" if value is None else ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _row(key: str, every: Sequence[Mapping[str, str]]) -> list[str]:
    return [one.get(key, "") for one in every]


def settings(suite: Suite) -> dict[str, Any]:
    """Keys that differ (a column per run, or the list of values where runs are many), keys that are common, texts."""
    runs = suite.runs
    every = [_keys(run) for run in runs]
    names = list(dict.fromkeys(key for one in every for key in one))
    differ, same = [], []
    for key in names:
        values = list(dict.fromkeys(one[key] for one in every if key in one))
        if len(values) == 1 and (": " in key or all(key in one for one in every)):
            same.append([key, values[0]])
        elif key not in _QUIET:
            differ.append([key, *_row(key, every)])
    texts, room = [], _TEXTS
    for run in runs:
        room -= len(run.text)
        if room > 0:
            texts.append({"name": run.name, "text": run.text})
    return {"runs": [run.name for run in runs], "differ": differ, "same": same, "texts": texts}
