"""Named, counter-based random streams from one root seed.

Every random number of an experiment belongs to a *stream* named by (seed, purpose, round, client) and is found by its
position in that stream, not by what was drawn before it. So a client sees the same batches in every engine, in any
block of clients, on any device and after a resume, and no global generator is ever seeded.

The generator is SplitMix64's finaliser used as a keyed hash, ``bits(key, i) = mix(key ^ mix(i * golden))``: ten integer
operations, the same on NumPy and on any torch device, and vectorised over clients.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

__all__ = ["Keys", "Streams", "bits", "client_keys", "mix", "sample_batches", "torch_mix", "torch_uniform", "uniform"]

Keys = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)
_WORD = 2**64 - 1


def mix(z: Keys) -> Keys:
    """SplitMix64's finaliser: a bijection of 64-bit words in which every input bit reaches every output bit."""
    with np.errstate(over="ignore"):
        z = (z ^ (z >> np.uint64(30))) * _M1
        z = (z ^ (z >> np.uint64(27))) * _M2
        return z ^ (z >> np.uint64(31))


@lru_cache(maxsize=64)
def _counters(start: int, count: int) -> Keys:
    with np.errstate(over="ignore"):
        return mix((np.arange(start + 1, start + count + 1, dtype=np.uint64)) * _GOLDEN)


def bits(keys: Keys, count: int, start: int = 0) -> Keys:
    """Words ``start .. start + count`` of every stream: ``[...]`` keys give ``[..., count]`` words."""
    return mix(keys[..., None] ^ _counters(start, count))


def uniform(keys: Keys, count: int, start: int = 0) -> npt.NDArray[np.float64]:
    """Like `bits`, as float64 in [0, 1)."""
    return (bits(keys, count, start) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mixed(z: int) -> int:
    """`mix` of one word: Python's own integers are ten times as fast as NumPy's scalars."""
    z &= _WORD
    z = ((z ^ (z >> 30)) * int(_M1)) & _WORD
    z = ((z ^ (z >> 27)) * int(_M2)) & _WORD
    return z ^ (z >> 31)


@lru_cache(maxsize=256)
def _purpose_key(seed: int, purpose: str) -> int:
    word = int.from_bytes(hashlib.blake2b(purpose.encode(), digest_size=8).digest(), "little")
    return _mixed(_mixed(seed + int(_GOLDEN)) ^ word)


def client_keys(rounds: Keys | np.uint64, clients: npt.NDArray[np.uint64]) -> Keys:
    """The keys of clients ``[clients]`` from that of their round (`Streams.round_key`), or from one of each."""
    with np.errstate(over="ignore"):
        return mix((clients + np.uint64(1)) * _M1 + rounds)


class Streams:
    """All random streams of one experiment.

    >>> streams = Streams(0)
    >>> bool(streams.key("batches", round=3, client=7) == Streams(0).key("batches", round=3, client=7))
    True
    """

    def __init__(self, seed: int) -> None:
        self.seed = int(seed)
        self._generator: np.random.Generator | None = None

    def keys(self, purpose: str, round: int, clients: npt.ArrayLike) -> Keys:
        """One key per client, ``[clients]``."""
        return client_keys(np.uint64(self.round_key(purpose, round)), np.asarray(clients, dtype=np.uint64))

    def key(self, purpose: str, round: int = 0, client: int = 0) -> int:
        """The key of one stream, an integer below 2**64."""
        return _mixed(self.round_key(purpose, round) + (client + 1) * int(_M1))

    def round_key(self, purpose: str, round: int) -> int:
        """What the keys of all clients of a round are made from."""
        return _mixed(_purpose_key(self.seed, purpose) + (round + 1) * int(_GOLDEN))

    def numpy(self, purpose: str, round: int = 0, client: int = 0) -> np.random.Generator:
        """A NumPy generator at the start of a stream, for everything that is not in a hot path."""
        return np.random.Generator(np.random.Philox(key=self.key(purpose, round, client)))

    def subset(self, purpose: str, round: int, among: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64]:
        """So many of these, each subset as likely; what `numpy(...).choice` draws, in half the time.

        A new generator first collects entropy that nobody asked for, so one is kept and put to the stream's start.
        """
        if self._generator is None:
            self._generator = np.random.Generator(np.random.Philox(key=0))
            self._start: Any = self._generator.bit_generator.state
        self._start["state"]["key"][0] = self.key(purpose, round)
        self._generator.bit_generator.state = self._start
        return self._generator.choice(among, size, replace=False)

    def torch(self, purpose: str, round: int = 0, client: int = 0) -> torch.Generator:
        """A CPU torch generator at the start of a stream."""
        return torch.Generator().manual_seed(self.key(purpose, round, client) >> 1)


def sample_batches(keys: Keys, counts: npt.NDArray[np.int64], steps: int, batch: int) -> npt.NDArray[np.int64]:
    """Positions of the samples of every local step: a fresh batch of ``min(batch, n)`` without replacement each.

    Args:
        keys: one stream per row, ``[rows]``.
        counts: samples of each row, ``[rows]``, all at least 1.
        steps: K, local steps.
        batch: B, the batch size asked for.

    Returns:
        ``[steps, rows, width]`` with ``width = min(batch, max(counts))``; entries beyond a row's own ``min(batch, n)``
        are 0 and carry no weight. What a row draws in step t depends on its own key and count only, not on `steps`.
    """
    width = int(min(batch, counts.max()))
    out = np.zeros((len(keys), steps, width), dtype=np.int64)
    for n in np.unique(counts):  # rows of one size are drawn together; equal sizes are the common case
        rows = np.flatnonzero(counts == n)
        size = int(min(batch, n))
        out[rows, :, :size] = _draw(keys[rows], int(n), steps, size)
    return np.ascontiguousarray(out.transpose(1, 0, 2))


def _draw(keys: Keys, n: int, steps: int, size: int) -> npt.NDArray[np.int64]:
    """``[rows, steps, size]`` positions below n, distinct within a step."""
    if n <= 8 * size:  # few samples: the places of the `size` smallest of n random words are a uniform subset
        words = bits(keys, steps * n).reshape(len(keys), steps, n)
        if size == n:
            return words.argsort(axis=-1)
        last = np.partition(words, size - 1, axis=-1)[..., size - 1 : size]
        return np.nonzero(words <= last)[-1].reshape(len(keys), steps, size)
    drawn = (uniform(keys, steps * size).reshape(len(keys), steps, size) * n).astype(np.int64)
    redrawn = keys
    while True:  # many samples: repeats are rare, so draw them again until none is left
        order = drawn.argsort(axis=-1, kind="stable")
        ranked = np.take_along_axis(drawn, order, axis=-1)
        repeat = np.zeros_like(drawn, dtype=bool)
        np.put_along_axis(repeat[..., :], order[..., 1:], ranked[..., 1:] == ranked[..., :-1], axis=-1)
        if not repeat.any():
            return drawn
        redrawn = mix(redrawn ^ _GOLDEN)  # a stream of its own, so that a step's batch does not depend on `steps`
        fresh = (uniform(redrawn, steps * size).reshape(drawn.shape) * n).astype(np.int64)
        drawn = np.where(repeat, fresh, drawn)


def torch_mix(z: Tensor) -> Tensor:
    """`mix` of int64 words on a torch device."""
    z = (z ^ ((z >> 30) & (2**34 - 1))) * -0x40A7B892E31B1A47
    z = (z ^ ((z >> 27) & (2**37 - 1))) * -0x6B2FB644ECCEEE15
    return z ^ ((z >> 31) & (2**33 - 1))


def torch_uniform(keys: Tensor, count: int, start: int = 0) -> Tensor:
    """`uniform` on a torch device, in float32: int64 keys ``[...]`` give ``[..., count]`` in [0, 1)."""
    counter = torch.arange(start + 1, start + count + 1, dtype=torch.int64, device=keys.device)
    counter = torch_mix(counter * -0x61C8864680B583EB)
    return ((torch_mix(keys[..., None] ^ counter) >> 40) & (2**24 - 1)).to(torch.float32) * 2.0**-24
