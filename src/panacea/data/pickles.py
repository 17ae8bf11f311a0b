"""Reading other people's pickles without running their code.

A pickle is a small program: it may name any function and call it. Published data sets come as pickles all the same
(DCRNN's graphs, CIFAR's batches, the temperatures of GRDA). Those need nothing but NumPy arrays in plain containers, so
that is all that is allowed here; a pickle that names anything else is refused before it is called.
"""

from __future__ import annotations

import _codecs
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from panacea.data.reading import file_bytes
from panacea.errors import RequestError

__all__ = ["parse_pickle", "read_pickle"]


def _encode(text: str, codec: str = "latin1") -> bytes:
    """How protocol 2 writes bytes."""
    if codec not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError(f"codec '{codec}' is not allowed")
    return _codecs.encode(text, "latin1")


def _allowed() -> dict[tuple[str, str], Callable[..., Any]]:
    reconstruct: Any = np.zeros(0).__reduce__()[0]
    scalar: Any = np.float64(0).__reduce__()[0]
    named: dict[tuple[str, str], Callable[..., Any]] = {
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
        ("_codecs", "encode"): _encode,
    }
    for module in ("numpy.core.multiarray", "numpy._core.multiarray"):
        named[module, "_reconstruct"] = reconstruct
        named[module, "scalar"] = scalar
    return named


_ALLOWED = _allowed()


class _Reader(pickle.Unpickler):
    """Knows NumPy's arrays, and nothing else that could be called."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is not allowed") from None


def read_pickle(path: Path) -> Any:
    """The content of a pickle (plain or gzipped, Python 2 or 3): numbers, text, containers and NumPy arrays.

    Raises:
        RequestError: the file is damaged, or holds anything else; names the file, the byte and what was asked for.
    """
    return parse_pickle(file_bytes(path), str(path))


def parse_pickle(data: bytes, name: str) -> Any:
    """Like `read_pickle`, from bytes; `name` is what errors call them."""
    stream = io.BytesIO(data)
    try:
        return _Reader(stream, encoding="latin1").load()  # restricted: see the class
    except Exception as error:  # a damaged pickle may fail in any way
        what = str(error) or type(error).__name__
        raise RequestError(
            f"{name}: not a pickle of plain NumPy arrays, near byte {stream.tell()} ({what})".splitlines()[0]
        ) from None
