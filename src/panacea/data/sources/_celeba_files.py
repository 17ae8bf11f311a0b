"""Who is on which image of CelebA, and what is known of it: LEAF's JSON or the original text files.

identity_CelebA.txt     lines "000001.jpg 2880": an image and the number of the celebrity on it
list_attr_celeba.txt    the number of images, the names of 40 attributes, then an image and 40 values of 1 or -1
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from panacea.data.cache import Arrays, cached, packed, unpacked
from panacea.data.owned import Owned
from panacea.data.paths import find_data_dir, missing_files
from panacea.data.reading import file_text
from panacea.data.sources._leaf import LeafUser, leaf_files, read_leaf
from panacea.errors import RequestError

__all__ = ["DOMAIN_ATTRIBUTES", "CelebaFiles", "read_celeba"]

DOMAIN_ATTRIBUTES = ("Attractive", "Heavy_Makeup", "High_Cheekbones", "Mouth_Slightly_Open", "Wavy_Hair")
_TASK = "Smiling"
_IMAGES = "img_align_celeba"
_IDENTITIES, _ATTRIBUTES = "identity_CelebA.txt", "list_attr_celeba.txt"
_VERSION = 1


@dataclass(frozen=True)
class CelebaFiles:
    """What the text files say.

    Attributes:
        folder: of the images.
        files: ``[images]`` names in it.
        samples: who is on which image, and whether they smile; `rows` are positions in `files`.
        patterns: ``[images, 5]`` bool, `DOMAIN_ATTRIBUTES`; None where the attribute file is not there.
    """

    folder: Path
    files: list[str]
    samples: Owned
    patterns: npt.NDArray[np.bool_] | None


def read_celeba(root: Path | None, get: str) -> CelebaFiles:
    """Read what is in ``<root>/celeba``; LEAF's JSON files come first.

    Args:
        root: see `panacea.data.paths.data_root`.
        get: what the error about missing files says one should do.
    """
    folder = find_data_dir("celeba", root)
    images = None if folder is None else _find(folder, f"{_IMAGES}/{_IMAGES}", _IMAGES)
    if folder is None or images is None:
        raise missing_files("celeba", root, get)
    leaf = leaf_files(folder)
    identities, attributes = _find(folder, _IDENTITIES), _find(folder, _ATTRIBUTES)
    if leaf:
        paths = [path for part in leaf.values() for path in part]
        arrays = cached("celeba-leaf", paths, _VERSION, lambda: _leaf(leaf))
    elif identities is None or attributes is None:
        raise missing_files("celeba", root, get)
    else:
        arrays = cached("celeba-people", [identities], _VERSION, lambda: _identities(identities))
    files, samples = unpacked(arrays["files"]), Owned.from_arrays(arrays)
    known = None if attributes is None else _attributes(attributes, files)
    if not leaf and known is not None:
        samples = replace(samples, labels=known[:, 0].astype(np.int64))
    return CelebaFiles(images, files, samples, None if known is None else known[:, 1:].astype(np.bool_))


def _find(folder: Path, *names: str) -> Path | None:
    """A file or folder where LEAF, the publishers' archive or the archive's usual copies have it."""
    for name in names:
        for place in (".", "raw", "data/raw", "Anno", "Img"):
            if (folder / place / name).exists():
                return folder / place / name
    return None


def _leaf(files: dict[str, list[Path]]) -> Arrays:
    images: list[str] = []

    def take(user: LeafUser) -> None:
        wrong = [i for i, file in enumerate(user.x) if not isinstance(file, str) or Path(file).name != file]
        if wrong:
            raise RequestError(f"{user.place}, sample {wrong[0] + 1}: needs the name of an image file")
        images.extend(str(file) for file in user.x)

    samples = read_leaf(files, 2, take)
    return {**samples.arrays(), "files": packed(images)}


def _identities(path: Path) -> Arrays:
    number: dict[str, int] = {}
    files, owner = [], []
    for line, words in _lines(path):
        if len(words) != 2 or not words[1].isdigit() or Path(words[0]).name != words[0]:
            raise RequestError(f"{path} line {line}: needs the name of an image file and the number of a person")
        files.append(words[0])
        owner.append(number.setdefault(words[1], len(number)))
    if not files:
        raise RequestError(f"{path}: no image in it")
    if len(set(files)) < len(files):
        twice, count = Counter(files).most_common(1)[0]
        raise RequestError(f"{path}: image '{twice}' has {count} lines; every image shows one person")
    nothing = np.zeros(len(files), np.int64)  # labels are in another file
    return {**Owned(tuple(number), np.array(owner, np.int64), nothing, nothing).arrays(), "files": packed(files)}


def _attributes(path: Path, files: list[str]) -> npt.NDArray[np.generic]:
    """The attributes in use of these images, ``[images, 6]``, the task's first."""
    table = cached("celeba-attributes", [path], _VERSION, lambda: _read_attributes(path))
    place = {file: row for row, file in enumerate(unpacked(table["files"]))}
    absent = next((file for file in files if file not in place), None)
    if absent is not None:
        raise RequestError(f"{path}: no line for image '{absent}'")
    return table["values"][[place[file] for file in files]]


def _read_attributes(path: Path) -> Arrays:
    lines = _lines(path)
    next(lines, None)  # how many images
    line, header = next(lines, (2, []))
    absent = [name for name in (_TASK, *DOMAIN_ATTRIBUTES) if name not in header]
    if absent:
        raise RequestError(f"{path} line {line}: no attribute '{absent[0]}' in the header")
    columns = [header.index(name) + 1 for name in (_TASK, *DOMAIN_ATTRIBUTES)]
    files, values = [], []
    for line, words in lines:
        if len(words) != len(header) + 1:
            raise RequestError(f"{path} line {line}: {len(words)} words, an image and {len(header)} values are needed")
        own = [words[column] for column in columns]
        wrong = [place for place, value in enumerate(own) if value not in ("1", "-1")]
        if wrong:
            raise RequestError(
                f"{path} line {line}, attribute '{header[columns[wrong[0]] - 1]}': '{own[wrong[0]]}' is not 1 or -1"
            )
        files.append(words[0])
        values.append([value == "1" for value in own])
    return {"files": packed(files), "values": np.array(values, np.uint8).reshape(-1, len(columns))}


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Line numbers and words of all lines that are not empty."""
    for number, line in enumerate(file_text(path).splitlines(), 1):
        words = line.split()
        if words:
            yield number, words
