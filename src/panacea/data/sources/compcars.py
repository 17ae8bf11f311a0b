"""CompCars: pictures of cars; the type of the car; a client has one viewpoint and one year of manufacture.

    30 clients = 5 viewpoints (front, front-side, side, rear-side, rear) x 6 years (2009 to 2014)
    x = the picture, resized to `data.size` x `data.size`, RGB, bytes that stand for [0, 1]
    y = MPV, SUV, sedan or hatchback
    80 % train part (a tenth of it for validation), 20 % test, at random by the data seed
    graph by `data.rule`, see `panacea.data.sources._view_year`: the papers' "identical or nearby" is `or`, 315 edges

Pictures are decoded once and stay on disk (`panacea.data.image_store`). Those whose viewpoint is unknown are left out
and counted. Groups are viewpoints; features are viewpoint and year, each in [0, 1].

Source: Yang et al. (CVPR 2015), published by MMLab, The Chinese University of Hong Kong, on request; the 30 domains of
GRDA (Xu et al., ICLR 2022).

Differences from the paper:
    * The papers follow GRDA's selection of 24,151 pictures and do not list them. Here every picture of these types,
      viewpoints and years is taken; a different number is stated with the results.
    * Whether `or` means both or either is not said; `or` links 72 % of all pairs. `grid`, `king` and `rook` are ours.
    * Pictures are not normalised by ImageNet's mean and spread, and whole pictures are used, not bounding boxes; the
      papers say neither.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from pydantic import Field

from panacea.data.federation import Federation
from panacea.data.image_store import image_store
from panacea.data.registry import Card, TrainingDefaults, dataset
from panacea.data.sources._compcars_files import TYPES, read_cars
from panacea.data.sources._view_year import ViewYearKeys, view_year_federation
from panacea.data.task import Task
from panacea.data.users import take_first, with_enough

__all__ = ["CompCarsKeys", "load_compcars"]

PICTURES = 24_151  # of the papers
_LEAST = 2  # pictures of a client

CARD = Card(
    licence="for non-commercial research only, on request from MMLab (The Chinese University of Hong Kong)",
    citation="Yang et al., A Large-Scale Car Dataset for Fine-Grained Categorization and Verification, CVPR 2015",
    used_in="the Panacea papers: main table, novel clients, malicious clients, local steps; GRDA (Xu et al. 2022)",
    get="place the folders data/image, data/label and data/misc (with attributes.txt) of CompCars' web-nature part "
    "there, as MMLab (The Chinese University of Hong Kong) gives them out on request; data=compcars_like is a stand-in",
    splits="80/20 at random within each client, a tenth of the train part for validation",
)


class CompCarsKeys(ViewYearKeys):
    """Keys of `compcars`."""

    size: int = Field(224, ge=8, le=1024, description="pixels of a side after resizing")


@dataset(
    "compcars",
    summary="pictures of cars (4 types), 30 clients = 5 viewpoints x 6 years, linked where those are near",
    source="CompCars (Yang et al. 2015) as in GRDA (Xu et al., ICLR 2022); images stay on disk",
    keys=CompCarsKeys,
    # rounds, cohort, steps and batch of the papers; lr is the middle of their grid
    defaults=TrainingDefaults(lr=0.01, rounds=100, cohort=5, novel=0.2, model="resnet18"),
    card=CARD,
)
def load_compcars(keys: CompCarsKeys) -> Federation:
    """Find the pictures, prepare those of the clients that are taken, link the clients."""
    read = read_cars(keys.root, CARD.get)
    samples = take_first(read.samples, keys.clients, "compcars")
    samples, dropped = with_enough(samples, _LEAST, "clients")
    store = image_store("compcars", read.folder, [read.files[row] for row in samples.rows], keys.size)
    samples = replace(samples, rows=np.arange(len(samples.rows), dtype=np.int64)).where(store.sound)
    samples, more = with_enough(samples, _LEAST, "clients")
    task = Task("classification", (3, keys.size, keys.size), classes=len(TYPES), class_names=TYPES)
    found, notes = len(read.files), []
    if read.unknown:
        notes.append(f"{read.unknown:,} pictures left out: their viewpoint is unknown")
    if found > PICTURES:
        notes.append(f"{found:,} pictures fit; the papers use {PICTURES:,} of them and do not say which")
    return replace(
        view_year_federation("compcars", samples, store.images, task, keys),
        notes=(*notes, *dropped, *store.notes, *more),
        partial=f"PARTIAL {found:,} of {PICTURES:,} images" if found < PICTURES else "",
        fingerprint=store.fingerprint,
    )
