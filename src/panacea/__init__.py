"""Panacea: one personal model for each of many related parties, without sharing data.

>>> import panacea as pn
>>> fed = pn.load("fl60", seed=0, clients=6)
>>> run = pn.train(fed, method="fedavg", rounds=2, seed=0)
>>> run.summary["rounds"]
2
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from panacea.api import Comparison, Run, compare, open_run, train
    from panacea.data.federation import Federation
    from panacea.data.load import load
    from panacea.data.task import Task

__version__ = "0.1.0"

__all__ = ["Comparison", "Federation", "Run", "Task", "__version__", "compare", "load", "open_run", "train"]

_HOMES = {
    "Comparison": "panacea.api",
    "Federation": "panacea.data.federation",
    "Run": "panacea.api",
    "Task": "panacea.data.task",
    "compare": "panacea.api",
    "load": "panacea.data.load",
    "open_run": "panacea.api",
    "train": "panacea.api",
}


def __getattr__(name: str) -> object:
    """Public names are imported when they are first used, so that `panacea --help` does not import torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'panacea' has no attribute '{name}'")
    import importlib  # noqa: PLC0415

    value: object = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
