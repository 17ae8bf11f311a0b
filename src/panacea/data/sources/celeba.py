"""CelebA: faces of celebrities, 84 x 84 pixels in colour; smiling or not; one client per celebrity (LEAF).

    x = the aligned image, resized to 84 x 84, RGB, bytes that stand for [0, 1]
    y = 1 where the person smiles
    LEAF's own train and test files where they are there, else a random tenth of each person's images is test
    no graph

People with fewer than 5 images are left out (`data.min_samples`). Images are decoded once, those of the people that
are taken (`data.clients`) only, and stay on disk (`panacea.data.image_store`).

Groups, where `list_attr_celeba.txt` is there: five attributes (attractive, heavy makeup, high cheekbones, mouth
slightly open, wavy hair) give 32 domains; a client's group is the pattern that most of its images have, attribute by
attribute (an even count is a no), read as a binary number, the first attribute lowest.

Source: CelebA (Liu et al. 2015, MMLab, The Chinese University of Hong Kong), LEAF (Caldas et al. 2018).

Differences from the paper:
    * `data.users=10/20` is FedCG's and LEAF's division of people; what differs is in `panacea.data.users`.
    * FedCG's 32 domains are of images; here a client has one, because a group is a client's.
    * FedCG trains one epoch a round; the default here is 4 steps of 5 images, an epoch of a person with 20.
    * LEAF resizes with its Pillow's default filter; here with an antialiased bilinear one.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from panacea.data.federation import Federation
from panacea.data.image_store import image_store
from panacea.data.owned import Owned, lay_out
from panacea.data.registry import Card, TrainingDefaults, dataset
from panacea.data.sources._celeba_files import DOMAIN_ATTRIBUTES, read_celeba
from panacea.data.task import Task
from panacea.data.users import LEAF_LEAST, LEAF_TEST, UserKeys, divide_users, take_first, with_enough

__all__ = ["CelebaKeys", "load_celeba"]

PEOPLE = 9343  # of LEAF's table: those with five images or more
SIDE = 84

CARD = Card(
    licence="for non-commercial research only (MMLab, The Chinese University of Hong Kong); LEAF's lists: BSD 2-Clause",
    citation="Liu et al., Deep Learning Face Attributes in the Wild, ICCV 2015; Caldas et al., LEAF, 2018",
    used_in="Caldarola et al. 2021 (FedCG), Tables 1 to 5",
    get="place the folder img_align_celeba (or raw/img_align_celeba) with identity_CelebA.txt and list_attr_celeba.txt "
    "there, as MMLab (The Chinese University of Hong Kong) publishes them, or img_align_celeba with the JSON files of "
    "LEAF's data/celeba/preprocess.sh (train/*.json and test/*.json, or all_data/all_data*.json)",
    splits="LEAF's 90/10 within each person; data.users=10/20: a tenth train, a fifth are novel (test)",
)


class CelebaKeys(UserKeys):
    """Keys of `celeba`."""


@dataset(
    "celeba",
    summary="faces of celebrities (84 x 84, smiling or not), one client per person, images stay on disk",
    source="CelebA (Liu et al. 2015) as in LEAF (Caldas et al. 2018); 9,343 people, 200,288 images",
    keys=CelebaKeys,
    # lr, batch, rounds and cohort of FedCG, section 5.1; 4 steps of 5 are about one epoch
    defaults=TrainingDefaults(lr=0.001, rounds=100, cohort=10, model="leaf_celeba", local_steps=4, batch_size=5),
    card=CARD,
)
def load_celeba(keys: CelebaKeys) -> Federation:
    """Read who is on which image, prepare the images of those who are taken, divide people as the keys say."""
    read = read_celeba(keys.root, CARD.get)
    known = int((read.samples.counts() >= LEAF_LEAST).sum())
    samples, dropped = with_enough(read.samples, keys.min_samples, "people")
    samples = take_first(samples, keys.clients, "celeba")
    store = image_store("celeba", read.folder, [read.files[row] for row in samples.rows], SIDE)
    patterns = None if read.patterns is None else read.patterns[samples.rows]
    samples = replace(samples, rows=np.arange(len(samples.rows), dtype=np.int64)).where(store.sound)
    samples, more = with_enough(samples, keys.min_samples, "people")
    samples, novel, roles = divide_users(samples, keys, "people")
    federation = lay_out(
        "celeba",
        samples,
        store.images,
        task=Task("classification", (3, SIDE, SIDE), classes=2, class_names=("not smiling", "smiling")),
        seed=keys.seed,
        val=keys.val,
        test=keys.test or LEAF_TEST,
    )
    return replace(
        federation,
        groups=None if patterns is None else _domains(samples, patterns),
        novel=novel,
        notes=(*dropped, *store.notes, *more, *roles),
        partial=f"PARTIAL {known:,} of {PEOPLE:,} people" if known < PEOPLE else "",
        fingerprint=store.fingerprint,
    )


def _domains(samples: Owned, patterns: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """``[clients]`` 0..31: see the module."""
    counts = samples.counts()
    codes = np.zeros(len(counts), np.int64)
    for place in range(len(DOMAIN_ATTRIBUTES)):
        yes = np.bincount(samples.owner, patterns[samples.rows, place], minlength=len(counts))
        codes += (2 * yes > counts).astype(np.int64) << place
    return codes
