"""Scales of regression data, fitted on training samples only."""

from __future__ import annotations

from dataclasses import replace

import torch

from panacea.data.federation import Federation
from panacea.errors import RequestError

__all__ = ["MIN_MAX", "min_max_per_client"]

MIN_MAX = "per-client min-max"


def min_max_per_client(federation: Federation) -> Federation:
    """The same federation with each client's inputs and targets divided by one range of its own.

    A client's smallest and largest value over the inputs and targets of its train split (without val and test) become
    0 and 1, so its other samples may lie a little outside.
    """
    x, y = federation.x.double(), federation.y.double()
    for client, (first, val, _, end) in enumerate(federation.bounds):
        train = torch.cat([x[first:val].flatten(), y[first:val].flatten()])
        low, high = train.min(), train.max()
        if not high > low:
            raise RequestError(
                f"{federation.name}: client '{federation.names[client]}' has the same value everywhere ({float(low)}); "
                "it cannot be scaled to [0, 1]"
            )
        x[first:end] = (x[first:end] - low) / (high - low)
        y[first:end] = (y[first:end] - low) / (high - low)
    return replace(federation, task=replace(federation.task, scale=MIN_MAX), x=x.float(), y=y.float())
