"""Where data files are looked for."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from panacea.errors import RequestError

__all__ = ["MissingFilesError", "data_root", "find_data_dir", "missing_files", "package_folder"]


class MissingFilesError(RequestError):
    """The files of a data set are not there; what is known without them still is."""


def data_root(root: str | os.PathLike[str] | None = None) -> Path:
    """The folder with data files: the one given, else ``$PANACEA_DATA``, else the user's cache."""
    if root is not None:
        return Path(root).expanduser()
    if os.environ.get("PANACEA_DATA"):
        return Path(os.environ["PANACEA_DATA"]).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path("~/.cache").expanduser()) / "panacea"


def find_data_dir(name: str, root: str | os.PathLike[str] | None = None) -> Path | None:
    """The folder of a data set, ``<root>/<name>`` with ``-`` or ``_`` in the name; None where there is none."""
    for spelling in dict.fromkeys((name, name.replace("_", "-"), name.replace("-", "_"))):
        folder = data_root(root) / spelling
        if folder.is_dir():
            return folder
    return None


def package_folder(package: str, inside: str) -> Path | None:
    """A folder of an installed package, found without importing it; None where there is none."""
    found = importlib.util.find_spec(package)
    places = [] if found is None else [Path(place) / inside for place in found.submodule_search_locations or ()]
    return next((place for place in places if place.is_dir()), None)


def missing_files(name: str, root: str | os.PathLike[str] | None, what_to_do: str) -> MissingFilesError:
    """The error for a data set whose files are not there; `what_to_do` is the end of the sentence.

    >>> str(missing_files("digits", "/data", "place digits.csv.gz there"))
    "data set 'digits': no files in /data/digits; place digits.csv.gz there"
    """
    return MissingFilesError(f"data set '{name}': no files in {data_root(root) / name}; {what_to_do}")
