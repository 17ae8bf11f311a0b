"""The built-in data sets, one file each; importing this package registers them."""

from panacea.data.sources import (
    celeba,
    compcars,
    compcars_like,
    digits,
    femnist,
    fl60,
    folder,
    pemsd7_m,
    tpt48,
    traffic,
)

__all__ = [
    "celeba",
    "compcars",
    "compcars_like",
    "digits",
    "femnist",
    "fl60",
    "folder",
    "pemsd7_m",
    "tpt48",
    "traffic",
]
