"""FEMNIST: 62 kinds of handwritten characters of 28 x 28 pixels, one client per writer (LEAF).

    pixel = round(255 - 255 v),  v = LEAF's value, 1 = paper; so 255 is ink, as in MNIST
    classes 0..9 digits, 10..35 upper case, 36..61 lower case
    LEAF's own train and test files (90/10 within each writer); the validation share comes out of the train part
    from `all_data` alone, or with `data.test`: a random share of each writer's images is test (0.1 by default)
    no graph

Writers with fewer than 5 images are left out (`data.min_samples`). Some images of a writer are exact copies of each
other; pairs across train and test are counted in a note and kept, as published. Files made by LEAF's division by user
(``-t user``) hold whole writers as test: those have no train part and are left out; use `all_data` and `data.users`.

Source: LEAF (Caldas et al. 2018), from NIST Special Database 19 (EMNIST, Cohen et al. 2017).

Differences from the paper:
    * `data.users=60/20/20` is FedCG's division of writers; what differs is in `panacea.data.users`.
    * FedCG trains one epoch a round; the default here is 20 steps of 10 images, an epoch of a writer with 200.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from panacea.data.cache import Arrays, cached
from panacea.data.federation import Federation
from panacea.data.owned import Owned, in_memory, lay_out
from panacea.data.paths import find_data_dir, missing_files
from panacea.data.reading import npz_arrays
from panacea.data.registry import Card, TrainingDefaults, dataset
from panacea.data.sources._leaf import LeafUser, leaf_files, read_leaf
from panacea.data.task import Task
from panacea.data.users import LEAF_TEST, UserKeys, divide_users, take_first, with_enough
from panacea.errors import RequestError

__all__ = ["FemnistKeys", "load_femnist"]

WRITERS = 3550  # of LEAF's table
SIDE = 28
CHARACTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_VERSION = 1

CARD = Card(
    licence="LEAF: BSD 2-Clause; the images: NIST Special Database 19, a work of the US government",
    citation="Caldas et al., LEAF: A Benchmark for Federated Settings, 2018; Cohen et al., EMNIST, 2017",
    used_in="Caldarola et al. 2021 (FedCG), Tables 1, 2 and 5",
    get="place the JSON files that LEAF's data/femnist/preprocess.sh writes there (train/*.json and test/*.json, or "
    "all_data/all_data_*.json; TalwalkarLab/leaf on GitHub publishes the script), or a femnist*.npz with images, "
    "labels, writer, writer_names and split",
    splits="LEAF's 90/10 within each writer; data.users=60/20/20: whole writers are novel (test) or left out",
)


class FemnistKeys(UserKeys):
    """Keys of `femnist`."""


@dataset(
    "femnist",
    summary="handwritten characters (28 x 28, 62 classes), one client per writer",
    source="LEAF (Caldas et al. 2018), from NIST Special Database 19; 3,550 writers, 805,263 images",
    keys=FemnistKeys,
    # lr, batch, rounds and cohort of FedCG, section 5.1; 20 steps of 10 are about one epoch
    defaults=TrainingDefaults(lr=0.001, rounds=1000, cohort=5, model="leaf_femnist", local_steps=20, batch_size=10),
    card=CARD,
)
def load_femnist(keys: FemnistKeys) -> Federation:
    """Read the writers, leave out those with few images, divide them as the keys say."""
    arrays = _read(keys.root)
    samples = Owned.from_arrays(arrays)
    total = len(samples.names)
    samples, dropped = with_enough(samples, keys.min_samples, "writers")
    samples, novel, roles = divide_users(take_first(samples, keys.clients, "femnist"), keys, "writers")
    federation = lay_out(
        "femnist",
        samples,
        torch.from_numpy(arrays["images"])[:, None],
        task=Task("classification", (1, SIDE, SIDE), classes=len(CHARACTERS), class_names=tuple(CHARACTERS)),
        seed=keys.seed,
        val=keys.val,
        test=keys.test or LEAF_TEST,
    )
    return replace(
        in_memory(federation),
        novel=novel,
        notes=(*dropped, *roles, *_copies(federation, arrays["twin"])),
        partial=f"PARTIAL {total:,} of {WRITERS:,} writers" if total < WRITERS else "",
    )


def _copies(federation: Federation, twin: npt.NDArray[np.generic]) -> tuple[str, ...]:
    """A note on pairs of equal images of one writer, one in the train part, one in test."""
    rows, ids = federation.rows, twin.astype(np.int64)
    if rows is None:
        return ()
    test = np.zeros(len(rows), np.int64)
    starts = federation.bounds[:, 2:].reshape(-1)  # where test begins and ends, client after client
    test[:] = np.searchsorted(starts, np.arange(len(rows)), side="right") % 2
    mine = ids[rows.numpy()]
    counts = [np.bincount(mine[test == part], minlength=len(ids)) for part in (0, 1)]
    pairs = int((counts[0] * counts[1]).sum())
    return (f"{pairs:,} pair(s) of equal images of one writer lie across train and test",) if pairs else ()


def _read(root: Path | None) -> Arrays:
    folder = find_data_dir("femnist", root)
    if folder is None:
        raise missing_files("femnist", root, CARD.get)
    files = leaf_files(folder)
    if files:
        return cached("femnist", [path for part in files.values() for path in part], _VERSION, lambda: _leaf(files))
    archives = sorted(folder.glob("femnist*.npz"))
    if not archives:
        raise missing_files("femnist", root, CARD.get)
    return cached("femnist", archives[:1], _VERSION, lambda: _npz(archives[0]))


def _leaf(files: dict[str, list[Path]]) -> Arrays:
    images: list[npt.NDArray[np.uint8]] = []
    samples = read_leaf(files, len(CHARACTERS), lambda user: images.append(_ink(user)))
    return _arrays(np.concatenate(images), samples)


def _ink(user: LeafUser) -> npt.NDArray[np.uint8]:
    """Images ``[samples, 28, 28]``, 255 = ink."""
    pixels = SIDE * SIDE
    wrong = [i for i, image in enumerate(user.x) if not isinstance(image, list) or len(image) != pixels]
    if wrong:
        raise RequestError(f"{user.place}, image {wrong[0] + 1}: needs a list of {pixels} numbers")
    try:
        given = np.array(user.x).reshape(-1, pixels)
    except ValueError:
        given = np.array(user.x, object)
    if given.dtype.kind not in "fiu":  # texts, lists, numbers of hundreds of digits
        raise RequestError(f"{user.place}: an image holds something that is not a number")
    values = given.astype(np.float32)
    outside = np.argwhere(~((values >= 0) & (values <= 1)))
    if len(outside):
        image, pixel = outside[0]
        raise RequestError(
            f"{user.place}, image {image + 1}, pixel {pixel + 1}: {values[image, pixel]:g} is not in [0, 1] (1 = paper)"
        )
    return np.rint(255 - 255 * values).astype(np.uint8).reshape(-1, SIDE, SIDE)


def _npz(path: Path) -> Arrays:
    found = npz_arrays(path, ("images", "labels", "writer", "writer_names"), ("split",))
    images, labels, writer = found["images"], found["labels"], found["writer"]
    names = tuple(str(name) for name in found["writer_names"].reshape(-1))
    if images.dtype != np.uint8 or images.shape[1:] != (SIDE, SIDE):
        raise RequestError(f"{path}: 'images' is {images.dtype} {list(images.shape)}, not uint8 [images, 28, 28]")
    split = found.get("split", np.zeros(0, np.uint8))
    limits = {"labels": (labels, len(CHARACTERS)), "writer": (writer, len(names))}
    for what, (values, limit) in {**limits, "split": (split, 2)}.items() if "split" in found else limits.items():
        if values.shape != (len(images),):
            raise RequestError(f"{path}: '{what}' is {list(values.shape)}, not [{len(images)}] like the images")
        if values.dtype.kind not in "iub":
            raise RequestError(f"{path}: '{what}' is {values.dtype}, not whole numbers")
        wrong = np.flatnonzero((values.astype(np.int64) < 0) | (values.astype(np.int64) >= limit))
        if len(wrong):
            raise RequestError(
                f"{path}: '{what}' of image {wrong[0] + 1} is {values[wrong[0]]}, which is not one of 0..{limit - 1}"
            )
    if len(set(names)) < len(names):
        raise RequestError(f"{path}: two of the 'writer_names' are the same")
    rows = np.arange(len(images), dtype=np.int64)
    test = split == 1 if "split" in found else None
    return _arrays(images, Owned(names, writer.astype(np.int64), labels.astype(np.int64), rows, test))


def _arrays(images: npt.NDArray[np.generic], samples: Owned) -> Arrays:
    """What is kept; `twin` is the position of the first image of the same writer with the same pixels."""
    first: dict[tuple[int, bytes], int] = {}
    keys = ((own, image.tobytes()) for own, image in zip(samples.owner.tolist(), images, strict=True))
    twin = np.array([first.setdefault(key, place) for place, key in enumerate(keys)], np.int32)
    return {**samples.arrays(), "images": images, "twin": twin}
