"""The time of a round of several seeds that advance in lock-step."""

from __future__ import annotations

import importlib.util

__all__ = ["measure_replicas"]


def measure_replicas(seeds: int, repeats: int, device: str) -> float | None:
    """Median seconds of a round of W1 in which all seeds advance; None where this version cannot.

    Args:
        seeds: how many.
        repeats: timed rounds.
        device: where.
    """
    if importlib.util.find_spec("panacea.experiment.replicas") is None:
        return None
    raise NotImplementedError  # HOOK: written when `panacea.experiment.replicas` is there
