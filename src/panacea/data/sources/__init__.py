"""The built-in data sets, one file each; importing this package registers them."""

from panacea.data.sources import (
    celeba,
    chickenpox,
    compcars,
    compcars_like,
    digits,
    england_covid,
    femnist,
    fl60,
    folder,
    molene,
    montevideo_bus,
    pemsd7_m,
    tpt48,
    traffic,
)

__all__ = [
    "celeba",
    "chickenpox",
    "compcars",
    "compcars_like",
    "digits",
    "england_covid",
    "femnist",
    "fl60",
    "folder",
    "molene",
    "montevideo_bus",
    "pemsd7_m",
    "tpt48",
    "traffic",
]
