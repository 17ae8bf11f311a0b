"""The built-in data sets, one file each; importing this package registers them."""

from panacea.data.sources import digits, fl60, folder, pemsd7_m, tpt48, traffic

__all__ = ["digits", "fl60", "folder", "pemsd7_m", "tpt48", "traffic"]
