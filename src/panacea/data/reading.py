"""Reading data files: plain or gzipped bytes, plain arrays; a damaged file is one line that names it."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from panacea.errors import RequestError

__all__ = ["file_bytes", "file_text", "json_content", "npz_arrays"]

_GZIP = b"\x1f\x8b"
_MOST = 1 << 31  # unpacked bytes; no published file has so many
_PIECE = 4096
_MEMBER = 31  # zlib's word for gzip


def file_bytes(path: Path) -> bytes:
    """All bytes of a file, unpacked where it is gzipped (by content, whatever its name)."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RequestError(f"{path}: cannot be read ({error.strerror or error})") from None
    if not data.startswith(_GZIP):
        return data
    try:
        return _gunzipped(data)
    except OverflowError:
        raise RequestError(f"{path}: a gzip file that unpacks to more than {_MOST:,} bytes") from None
    except (EOFError, zlib.error) as error:
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


def json_content(path: Path) -> Any:
    """What a JSON file holds, plain or gzipped."""
    text = file_text(path)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise RequestError(f"{path} line {error.lineno} column {error.colno}: not JSON ({error.msg})") from None
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits, brackets without end
        raise RequestError(f"{path}: not JSON that can be read ({error})") from None


def npz_arrays(path: Path, needed: Iterable[str], optional: Iterable[str] = ()) -> dict[str, npt.NDArray[np.generic]]:
    """Named arrays of an npz file; never a pickle.

    Raises:
        RequestError: the file is damaged, holds objects, or lacks an array that is needed.
    """
    wanted = list(needed)
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in (*wanted, *optional) if name in file.files}
    except Exception as error:  # a damaged archive or header may fail in any way
        raise RequestError(f"{path}: not an npz file of plain arrays ({error})".splitlines()[0]) from None
    absent = [name for name in wanted if name not in arrays]
    if absent:
        raise RequestError(f"{path}: no array '{absent[0]}'; it needs {', '.join(wanted)}")
    loose = [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]  # NumPy gives bytes for them
    if loose:
        raise RequestError(f"{path}: '{loose[0]}' is not an array")
    return arrays


def _gunzipped(data: bytes) -> bytes:
    """All members of a gzip file, one after the other; a few bytes may stand for gigabytes, so there is a limit."""
    parts, room = [], _MOST
    while data:
        member = zlib.decompressobj(_MEMBER)
        parts.append(member.decompress(data, room))
        room -= len(parts[-1])
        if not member.eof:
            if room <= 0:
                raise OverflowError
            raise EOFError("it ends before the end of its content")
        data = member.unused_data.lstrip(b"\0")
        room = max(room, 1)  # 0 would mean no limit
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _sound(data: bytes) -> int:
    """Bytes that come out of a damaged gzip file before the damage."""
    count = 0
    member = zlib.decompressobj(_MEMBER)
    try:
        for start in range(0, len(data), _PIECE):
            piece = data[start : start + _PIECE]
            while piece:
                count += len(member.decompress(piece))
                piece = member.unused_data
                if member.eof:
                    member = zlib.decompressobj(_MEMBER)
    except zlib.error:
        pass
    return count
