"""Small image files in the original formats, for tests."""

from __future__ import annotations

import gzip
import io
import struct
from pathlib import Path

import numpy as np


def idx_bytes(array: np.ndarray) -> bytes:
    """An IDX file of unsigned bytes."""
    return struct.pack(f">I{array.ndim}I", 0x0800 | array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


def write_idx(
    folder: Path, prefix: str, images: np.ndarray, labels: np.ndarray, *, dot: bool = False, gz: bool = False
) -> None:
    """The two files of a split, in either spelling, plain or gzipped."""
    folder.mkdir(parents=True, exist_ok=True)
    for what, kind, array in (("images", "idx3", images), ("labels", "idx1", labels)):
        name = f"{prefix}-{what}{'.' if dot else '-'}{kind}-ubyte"
        data = idx_bytes(array)
        (folder / (name + ".gz" * gz)).write_bytes(gzip.compress(data, 1, mtime=0) if gz else data)


def numbered(shape: tuple[int, ...], classes: int, each: int, first: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Images that say who they are: the first pixels hold the label, a number from `first` on; labels in turn."""
    labels = np.tile(np.arange(classes), each)
    images = np.random.default_rng(first).integers(0, 256, (len(labels), *shape), np.uint8)
    flat = images.reshape(len(labels), -1)
    number = first + np.arange(len(labels))
    flat[:, 0], flat[:, 1], flat[:, 2] = labels, number % 256, number // 256
    return images, labels


def python2_pickle(items: dict[str, np.ndarray | list[int]]) -> bytes:
    """A dict of text to byte arrays or lists, as Python 2 and NumPy 1 pickled it (what CIFAR's authors published)."""
    out = io.BytesIO()
    out.write(b"\x80\x02}(")
    for key, value in items.items():
        out.write(b"U" + bytes([len(key)]) + key.encode())
        if isinstance(value, list):
            out.write(b"](" + b"".join(b"K" + bytes([item]) for item in value) + b"e")
            continue
        shape = b"".join(b"M" + struct.pack("<H", n) for n in value.shape)
        out.write(b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01(" + shape + b"t")
        out.write(b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb")
        out.write(b"\x89T" + struct.pack("<I", value.nbytes) + value.tobytes() + b"tb")
    out.write(b"u.")
    return out.getvalue()
