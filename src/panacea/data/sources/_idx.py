"""The IDX format of MNIST and its relatives: a few big-endian numbers, then bytes; plain or gzipped.

images: 0x00000803, count, rows, columns, then a byte per pixel        labels: 0x00000801, count, a byte per label
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
import numpy.typing as npt

from panacea.data.cache import cached
from panacea.data.federation import Federation
from panacea.data.paths import data_root, find_data_dir, missing_files
from panacea.data.reading import file_bytes
from panacea.data.sources._images import (
    Arrays,
    ImageFile,
    ImageSet,
    arrays_of,
    check_labels,
    federation_of,
    unknown_files,
)
from panacea.data.split import PoolKeys
from panacea.errors import RequestError

__all__ = ["Layout", "Pair", "find_pairs", "idx_federation", "parse_idx", "paths_of", "read_pair"]

_VERSION = 1
_UNSIGNED_BYTES = 0x08
_SPELLINGS = ("{prefix}-{what}-{kind}-ubyte", "{prefix}-{what}.{kind}-ubyte")


@dataclass(frozen=True)
class Layout:
    """How the files of a set are called, and where they may lie beside ``<data.root>/<name>``.

    Attributes:
        torchvision: its folder there (``<torchvision>/raw``).
        prefixes: how the files of each split may begin (``{"train": ["train"], "test": ["t10k", "test"]}``).
        elsewhere: more folders.
        variant: of the prepared copy, where keys change what is read.
    """

    torchvision: str
    prefixes: Mapping[str, Sequence[str]]
    elsewhere: tuple[Path, ...] = ()
    variant: str = ""


@dataclass(frozen=True)
class Pair:
    """The two files of a split."""

    images: Path
    labels: Path


def parse_idx(data: bytes, path: Path, dims: int) -> npt.NDArray[np.uint8]:
    """The array of an IDX file of unsigned bytes.

    Args:
        data: the file's bytes, unpacked.
        path: what errors call the file.
        dims: axes it must have: 3 for images, 1 for labels.
    """
    head = 4 + 4 * dims
    expected = _UNSIGNED_BYTES << 8 | dims
    magic = int.from_bytes(data[:4], "big")
    if len(data) < head or magic != expected:
        raise RequestError(
            f"{path} byte 0: not an IDX file of {dims} axes of bytes (magic number 0x{magic:08x} in {len(data):,} "
            f"bytes; it must be 0x{expected:08x})"
        )
    shape = struct.unpack(f">{dims}I", data[4:head])
    each = prod(shape[1:])
    if len(data) - head != shape[0] * each:
        where = (len(data) - head) // max(each, 1)
        found = f"ends in item {where:,}" if where < shape[0] else f"has {len(data) - head - shape[0] * each:,} more"
        raise RequestError(
            f"{path} byte {len(data):,}: the header says {' x '.join(f'{n:,}' for n in shape)} bytes after byte "
            f"{head}, but the file {found}"
        )
    try:
        return np.frombuffer(data, np.uint8, offset=head).reshape(shape)
    except ValueError:  # no image, of an absurd size
        raise RequestError(f"{path} byte 8: the header says {' x '.join(f'{n:,}' for n in shape)} bytes") from None


def idx_federation(
    known: ImageSet,
    keys: PoolKeys,
    layout: Layout,
    get: str,
    change: Callable[[ImageFile, Path], ImageFile] = lambda part, _: part,
) -> Federation:
    """Find, read (or take from the cache) and divide a set of images in IDX files.

    Args:
        known: what is published.
        keys: the user's keys.
        layout: where the files are.
        get: what to do where there are none.
        change: what is done to the images of a split (and the name of their file) before they are kept.
    """
    pairs = find_pairs(known.name, keys.root, layout, get)
    name = f"{known.name}{layout.variant}"
    arrays = cached(name, paths_of(pairs), _VERSION, lambda: _read_pairs(known, pairs, change))
    return federation_of(known, arrays, keys)


def find_pairs(name: str, root: Path | None, layout: Layout, get: str) -> dict[str, Pair]:
    """The files of every split that is there, from the first folder that has any; an error with `get` if none has."""
    folder = find_data_dir(name, root)
    raw = Path(layout.torchvision) / "raw"  # as torchvision lays them out
    inside = [] if folder is None else [folder, folder / "raw", folder / "gzip", folder / raw]
    for place in [*inside, data_root(root) / raw, *layout.elsewhere]:
        found = {split: _pair(place, names) for split, names in layout.prefixes.items()}
        pairs = {split: pair for split, pair in found.items() if pair is not None}
        if pairs:
            return pairs
    raise missing_files(name, root, get)


def paths_of(pairs: Mapping[str, Pair]) -> list[Path]:
    """All files of all splits."""
    return [path for pair in pairs.values() for path in (pair.images, pair.labels)]


def read_pair(known: ImageSet, pair: Pair) -> tuple[ImageFile, list[str]]:
    """The checked images and labels of a split, and which of its files are not the published ones."""
    pixels, marks = file_bytes(pair.images), file_bytes(pair.labels)
    images, labels = parse_idx(pixels, pair.images, 3), parse_idx(marks, pair.labels, 1)
    _check(known, pair, images, labels)
    unknown = unknown_files(known, [(pair.images.name, pixels), (pair.labels.name, marks)])
    return ImageFile(images.reshape(-1, *known.shape), labels), list(unknown)


def _read_pairs(known: ImageSet, pairs: Mapping[str, Pair], change: Callable[[ImageFile, Path], ImageFile]) -> Arrays:
    parts, unknown = {}, []
    for split, pair in pairs.items():
        part, others = read_pair(known, pair)
        unknown += others
        parts[split] = change(part, pair.images)
    return arrays_of(known, parts, unknown)


def _check(known: ImageSet, pair: Pair, images: npt.NDArray[np.uint8], labels: npt.NDArray[np.uint8]) -> None:
    if images.shape[1:] != known.shape[1:]:
        shape = " x ".join(map(str, images.shape[1:]))
        raise RequestError(
            f"{pair.images} byte 8: images of {shape}; {known.name} has {known.shape[1]} x {known.shape[2]}"
        )
    if len(images) != len(labels):
        raise RequestError(f"{pair.labels}: {len(labels):,} labels, but {pair.images.name} has {len(images):,} images")
    check_labels(str(pair.labels), labels, len(known.class_names))


def _pair(folder: Path, prefixes: Sequence[str]) -> Pair | None:
    for prefix in prefixes:
        images, labels = _find(folder, prefix, "images", "idx3"), _find(folder, prefix, "labels", "idx1")
        if images and labels:
            return Pair(images, labels)
        if images or labels:
            lacking = "labels" if images else "images"
            raise RequestError(f"{images or labels}: there is no file {prefix}-{lacking}-idx* beside it")
    return None


def _find(folder: Path, prefix: str, what: str, kind: str) -> Path | None:
    names = [spelling.format(prefix=prefix, what=what, kind=kind) for spelling in _SPELLINGS]
    paths = [folder / f"{name}{suffix}" for name in names for suffix in ("", ".gz")]
    return next((path for path in paths if path.is_file()), None)
