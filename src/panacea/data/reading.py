"""Reading data files: plain or gzipped bytes, plain arrays; a damaged file is one line that names it."""

from __future__ import annotations

import gzip
import io
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from panacea.errors import RequestError

__all__ = ["file_bytes", "file_text", "npz_arrays"]

_GZIP = b"\x1f\x8b"
_CHUNK = 1 << 20


def file_bytes(path: Path) -> bytes:
    """All bytes of a file, unpacked where it is gzipped (by content, whatever its name)."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RequestError(f"{path}: cannot be read ({error.strerror or error})") from None
    if not data.startswith(_GZIP):
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise RequestError(
            f"{path}: a damaged gzip file, truncated or altered after {_sound(data):,} unpacked bytes ({error})"
        ) from None


def file_text(path: Path) -> str:
    """The text of a file in UTF-8, plain or gzipped."""
    data = file_bytes(path)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RequestError(f"{path}: not a text file in UTF-8 (byte {error.start})") from None


def npz_arrays(path: Path, needed: Iterable[str], optional: Iterable[str] = ()) -> dict[str, npt.NDArray[np.generic]]:
    """Named arrays of an npz file; never a pickle.

    Raises:
        RequestError: the file is damaged, holds objects, or lacks an array that is needed.
    """
    wanted = list(needed)
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in (*wanted, *optional) if name in file.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error, AttributeError, TypeError) as error:
        raise RequestError(f"{path}: not an npz file of plain arrays ({error})".splitlines()[0]) from None
    absent = [name for name in wanted if name not in arrays]
    if absent:
        raise RequestError(f"{path}: no array '{absent[0]}'; it needs {', '.join(wanted)}")
    loose = [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]  # NumPy gives bytes for them
    if loose:
        raise RequestError(f"{path}: '{loose[0]}' is not an array")
    return arrays


def _sound(data: bytes) -> int:
    """Bytes that come out of a damaged gzip file before the damage."""
    count = 0
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            while chunk := file.read(_CHUNK):
                count += len(chunk)
    except (OSError, EOFError, zlib.error):
        pass
    return count
