"""A federation in numbers: how many clients with how many samples of what, and how they are related."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from panacea.data.federation import SPLITS, Federation
from panacea.data.profile import client_profiles
from panacea.data.storage import contents
from panacea.graphs.summary import summarise

__all__ = ["describe", "missing_targets"]


def describe(federation: Federation) -> dict[str, Any]:
    """Everything a card shows, by name, for JSON; what there is not is None or empty."""
    task, graph = federation.task, federation.graph
    links = None if graph is None else summarise(graph, client_profiles(federation), federation.novel)
    missing, values = missing_targets(federation)
    return {
        "title": federation.title,
        "partial": federation.partial,
        "clients": len(federation),
        "novel": len(federation.novel_ids),
        "samples": federation.total,
        "per_client": _range(federation.bounds[:, 3] - federation.bounds[:, 0]),
        **{split: _range(federation.counts(split)) for split in SPLITS},
        "task": task.kind,
        "metric": task.metric,
        "classes": task.classes or None,
        "class_names": list(task.class_names),
        "inputs": list(task.inputs),
        "outputs": list(task.outputs),
        "scale": task.scale if task.metric == "mse" else None,
        "missing_targets": missing,
        "target_values": values,
        "groups": None if federation.groups is None else len(np.unique(federation.groups)),
        "features": 0 if federation.features is None else int(federation.features.shape[1]),
        "graph": None if links is None else links.to_dict(),
        "notes": list(federation.notes),
    }


def missing_targets(federation: Federation) -> tuple[int, int]:
    """Targets that were not observed, and all targets; a value that several windows hold counts once."""
    own = [contents(federation.y[start:end]) for start, end in federation.bounds[:, [0, 3]] if end > start]
    total = sum(values.numel() for values in own)
    if not federation.task.missing:
        return 0, total
    return sum(int(values.isnan().sum()) for values in own), total


def _range(counts: npt.NDArray[np.int64]) -> dict[str, int | float]:
    return {"min": int(counts.min()), "median": float(np.median(counts)), "max": int(counts.max())}
