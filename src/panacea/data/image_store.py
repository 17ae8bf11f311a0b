"""Images read once, resized, and kept as bytes in one file that is looked at in place, never loaded.

One ``.npy`` of shape ``[images, 3, size, size]`` (uint8) per list of files and size, in the cache folder
(`panacea.data.cache.cache_folder`), with a JSON file beside it that says what it holds. It is written under another
name and renamed when it is whole, so an interrupted build leaves nothing. A store is found again by its list of files,
the folder and the sizes and times of change of 64 of them; its length is checked when it is opened. It is safe to
delete.

Images are decoded by Pillow, turned into RGB and resized to a square with an antialiased bilinear filter, whatever
their proportions. JPEG files much larger than that are decoded at a half, a quarter or an eighth of their size first.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from panacea.core.files import write_json
from panacea.data.cache import cache_folder
from panacea.errors import RequestError

__all__ = ["ImageStore", "image_store"]

_VERSION = 1  # of the way images are prepared
_LOOKED_AT = 64  # files whose size and time of change are part of a store's name
_MOST_LOST = 0.01  # share of images that may be missing or damaged
_FORMATS = ("JPEG", "PNG", "BMP", "WEBP", "GIF", "TIFF")  # not EPS, which starts another program
_BLOCK = 256  # images in work at a time
_SECONDS = 2.0  # between two lines of progress


@dataclass(frozen=True)
class ImageStore:
    """Prepared images.

    Attributes:
        images: ``[images, 3, size, size]`` uint8, on disk.
        sound: ``[images]`` bool: which files could be read; the others are black.
        fingerprint: a checksum of all pixels.
        notes: how many files could not be read, where there are any.
    """

    images: Tensor
    sound: npt.NDArray[np.bool_]
    fingerprint: str
    notes: tuple[str, ...] = ()


def image_store(name: str, folder: Path, files: Sequence[str], size: int) -> ImageStore:
    """The prepared images of a list of files; built where there is no sound store of them yet.

    Args:
        name: the data set's.
        folder: where the files lie.
        files: their paths in it; image i of the store is file i.
        size: pixels of a side.

    Raises:
        RequestError: more than 1 % of the files are missing or do not decode, or the store cannot be written.
    """
    path = cache_folder() / f"{name}-{size}-{_identity(folder, files, size)}.npy"
    about = _about(path, len(files), size)
    if about is None:
        about = _build(name, path, folder, files, size)
    sound = np.ones(len(files), np.bool_)
    sound[[place for place, _ in about["lost"]]] = False
    notes: tuple[str, ...] = ()
    if about["lost"]:
        place, reason = about["lost"][0]
        count = f"{len(about['lost']):,} of {len(files):,} images were left out"
        notes = (f"{count}: missing or damaged, first {files[place]} ({reason})",)
    images = torch.from_numpy(np.load(path, mmap_mode="c"))  # "c": torch wants memory it may write; the file is safe
    return ImageStore(images, sound, f"images-{about['sha256']}", notes)


def _identity(folder: Path, files: Sequence[str], size: int) -> str:
    content = hashlib.sha256(json.dumps([_VERSION, size, str(folder.resolve())]).encode())
    content.update("\n".join(files).encode())
    for place in sorted(set(np.linspace(0, len(files) - 1, _LOOKED_AT).astype(int).tolist())) if files else ():
        try:
            stat = (folder / files[place]).stat()
            content.update(f"{place} {stat.st_size} {stat.st_mtime_ns}".encode())
        except OSError:
            content.update(f"{place} missing".encode())
    return content.hexdigest()[:16]


def _about(path: Path, count: int, size: int) -> dict[str, Any] | None:
    """What a store's JSON file says, or None where the store is missing or not as it was written."""
    try:
        about: dict[str, Any] = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        whole = (about["files"], about["size"], about["bytes"]) == (count, size, path.stat().st_size)
        return about if whole and isinstance(about["sha256"], str) and isinstance(about["lost"], list) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _build(name: str, path: Path, folder: Path, files: Sequence[str], size: int) -> dict[str, Any]:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".json").unlink(missing_ok=True)
        with temporary.open("wb") as file:
            about = _write(name, file, folder, files, size)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        about["bytes"] = path.stat().st_size
        write_json(path.with_suffix(".json"), about)
    except OSError as error:
        needed = len(files) * 3 * size * size / 2**30
        raise RequestError(
            f"{path.parent}: cannot keep {len(files):,} prepared images there ({error.strerror or error}); it takes "
            f"{needed:.2g} GiB; set PANACEA_CACHE to another folder"
        ) from None
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    return about


def _write(name: str, file: IO[bytes], folder: Path, files: Sequence[str], size: int) -> dict[str, Any]:
    """Decode all files in order; plain writes, because a full disk under a memory map kills the process."""
    header = {"descr": "|u1", "fortran_order": False, "shape": (len(files), 3, size, size)}
    np.lib.format.write_array_header_1_0(file, header)
    content = hashlib.sha256()
    lost: list[tuple[int, str]] = []
    black = bytes(3 * size * size)
    for place, image in enumerate(_decoded(name, folder, files, size)):
        if isinstance(image, str):
            lost.append((place, image))
            if len(lost) > _MOST_LOST * len(files):
                first, reason = lost[0]
                raise RequestError(
                    f"{folder / files[first]}: {reason}; {len(lost):,} of the first {place + 1:,} of {len(files):,} "
                    "images are missing or damaged, and 1 % may be"
                )
        data = black if isinstance(image, str) else image
        content.update(data)
        file.write(data)
    return {"files": len(files), "size": size, "sha256": content.hexdigest()[:32], "lost": lost}


def _decoded(name: str, folder: Path, files: Sequence[str], size: int) -> Iterator[bytes | str]:
    """The pixels of every file, or why there are none; says on a terminal how far it is."""
    decode = partial(_decode, size=size)
    said = time.monotonic()
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool, warnings.catch_warnings():
        warnings.filterwarnings("error", ".*decompression bomb.*")  # an image of too many pixels is a damaged one
        for first in range(0, len(files), _BLOCK):
            yield from pool.map(decode, [folder / file for file in files[first : first + _BLOCK]])
            if sys.stderr.isatty() and time.monotonic() - said > _SECONDS:
                said = time.monotonic()
                done = min(first + _BLOCK, len(files))
                sys.stderr.write(f"{name}: {done:,} of {len(files):,} images prepared, once\n")


def _decode(path: Path, size: int) -> bytes | str:
    try:
        from PIL import Image  # noqa: PLC0415  (optional)
    except ImportError:
        raise RequestError("images are decoded by Pillow; run `pip install pillow`") from None
    try:
        with Image.open(path, formats=_FORMATS) as image:
            image.draft("RGB", (2 * size, 2 * size))
            pixels = image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR)
        return np.asarray(pixels).transpose(2, 0, 1).tobytes()
    except FileNotFoundError:
        return "missing"
    except Exception as error:  # a damaged file may fail in any way
        return "does not decode" if str(path) in str(error) else f"does not decode: {error}"
