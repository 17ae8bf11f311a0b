"""EMNIST by class: 697,932 + 116,323 handwritten digits and letters of 28 x 28 pixels in 62 classes (0-9, A-Z, a-z).

    practical, as FedAMP prints it, 62 clients:
        group 0: clients 0 .. 9,    digits dominate,      1000 train samples (validation included)
        group 1: clients 10 .. 35,  upper case dominates,  700
        group 2: clients 36 .. 61,  lower case dominates,  400
        100 test samples per client; 80 % evenly from the dominating classes, 20 % evenly from the others
    pathological: 62 clients, 2 shards each of the images sorted by label        iid, dirichlet: 62 clients

How test samples are chosen is the same for all sets of images, see `panacea.data.sources._images`. Where the test
split alone is there, train and test samples are drawn from it, all sizes scaled by one factor, and the result is
labelled PARTIAL.

The published IDX files hold every image transposed; other copies hold them upright. Which it is, is seen from the
images of 1, I and l: upright, their ink is spread over rows more than over columns.

Source: Cohen, Afshar, Tapson and van Schaik (2017), from NIST Special Database 19.

Differences from the paper: none known; the paper does not say whether its sizes are totals (taken so here), nor the
shards' and equal shares' sizes.
"""

from __future__ import annotations

from pathlib import Path
from string import ascii_lowercase, ascii_uppercase, digits
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from panacea.data.federation import Federation
from panacea.data.registry import Card, TrainingDefaults, dataset
from panacea.data.sources._idx import Layout, idx_federation
from panacea.data.sources._images import ImageFile, ImageSet
from panacea.data.split import GroupPlan, PoolKeys
from panacea.errors import RequestError

__all__ = ["EMNIST", "EmnistKeys", "load_emnist", "upright"]

Orientation = Literal["auto", "as_is", "transposed"]
_PREFIXES = {"train": ("emnist-byclass-train",), "test": ("emnist-byclass-test",)}
_STROKES = (1, 18, 47)  # labels of 1, I and l
_CLEAR = 1.5  # spread over rows : over columns; 1, I and l of the published files have about 5

EMNIST = ImageSet(
    "emnist",
    (1, 28, 28),
    tuple(digits + ascii_uppercase + ascii_lowercase),
    (697_932, 116_323),
    GroupPlan((1000, 700, 400), (10, 26, 26), (range(10), range(10, 36), range(36, 62))),
)
CARD = Card(
    licence="NIST Special Database 19, a work of the US government",
    citation="Cohen, Afshar, Tapson, van Schaik: EMNIST: extending MNIST to handwritten letters. IJCNN 2017",
    used_in="FedAMP (Huang et al., AAAI 2021): IID, pathological and practical settings, the latter exactly as printed",
    get="place emnist-byclass-{train,test}-images-idx3-ubyte and emnist-byclass-{train,test}-labels-idx1-ubyte (plain "
    "or .gz, from gzip.zip of the EMNIST data set, published by NIST) in that folder",
    splits="train + validation from the train file, test from the test file; practical: 1000/700/400 train (validation "
    "included) and 100 test per client, 80 % from digits, upper case or lower case; scaled by one factor where only "
    "one file is there",
)


class EmnistKeys(PoolKeys):
    """Keys of `emnist`."""

    groups: int = Field(3, ge=1, description="practical: groups of clients with the same dominating classes")
    orientation: Orientation = Field(
        "auto", description="as_is: images are upright; transposed: as in the published IDX files; auto: look"
    )


# lr: the better of 0.05 and 0.1 on validation samples (FedAvg, cnn, 10 clients, 12 rounds of 10 steps)
@dataset(
    "emnist",
    summary="814,255 handwritten digits and letters (28 x 28, 62 classes), 62 clients in 3 groups as in FedAMP",
    source="EMNIST by class (Cohen et al. 2017), from NIST Special Database 19",
    keys=EmnistKeys,
    defaults=TrainingDefaults(lr=0.1, rounds=200, cohort=10, novel=0.0),
    card=CARD,
)
def load_emnist(keys: EmnistKeys) -> Federation:
    """Read, turn upright and divide the characters."""
    layout = Layout("EMNIST", _PREFIXES, variant=f"-byclass-{keys.orientation}")
    return idx_federation(EMNIST, keys, layout, CARD.get, lambda part, path: _stood_up(part, path, keys.orientation))


def _stood_up(part: ImageFile, path: Path, orientation: Orientation) -> ImageFile:
    stands = upright(part, path) if orientation == "auto" else orientation == "as_is"
    return part if stands else ImageFile(np.ascontiguousarray(part.images.swapaxes(-1, -2)), part.labels)


def upright(part: ImageFile, path: Path) -> bool:
    """Whether images stand upright; False: they are transposed. Errors name the path."""
    ink = part.images[np.isin(part.labels, _STROKES), 0].astype(np.float64)
    spread = [_spread(ink.sum(axis=axis)) for axis in (2, 1)]  # over rows, over columns
    ratio = spread[0] / max(spread[1], 1e-9) if len(ink) else 1.0
    if 1 / _CLEAR < ratio < _CLEAR:
        raise RequestError(
            f"{path}: its {len(ink)} images of 1, I and l do not show whether images are upright; say "
            "data.orientation=as_is or data.orientation=transposed"
        )
    return ratio > 1


def _spread(profiles: npt.NDArray[np.float64]) -> float:
    """Mean variance of the position of ink, ``[images, positions]``; an empty image counts for nothing."""
    place = np.arange(profiles.shape[1])
    weight = profiles / np.maximum(profiles.sum(axis=1, keepdims=True), 1)
    centre = weight @ place
    return float(((weight @ place**2) - centre**2).mean()) if len(profiles) else 0.0
