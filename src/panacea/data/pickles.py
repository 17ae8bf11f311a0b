"""Reading other people's pickles without running their code.

A pickle is a small program: it may name any function and call it. Published data sets come as pickles all the same
(DCRNN's graphs, CIFAR's batches, the temperatures of GRDA). Those need nothing but NumPy arrays in plain containers, so
that is all that is allowed here; a pickle that names anything else is refused before it is called.

NumPy's own functions are not called with what a pickle says either. A dtype's state may declare eight bytes of the file
to be the address of a Python object, and NumPy would follow it; so only the names of plain number and text types are
read, and arrays are made from them and from bytes.
"""

from __future__ import annotations

import _codecs
import io
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from panacea.data.reading import file_bytes
from panacea.errors import RequestError

__all__ = ["parse_pickle", "read_pickle"]

_PLAIN = re.compile(r"[<>|=]?([biufcSU]\d{1,9}|\?)")  # numbers, truth values, texts; no objects, no records


def _encode(text: str, codec: str = "latin1") -> bytes:
    """How protocol 2 writes bytes."""
    if codec not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError(f"codec '{codec}' is not allowed")
    return _codecs.encode(text, "latin1")


def _no_bytes() -> bytes:
    """How protocol 2 writes no bytes at all: it calls ``bytes()``."""
    return b""


class _Type:
    """What a pickle makes of ``numpy.dtype``: a plain type; its state may only add the order of bytes."""

    def __init__(self, code: object, *_: object) -> None:
        if not isinstance(code, str) or not _PLAIN.fullmatch(code):
            raise pickle.UnpicklingError(f"it has an array of type {code!r}; only numbers and texts are allowed")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: Any) -> None:
        order, base, names, fields = state[1:5]
        if (base, names, fields) != (None, None, None) or order not in ("<", ">", "|", "="):
            raise pickle.UnpicklingError("it has an array of records; only numbers and texts are allowed")
        if order in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(order)


class _Array(np.ndarray[Any, Any]):
    """An array that a pickle is about to fill."""

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, fortran, data = state
        plain: Any = (1, shape, _dtype(kind), bool(fortran), _raw(data))
        super().__setstate__(plain)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.view(np.ndarray).__reduce_ex__(protocol)  # for others it is an array like any other


def _dtype(kind: object) -> np.dtype[Any]:
    if not isinstance(kind, _Type):
        raise pickle.UnpicklingError("it has an array without a type")
    return kind.dtype


def _raw(data: object) -> bytes:
    """The bytes of an array; Python 2 has them as text."""
    if not isinstance(data, str | bytes | bytearray):
        raise pickle.UnpicklingError("it has an array of objects; only numbers and texts are allowed")
    return data.encode("latin1") if isinstance(data, str) else bytes(data)


def _reconstruct(*_: object) -> _Array:
    return np.zeros(0, np.int8).view(_Array)


def _scalar(kind: object, data: object) -> Any:
    return np.frombuffer(_raw(data), _dtype(kind), count=1)[0]


def _from_buffer(data: object, kind: object, shape: Any, order: Any) -> npt.NDArray[Any]:
    """How protocol 5 writes arrays."""
    return np.frombuffer(_raw(data), _dtype(kind)).reshape(shape, order=order).copy(order="K")


_ALLOWED: dict[tuple[str, str], Callable[..., Any] | str] = {
    ("numpy", "ndarray"): "numpy.ndarray",  # named as an argument, never called
    ("numpy", "dtype"): _Type,
    ("_codecs", "encode"): _encode,
    ("__builtin__", "bytes"): _no_bytes,
}
for _core in ("numpy.core", "numpy._core"):
    _ALLOWED[f"{_core}.multiarray", "_reconstruct"] = _reconstruct
    _ALLOWED[f"{_core}.multiarray", "scalar"] = _scalar
    _ALLOWED[f"{_core}.numeric", "_frombuffer"] = _from_buffer


class _Reader(pickle._Unpickler):
    """Knows NumPy's arrays, and nothing else that could be called.

    The reader in Python, because the one in C makes room for as many remembered objects as a pickle says it has: ten
    bytes can ask for 30 GB.
    """

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
