"""The built-in data sets, one file each; importing this package registers them."""

from panacea.data.sources import cifar, digits, emnist, fl60, folder, mnist, tpt48

__all__ = ["cifar", "digits", "emnist", "fl60", "folder", "mnist", "tpt48"]
