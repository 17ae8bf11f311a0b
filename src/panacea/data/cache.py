"""A compact, verified copy of what a loader read, so that the second load takes a moment.

One safetensors file per data set and set of source files, in ``$PANACEA_CACHE``, else ``panacea/prepared`` in the
user's cache folder. Its name says which files it was made from (their places, sizes and times of change) and by which
version of the loader, so another download or a newer loader never finds an old copy. Its tensors are checked against a
checksum when they are read; a damaged copy is made anew. Nothing in it is ever executed.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load, save

from panacea.core.files import write_atomically

__all__ = ["Arrays", "cache_folder", "cached", "packed", "unpacked"]

_FORGOTTEN = 3600.0  # seconds

Arrays = dict[str, npt.NDArray[np.generic]]


def cache_folder() -> Path:
    """Where prepared copies are kept; safe to delete at any time."""
    given = os.environ.get("PANACEA_CACHE")
    if given:
        return Path(given).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path("~/.cache").expanduser()) / "panacea" / "prepared"


def cached(name: str, files: Iterable[Path], version: int, read: Callable[[], Arrays]) -> Arrays:
    """What `read` gives, from the prepared copy where there is a sound one.

    Args:
        name: the data set (and variant).
        files: everything `read` looks at.
        version: of the loader; a change of meaning needs a new one.
        read: the slow way; numeric arrays only (text is `packed`).

    A folder that cannot be written to costs the speed, never the result.
    """
    path = cache_folder() / f"{name}-{_identity(files, version)}.safetensors"
    arrays = _open(path)
    if arrays is None:
        arrays = {key: np.ascontiguousarray(value) for key, value in read().items()}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _clear_leftovers(path.parent)
            write_atomically(path, save(arrays, {"sha256": _checksum(arrays)}))
        except OSError:
            pass
    return arrays


def packed(texts: Iterable[str]) -> npt.NDArray[np.uint8]:
    """Texts as one array of bytes, for a copy.

    >>> unpacked(packed(["sensor 1", "Zürich"]))
    ['sensor 1', 'Zürich']
    """
    return np.frombuffer(json.dumps(list(texts)).encode(), np.uint8)


def unpacked(array: npt.NDArray[np.generic]) -> list[str]:
    """The texts that were `packed`."""
    return [str(text) for text in json.loads(array.tobytes())]


def _clear_leftovers(folder: Path) -> None:
    """Remove what processes that were killed while writing left behind, an hour ago or longer."""
    for part in folder.glob(".*.part"):
        if time.time() - part.stat().st_mtime > _FORGOTTEN:
            part.unlink(missing_ok=True)


def _identity(files: Iterable[Path], version: int) -> str:
    stats = [(str(path.resolve()), (stat := path.stat()).st_size, stat.st_mtime_ns) for path in sorted(files)]
    return hashlib.sha256(json.dumps([version, stats]).encode()).hexdigest()[:16]


def _open(path: Path) -> Arrays | None:
    """The arrays of a copy, or None where it is missing or not as it was written."""
    try:
        data = path.read_bytes()
        arrays: Arrays = load(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    except (OSError, SafetensorError, ValueError):
        return None
    return arrays if header.get("__metadata__", {}).get("sha256") == _checksum(arrays) else None


def _checksum(arrays: Mapping[str, npt.NDArray[np.generic]]) -> str:
    content = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        content.update(f"{name} {array.dtype.str} {array.shape}".encode())
        content.update(array.reshape(-1).view(np.uint8).data)
    return content.hexdigest()
