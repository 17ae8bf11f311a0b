"""Arrays and numbers as they come over a wire, checked before any of them is used.

In this order (that something is an answer to this very order, and no error, is the transport's affair):

    1. it is a mapping with exactly the expected names    4. it can be read; nothing is unpickled
    2. each array's declared type and shape               5. type and shape of what it holds
    3. its number of bytes                                6. values (`panacea.core.messages`), numbers in their range

Whoever sent them chose all of it. Nothing here raises anything but `Refused`, whose text is the reason for the log.
"""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from panacea.core.records import Tree, named_leaves
from panacea.deploy.orders import Packed

__all__ = [
    "Refused",
    "array_bytes",
    "as_tensors",
    "checked_numbers",
    "head",
    "opened",
    "pack",
    "pack_tree",
    "plain",
    "row_of",
]

_HEADER = 1024  # bytes of an .npy header, at most
_SHOWN = 40  # characters of a stranger's word in a reason


class Refused(Exception):  # noqa: N818  (not an error: an answer)
    """Why something that came is not used: one short line."""


def plain(text: object, most: int = _SHOWN) -> str:
    """A stranger's words as they can be logged: one line, plain characters, not too many."""
    return ascii(" ".join(str(text)[: 4 * most].split()))[1:-1][:most]


def pack(values: Tensor | npt.NDArray[Any]) -> Packed:
    """An array ready to travel."""
    array = values.detach().cpu().numpy() if isinstance(values, Tensor) else values
    array = np.ascontiguousarray(array).reshape(array.shape)
    file = io.BytesIO()
    np.lib.format.write_array(file, array, allow_pickle=False)
    return Packed(array.dtype.name, tuple(array.shape), file.getvalue())


def pack_tree(tree: Tree, prefix: str) -> dict[str, Packed]:
    """All of a tree that travels, by name: ``download.params``."""
    return {name: pack(leaf) for name, leaf in named_leaves(tree, prefix, travelling=True)}


def row_of(packed: Mapping[str, Tensor], row: int) -> dict[str, Packed]:
    """One client's row of named tensors ``[rows, ...]``, ready to travel."""
    return {name: pack(leaf[row]) for name, leaf in packed.items()}


def array_bytes(arrays: Mapping[str, Packed]) -> int:
    """Of all arrays of a message."""
    return sum(len(packed.data) for packed in arrays.values())


def head(arrays: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Those whose name is the prefix, or begins with it and a dot."""
    return {name: value for name, value in arrays.items() if name == prefix or name.startswith(f"{prefix}.")}


def opened(arrays: object, expected: Mapping[str, Tensor]) -> dict[str, npt.NDArray[Any]]:
    """Arrays by name, if they are what is expected: names, types, shapes (steps 1 to 5 of the module's list).

    Raises:
        Refused: the first thing that is wrong.
    """
    if not isinstance(arrays, Mapping):
        raise Refused("arrays are not a mapping")
    names = list(itertools.islice(arrays, len(expected) + 1))
    if any(type(name) is not str for name in names):
        raise Refused("a name is not text")
    missing = [name for name in expected if name not in names]
    if missing:
        raise Refused(f"no {missing[0]}")
    extra = [name for name in names if name not in expected]
    if extra:
        raise Refused(f"{plain(extra[0])} is not expected")
    return {name: _opened(name, arrays[name], like) for name, like in expected.items()}


def _opened(name: str, packed: object, like: Tensor) -> npt.NDArray[Any]:
    kind, shape = str(like.dtype).removeprefix("torch."), tuple(like.shape)
    if type(packed) is not Packed:
        raise Refused(f"{name}: not an array")
    if packed.dtype != kind:
        raise Refused(f"{name}: declared as {plain(packed.dtype)} instead of {kind}")
    if tuple(packed.shape) != shape:
        raise Refused(f"{name}: declared shape {plain(tuple(packed.shape))} instead of {shape}")
    wanted = like.numel() * like.element_size()
    if type(packed.data) is not bytes or not wanted < len(packed.data) <= wanted + _HEADER:
        size = len(packed.data) if type(packed.data) is bytes else 0
        raise Refused(f"{name}: {size} bytes where {wanted} and a header are expected")
    file = io.BytesIO(packed.data)
    try:  # the header by itself first: `np.load` would make room for whatever it says
        version = np.lib.format.read_magic(file)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        found, backwards, dtype = read(file, max_header_size=_HEADER)
    except Exception as error:  # whatever is in it
        raise Refused(f"{name}: cannot be read ({type(error).__name__})") from None
    if dtype.hasobject or dtype.name != kind:
        raise Refused(f"{name}: holds {plain(dtype)} instead of {kind}")
    if tuple(found) != shape:
        raise Refused(f"{name}: holds shape {plain(tuple(found))} instead of {shape}")
    data = file.read()
    if len(data) != wanted:
        raise Refused(f"{name}: holds {len(data)} bytes instead of {wanted}")
    values = np.frombuffer(data, dtype).reshape(shape, order="F" if backwards else "C")
    return np.ascontiguousarray(values, dtype=dtype.newbyteorder("=")).reshape(shape)


def checked_numbers(numbers: object, allowed: Mapping[str, tuple[float, float]], needed: set[str]) -> dict[str, float]:
    """Numbers by name, each finite and in its range.

    Args:
        numbers: what came.
        allowed: the smallest and largest value of each that may come.
        needed: those that must.

    Raises:
        Refused: the first thing that is wrong.
    """
    if not isinstance(numbers, Mapping):
        raise Refused("numbers are not a mapping")
    names = list(itertools.islice(numbers, len(allowed) + 1))
    extra = [name for name in names if type(name) is not str or name not in allowed]
    if extra:
        raise Refused(f"the number {plain(extra[0])} is not expected")
    missing = sorted(needed - set(names))
    if missing:
        raise Refused(f"no number {missing[0]}")
    found = {}
    for name in names:
        value, (low, high) = numbers[name], allowed[name]
        if type(value) not in (int, float) or not math.isfinite(value):
            raise Refused(f"{name} is not a finite number")
        if not low <= value <= high:
            raise Refused(f"{name} is {value:.4g}, not between {low:g} and {high:g}")
        found[name] = float(value)
    return found


def as_tensors(arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, Tensor]:
    """Tensors of their own memory."""
    return {name: torch.from_numpy(np.array(values)) for name, values in arrays.items()}
