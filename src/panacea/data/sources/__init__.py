"""The built-in data sets, one file each; importing this package registers them."""

from panacea.data.sources import (
    chickenpox,
    digits,
    england_covid,
    fl60,
    folder,
    molene,
    montevideo_bus,
    tpt48,
)

__all__ = ["chickenpox", "digits", "england_covid", "fl60", "folder", "molene", "montevideo_bus", "tpt48"]
