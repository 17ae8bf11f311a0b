"""Federations: built-in data sets and the user's own."""

from panacea.data.federation import Federation
from panacea.data.load import load
from panacea.data.own import from_arrays, from_folder
from panacea.data.picture import label_picture
from panacea.data.registry import dataset, dataset_names, find_dataset
from panacea.data.task import Task

__all__ = [
    "Federation",
    "Task",
    "dataset",
    "dataset_names",
    "find_dataset",
    "from_arrays",
    "from_folder",
    "label_picture",
    "load",
]
