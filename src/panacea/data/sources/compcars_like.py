"""A stand-in for CompCars, which is given out on request only: two factors, 30 clients, 4 classes, the same graph.

**These are not cars.** Clothes (Fashion-MNIST) or digits (scikit-learn's) are

    turned by 0, 45, 90, 135 or 180 degrees              in place of the viewpoints F - FS - S - RS - R
    x' = 0.1 t + (1 - 0.12 t) x,  t = 0..5               in place of the years 2009 .. 2014: brighter, less contrast
    merged into 4 classes                                in place of the types of cars
        clothes: upper body | trousers and dresses | shoes | bags        digits: 0-2 | 3-4 | 5-7 | 8-9

so that every client has images of one angle and one brightness, near angles and levels look alike, and the whole image
experiment can run. No image is given to two clients. By default a client has 805 images, CompCars' mean (59 of the
digits), 28 x 28 pixels. The split, the graph rules, groups and features are those of `compcars`.

Source: Xiao et al. (2017), Fashion-MNIST; Alpaydin and Kaynak (1998), digits. The construction is ours.

Differences from the paper: the data are not the paper's; no number of its tables can be compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812  (the usual name)
from pydantic import Field
from torch import Tensor

from panacea.core.random import Streams
from panacea.data.cache import Arrays, cached
from panacea.data.federation import Federation
from panacea.data.owned import Owned, in_memory
from panacea.data.registry import Card, TrainingDefaults, dataset, found_by
from panacea.data.sources._idx import Pair, find_pairs, paths_of, read_pair
from panacea.data.sources._view_year import NAMES, YEARS, ViewYearKeys, view_year_federation
from panacea.data.sources.digits import read_digits
from panacea.data.sources.mnist import FASHION_LAYOUT, FASHION_MNIST
from panacea.data.task import Task
from panacea.data.users import take_first
from panacea.errors import RequestError

__all__ = ["CompCarsLikeKeys", "load_compcars_like"]

SIDE = 28
_SAMPLES = 805  # 24,151 / 30
_VERSION = 1
_STEP = 45.0  # degrees from one view to the next

CARD = Card(
    licence="Fashion-MNIST: MIT; digits: CC BY 4.0 (UCI Machine Learning Repository)",
    citation="Xiao et al., Fashion-MNIST, 2017; Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, 1998",
    used_in="no paper: a stand-in for CompCars, so that its experiment can run",
    get="place train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte "
    "(plain or .gz, published by Zalando Research as Fashion-MNIST) there, or use data.base=digits",
    splits="80/20 at random within each client, a tenth of the train part for validation",
)


class CompCarsLikeKeys(ViewYearKeys):
    """Keys of `compcars_like`."""

    base: Literal["fashion_mnist", "digits"] = Field("fashion_mnist", description="where the images come from")
    samples: int | None = Field(None, ge=5, description="images of a client; default 805, fewer where there are fewer")


_MERGED: dict[str, tuple[tuple[int, ...], tuple[str, ...]]] = {
    "fashion_mnist": ((0, 1, 0, 1, 0, 2, 0, 2, 3, 2), ("upper body", "trousers and dresses", "shoes", "bags")),
    "digits": ((0, 0, 0, 1, 1, 2, 2, 2, 3, 3), ("0-2", "3-4", "5-7", "8-9")),
}


@dataset(
    "compcars_like",
    summary="STAND-IN for CompCars, no cars: 5 angles x 6 levels of brightness of clothes or digits, 4 classes",
    source="made from Fashion-MNIST (Xiao et al. 2017) or scikit-learn's digits; the construction is ours",
    keys=CompCarsLikeKeys,
    # lr: least validation loss of 0.01, 0.03 and 0.1 after 12 rounds of FedAvg (10 steps of 32 images, 60 images a
    # client, one seed); other methods were not tried
    defaults=TrainingDefaults(lr=0.1, rounds=100, cohort=5, novel=0.2, model="small_cnn"),
    card=CARD,
    files=found_by(lambda root: find_pairs("fashion_mnist", root, FASHION_LAYOUT, CARD.get)),
)
def load_compcars_like(keys: CompCarsLikeKeys) -> Federation:
    """Give every client images of its own, turn them and change their brightness."""
    arrays = _prepared(keys)
    images, labels = torch.from_numpy(arrays["images"]), arrays["labels"].astype(np.int64)
    owner = np.repeat(np.arange(len(NAMES)), len(labels) // len(NAMES))
    samples = Owned(NAMES, owner, labels, np.arange(len(labels), dtype=np.int64))
    samples = take_first(samples, keys.clients, "compcars_like")
    names = _MERGED[keys.base][1]
    task = Task("classification", (1, SIDE, SIDE), classes=len(names), class_names=names)
    note = (
        f"a STAND-IN, not CompCars: {keys.base} turned by 0 to 180 degrees (for viewpoints) in {len(YEARS)} levels of "
        "brightness and contrast (for years), 4 merged classes"
    )
    return replace(in_memory(view_year_federation("compcars_like", samples, images, task, keys)), notes=(note,))


def _prepared(keys: CompCarsLikeKeys) -> Arrays:
    """Images ``[30 * each, 1, 28, 28]``, client after client, and their merged classes."""
    if keys.base == "fashion_mnist":
        pairs = find_pairs("fashion_mnist", keys.root, FASHION_LAYOUT, CARD.get)
        name = f"compcars_like-{keys.seed}-{keys.samples or 'all'}"
        return cached(name, paths_of(pairs), _VERSION, lambda: _made(*_clothes(pairs), keys))
    small, labels = read_digits(keys.root)
    large = F.interpolate(torch.from_numpy(small), size=(SIDE, SIDE), mode="bilinear", align_corners=False)
    return _made(_bytes(large)[:, 0].numpy(), labels, keys)


def _clothes(pairs: Mapping[str, Pair]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Images ``[70000, 28, 28]`` of Fashion-MNIST, of all its files together, and their labels."""
    parts = [read_pair(FASHION_MNIST, pair)[0] for pair in pairs.values()]
    images = np.concatenate([part.images[:, 0] for part in parts])
    return images, np.concatenate([part.labels for part in parts]).astype(np.int64)


def _made(images: npt.NDArray[np.uint8], labels: npt.NDArray[np.int64], keys: CompCarsLikeKeys) -> Arrays:
    most = len(images) // len(NAMES)
    each = keys.samples or min(_SAMPLES, most)
    if each > most:
        raise RequestError(
            f"data.samples={each}: {keys.base} has {len(images):,} images, at most {most:,} for each of {len(NAMES)} "
            "clients"
        )
    chosen = Streams(keys.seed).numpy("compcars_like images").permutation(len(images))[: each * len(NAMES)]
    merged = np.array(_MERGED[keys.base][0], np.uint8)
    return {
        "images": _changed(torch.from_numpy(images[chosen]), each).numpy(),
        "labels": merged[labels[chosen]],
    }


def _changed(images: Tensor, each: int) -> Tensor:
    """Images ``[clients * each, 28, 28]``, client after client, as ``[.., 1, 28, 28]`` in the clients' looks."""
    looks = []
    for client, own in enumerate(images.split(each)):
        view, level = divmod(client, len(YEARS))
        turned = _turned(own.float().div(255)[:, None], _STEP * view)
        looks.append(_bytes(0.1 * level + (1 - 0.12 * level) * turned))
    return torch.cat(looks)


def _turned(images: Tensor, degrees: float) -> Tensor:
    """``[n, 1, side, side]`` turned counter-clockwise; corners that turn in are black."""
    quarters, rest = divmod(degrees, 90)
    images = torch.rot90(images, int(quarters), dims=(2, 3))
    if not rest:
        return images
    angle = torch.deg2rad(torch.tensor(rest))
    matrix = torch.stack([angle.cos(), -angle.sin(), angle * 0, angle.sin(), angle.cos(), angle * 0]).view(1, 2, 3)
    grid = F.affine_grid(matrix, [1, *images.shape[1:]], align_corners=False).expand(len(images), -1, -1, -1)
    return F.grid_sample(images, grid, align_corners=False)


def _bytes(images: Tensor) -> Tensor:
    return images.clamp(0, 1).mul(255).round().to(torch.uint8)
