"""Pairs of clients by number, and distinct random ones of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["code_of", "number_of_pairs", "pair_of", "random_codes"]

Ids = npt.NDArray[np.int64]

_LISTED = 1 << 22  # up to so many pairs a permutation of all of them is drawn
_BLOCK = 1 << 16  # draws together; fixed, so that the first m of them are the same for every m


def number_of_pairs(n: int, directed: bool) -> int:
    """Ordered or unordered pairs of different clients."""
    return n * (n - 1) if directed else n * (n - 1) // 2


def code_of(edges: Ids, n: int, directed: bool) -> Ids:
    """A number below `number_of_pairs` for every pair; undirected pairs have ``edges[:, 0] < edges[:, 1]``."""
    a, b = edges[:, 0], edges[:, 1]
    return a * (n - 1) + b - (b > a) if directed else b * (b - 1) // 2 + a


def pair_of(codes: Ids, n: int, directed: bool) -> Ids:
    """The pairs of numbers, ``[count, 2]``."""
    if directed:
        a, b = codes // max(n - 1, 1), codes % max(n - 1, 1)
        return np.stack([a, b + (b >= a)], axis=1)
    b = ((1 + np.sqrt(1 + 8 * codes.astype(np.float64))) / 2).astype(np.int64)  # exact up to 40 million clients
    return np.stack([codes - b * (b - 1) // 2, b], axis=1)


def random_codes(stream: np.random.Generator, n: int, directed: bool, count: int, taken: Ids) -> Ids:
    """`count` different pair numbers that are not among `taken`, uniform, in random order.

    There must be that many. What is drawn for a smaller count is the beginning of what is drawn for a larger one.
    """
    total = number_of_pairs(n, directed)
    if total <= _LISTED:
        free = np.ones(total, np.bool_)
        free[taken] = False
        return stream.permutation(np.flatnonzero(free))[:count].astype(np.int64)
    drawn = np.zeros(0, np.int64)
    while True:
        fresh = [stream.integers(0, total, _BLOCK) for _ in range(1 + 2 * max(count - len(drawn), 0) // _BLOCK)]
        drawn = np.concatenate([drawn, *fresh])
        drawn = drawn[np.sort(np.unique(drawn, return_index=True)[1])]  # each at its first place
        drawn = drawn[~np.isin(drawn, taken)]
        if len(drawn) >= count:
            return drawn[:count]
