"""The four IDX files of Fashion-MNIST, as far as `compcars_like` needs them."""

from __future__ import annotations

from math import prod
from pathlib import Path

import numpy as np
import numpy.typing as npt

from panacea.data.paths import find_data_dir, missing_files
from panacea.data.reading import file_bytes
from panacea.errors import RequestError

__all__ = ["fashion_files", "read_fashion"]

_NAMES = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")


def fashion_files(root: Path | None, get: str) -> list[Path]:
    """The four files; an error that ends with `get` where one is missing."""
    folder = find_data_dir("fashion_mnist", root)
    paths = [] if folder is None else [_find(folder, name) for name in _NAMES]
    found = [path for path in paths if path is not None]
    if len(found) < len(_NAMES):
        raise missing_files("fashion_mnist", root, get)
    return found


def read_fashion(paths: list[Path]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Images ``[70000, 28, 28]`` and labels 0..9, train and test files together."""
    parts = [_idx(path, 3 if "idx3" in path.name else 1) for path in paths]
    for place in (0, 2):
        if len(parts[place]) != len(parts[place + 1]):
            count = f"{len(parts[place + 1]):,} labels"
            raise RequestError(f"{paths[place + 1]}: {count} for {len(parts[place]):,} images")
    labels = np.concatenate([parts[1], parts[3]]).astype(np.int64)
    if labels.max(initial=0) > 9:
        raise RequestError(f"{paths[1].parent}: label {labels.max()} in the label files; labels are 0..9")
    return np.concatenate([parts[0], parts[2]]), labels


def _find(folder: Path, name: str) -> Path | None:
    return next((path for end in ("ubyte", "ubyte.gz") if (path := folder / f"{name}-{end}").is_file()), None)


def _idx(path: Path, axes: int) -> npt.NDArray[np.uint8]:
    """Big-endian: 0, 0, 8 (bytes), number of axes; the length of each; the values."""
    data = file_bytes(path)
    start = 4 + 4 * axes
    shape = [int.from_bytes(data[place : place + 4], "big") for place in range(4, start, 4)]
    right = data[:4] == bytes((0, 0, 8, axes)) and shape[1:] == [28, 28][: axes - 1]
    if not right or len(data) != start + prod(shape):
        raise RequestError(f"{path} byte 0: not a whole IDX file of bytes with {axes} axes ({len(data):,} bytes)")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)
