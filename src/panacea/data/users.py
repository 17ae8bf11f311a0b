"""Data sets whose clients are people: who has enough samples, who trains and who is held out entirely.

LEAF (Caldas et al. 2018) and FedCG (Caldarola et al. 2021) divide *people*, not samples, into train, validation and
test: 60/20/20 on FEMNIST; 10 % for training and another 20 % for test on CelebA. Here

    test people        are novel clients: never trained on, scored at every evaluation
    validation people  are left out, because the round is chosen on the validation part of the training clients
    the remaining 70 % of 10/20 are left out

Differences from the papers:
    * A client, novel or not, is still divided into train, validation and test samples. A novel client is scored on its
      test samples only (the papers: on all it has), so that a method which adapts to a newcomer can do so on the rest.
    * Training clients train on their train part only (the papers: on all they have).
    * Scores are means over clients (the papers: over all images of the test people together).
    * Who is in which part is drawn by the data seed; the papers do not print their lists.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from panacea.core.random import Streams
from panacea.data.owned import Owned
from panacea.data.registry import NaturalKeys
from panacea.errors import RequestError

__all__ = ["LEAF_LEAST", "LEAF_TEST", "UserKeys", "divide_users", "take_first", "with_enough"]

LEAF_LEAST = 5  # images of a person that LEAF keeps
LEAF_TEST = 0.1  # of a person's samples, as LEAF's scripts do by default
_SHARES: dict[str, tuple[float | None, float, float]] = {  # train (None: the rest), validation, test
    "60/20/20": (None, 0.2, 0.2),
    "10/20": (0.1, 0.0, 0.2),
}


class UserKeys(NaturalKeys):
    """Keys of data sets whose clients are people."""

    users: Literal["all", "60/20/20", "10/20"] = Field(
        "all", description="all train; or shares of people for train/val/test: test ones are novel, val ones left out"
    )
    min_samples: int = Field(LEAF_LEAST, ge=2, description="people with fewer images are left out")
    test: float | None = Field(
        None, gt=0, lt=1, description="test share of each client, at random; default LEAF's own test files, else 0.1"
    )


def with_enough(samples: Owned, least: int, who: str) -> tuple[Owned, tuple[str, ...]]:
    """Only people with enough samples, one of them to train on, and a note on how many had not."""
    enough = np.flatnonzero((samples.counts() >= least) & (samples.train_counts() > 0))
    few = len(samples.names) - len(enough)
    if not few:
        return samples, ()
    note = f"{few:,} of {len(samples.names):,} {who} left out: fewer than {least} images, or none to train on"
    if not len(enough):
        raise RequestError(f"data.min_samples={least}: none of {len(samples.names):,} {who} has so many images")
    return samples.take(enough), (note,)


def divide_users(samples: Owned, keys: UserKeys, who: str) -> tuple[Owned, npt.NDArray[np.bool_], tuple[str, ...]]:
    """Who takes part, which of them are novel, and a note that says so; see the module."""
    total = len(samples.names)
    samples = samples if keys.test is None else replace(samples, test=None)
    if keys.users == "all":
        return samples, np.zeros(total, np.bool_), ()
    train, val, test = _SHARES[keys.users]
    n_test, n_val = max(round(test * total), 1), round(val * total)
    n_train = total - n_val - n_test if train is None else max(round(train * total), 1)
    if n_train < 1 or n_train + n_test > total:
        raise RequestError(f"data.users={keys.users}: {total} {who} are too few to divide so")
    order = Streams(keys.seed).numpy("divide users").permutation(total)
    role = np.zeros(total, np.int64)
    role[order[:n_train]], role[order[total - n_test :]] = 1, 2
    taking_part = np.flatnonzero(role)
    note = (
        f"data.users={keys.users}: {n_train:,} {who} train, {n_test:,} are novel (test), "
        f"{total - n_train - n_test:,} are left out"
    )
    return samples.take(taking_part), role[taking_part] == 2, (note,)


def take_first(samples: Owned, clients: int | None, name: str) -> Owned:
    """The first people only."""
    total = len(samples.names)
    if clients is None or clients == total:
        return samples
    if clients > total:
        raise RequestError(f"data.clients={clients}: {name} has {total:,} clients here")
    return samples.take(np.arange(clients))
