"""How samples of all clients are laid out in one tensor: split, shuffled, one client after the other."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from panacea.core.random import Streams, bits
from panacea.errors import RequestError

__all__ = ["shuffled", "split_bounds", "tensor_pair"]

Counts = npt.NDArray[np.int64]

_WORDS = 1 << 22  # random words drawn at a time


def split_bounds(counts: Counts, given_test: Counts | None, val: float, test: float) -> Counts:
    """First train, first val, first test sample and end of every client, ``[clients, 4]``.

    Args:
        counts: samples of every client; without its test samples where those are given.
        given_test: test samples of every client, when the data set itself says what is test.
        val: share of the train part, at least one sample where there are two or more.
        test: share of all samples, likewise.
    """
    for name, share in (("val", val), ("test", test)):
        if not 0 <= share < 1:
            raise RequestError(f"{name}={share}: the share must be at least 0 and below 1")
    n_test = _share(counts, test) if given_test is None else given_test
    n_fit = counts - n_test if given_test is None else counts
    n_val = _share(n_fit, val)
    widths = np.stack([n_fit - n_val, n_val, n_test], axis=1)
    ends = np.cumsum(widths.reshape(-1)).reshape(-1, 3)
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1, 2]]) if len(ends) else np.zeros(0, np.int64)
    return np.concatenate([starts[:, None], ends], axis=1).astype(np.int64)


def _share(counts: Counts, share: float) -> Counts:
    """A share of every count, at least 1 and at most all but one; 0 where the share is 0 or the count below 2."""
    if share <= 0:
        return np.zeros_like(counts)
    return np.where(counts < 2, 0, np.clip(np.rint(share * counts), 1, np.maximum(counts - 1, 1))).astype(np.int64)


def shuffled(streams: Streams, starts: Counts, counts: Counts, total: int) -> Counts:
    """Positions ``[total]`` in which the `counts` samples from each start on are in random order.

    A client's order depends on the seed, its position and its number of samples only.
    """
    order = np.arange(total, dtype=np.int64)
    keys = streams.keys("split", 0, np.arange(len(starts)))
    for n in np.unique(counts[counts > 1]):  # clients of one size are shuffled together
        members = np.flatnonzero(counts == n)
        for block in np.array_split(members, max(1, len(members) * int(n) // _WORDS)):
            first = starts[block][:, None]
            order[first + np.arange(n)] = first + bits(keys[block], int(n)).argsort(axis=-1)
    return order


def tensor_pair(
    pair: tuple[npt.ArrayLike | Tensor, npt.ArrayLike | Tensor], target_type: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Inputs and targets of a client as tensors of equal length."""
    x, y = torch.as_tensor(pair[0], dtype=torch.float32), torch.as_tensor(pair[1], dtype=target_type)
    if len(x) != len(y):
        raise RequestError(f"a client has {len(x)} inputs but {len(y)} targets")
    return x, y
