"""What all sets of labelled images have in common: two files, checks, the division among clients.

    train and validation samples come from the train file, test samples from the test file:
        iid, pathological, dirichlet: the train file is divided; a client has the share of the test file's images of a
            class that it has of the train file's
        practical: a given number of test images per client; where the test file has too few of a class, images of the
            train file that nobody trains on fill up (counted in the notes)
    one file only: practical draws both from it; otherwise a fifth of every client's images is its test split
    validation is a share `data.val` of a client's train part: 500 train samples are 450 + 50

No image belongs to two clients or to two splits. Images stay bytes. Clients of one practical group are linked, other
schemes know no graph.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from panacea.core.random import Streams
from panacea.data._layout import shuffled, split_bounds
from panacea.data.cache import packed, unpacked
from panacea.data.federation import Federation
from panacea.data.split import GroupPlan, PoolKeys, divide_files, group_cliques
from panacea.data.task import Task
from panacea.errors import RequestError

__all__ = ["Arrays", "ImageFile", "ImageSet", "arrays_of", "check_labels", "federation_of", "unknown_files"]

Arrays = dict[str, npt.NDArray[np.generic]]
Bytes = npt.NDArray[np.uint8]
_TEST = 0.2  # share of a client's images, where there is one file only


@dataclass(frozen=True)
class ImageFile:
    """Images of one split and their labels.

    Attributes:
        images: ``[n, channels, height, width]`` uint8.
        labels: ``[n]`` uint8.
    """

    images: Bytes
    labels: Bytes


@dataclass(frozen=True)
class ImageSet:
    """A published set of images.

    Attributes:
        name: registry name.
        shape: of an image: channels, height, width.
        class_names: in label order.
        published: images of the train and of the test split.
        plan: the groups of the practical setting.
        checksums: MD5 of the published files, unpacked.
    """

    name: str
    shape: tuple[int, int, int]
    class_names: tuple[str, ...]
    published: tuple[int, int]
    plan: GroupPlan
    checksums: frozenset[str] = frozenset()


def unknown_files(known: ImageSet, contents: Iterable[tuple[str, bytes]]) -> list[str]:
    """Names of those files that are not the published ones, where their checksums are known."""
    return [
        name
        for name, data in contents
        if known.checksums and hashlib.md5(data, usedforsecurity=False).hexdigest() not in known.checksums
    ]


def check_labels(name: str, labels: npt.NDArray[np.integer[Any]], classes: int) -> None:
    """Refuse a label that is no class; `name` is the file's."""
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(wrong):
        place = int(wrong[0])
        raise RequestError(f"{name}: image {place:,} has label {labels[place]}; labels are 0..{classes - 1}")


def arrays_of(known: ImageSet, parts: dict[str, ImageFile], unknown: Iterable[str] = ()) -> Arrays:
    """Checked arrays for the cache: images and labels of both splits, and notes.

    Args:
        known: what is expected.
        parts: ``train`` and ``test``, or one of them.
        unknown: files whose checksum is not the published one.
    """
    names = sorted(unknown)
    notes = [f"not the published file{'s' * (len(names) > 1)} by checksum: {', '.join(names)}"] if names else []
    empty = ImageFile(np.zeros((0, *known.shape), np.uint8), np.zeros(0, np.uint8))
    arrays: Arrays = {"notes": packed(notes)}
    for split in ("train", "test"):
        part = parts.get(split, empty)
        arrays |= {f"{split} images": part.images, f"{split} labels": part.labels}
    return arrays


def federation_of(known: ImageSet, arrays: Arrays, keys: PoolKeys) -> Federation:
    """Divide the images of both splits among clients."""
    splits = [split for split in ("train", "test") if len(arrays[f"{split} labels"])]
    if not splits:
        raise RequestError(f"data set '{known.name}': its files hold no image")
    images = [arrays[f"{split} images"] for split in splits]
    labels = [arrays[f"{split} labels"].astype(np.int64) for split in splits]
    held = labels[1] if len(labels) > 1 else np.zeros(0, np.int64)
    made = divide_files(labels[0], held, keys, known.plan)
    counts = np.array([len(part) for part in made.parts], np.int64)
    tests = None if made.tests is None else np.array([len(part) for part in made.tests], np.int64)
    bounds = split_bounds(counts, tests, keys.val, _TEST)
    parts = made.parts if made.tests is None else chain.from_iterable(zip(made.parts, made.tests, strict=True))
    rows = np.concatenate(list(parts))
    rows = rows[shuffled(Streams(keys.seed), bounds[:, 0], counts, len(rows))]
    return Federation(
        name=known.name,
        task=Task("classification", inputs=known.shape, classes=len(known.class_names), class_names=known.class_names),
        x=torch.from_numpy(_gather(images, rows)),
        y=torch.from_numpy(np.concatenate(labels)[rows]),
        bounds=bounds,
        names=tuple(str(client) for client in range(len(bounds))),
        graph=None if made.groups is None else group_cliques(made.groups),
        groups=made.groups,
        notes=(*unpacked(arrays["notes"]), *made.notes),
        partial=_partial(sum(map(len, labels)), sum(known.published), splits, made.factor),
    )


def _gather(images: list[npt.NDArray[np.generic]], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """The images at positions that count through all files, without joining these first."""
    x = np.empty((len(rows), *images[0].shape[1:]), np.uint8)
    start = 0
    for part in images:
        inside = np.flatnonzero((rows >= start) & (rows < start + len(part)))
        x[inside] = part[rows[inside] - start]
        start += len(part)
    return x


def _partial(found: int, published: int, splits: list[str], factor: float) -> str:
    """What is missing: images, and what follows for the sizes of the practical setting."""
    part = f"{found:,} of {published:,} images" if found < published else ""
    if part and len(splits) == 1:
        part = f"{splits[0]} split only" if factor < 1 else f"{part} ({splits[0]} split only)"
    scaled = f"sizes x {factor:.3f}" if factor < 1 else ""
    return f"PARTIAL {'; '.join(filter(None, (scaled, part)))}" if scaled or part else ""
