"""What a client's data is like, in a few numbers, from its train split alone."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from panacea.data.federation import Federation

__all__ = ["client_profiles", "label_shares"]


def label_shares(federation: Federation) -> npt.NDArray[np.float64]:
    """Share of every class among a client's training samples, ``[clients, classes]``."""
    classes, counts = federation.task.classes, federation.counts("train")
    owner = np.repeat(np.arange(len(federation)), counts)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    labels = federation.y.numpy()[np.repeat(federation.bounds[:, 0], counts) + within]
    flat = np.bincount(owner * classes + labels, minlength=len(federation) * classes)
    return flat.reshape(len(federation), classes) / counts[:, None]


def client_profiles(federation: Federation) -> npt.NDArray[np.float64]:
    """A point per client, ``[clients, d]``, so that distances between points say how different two clients' data is.

    Classification: the square roots of the label shares, divided by the square root of 2; the Euclidean distance is
    then Hellinger's, 0 for equal label distributions and 1 for disjoint ones. Otherwise: the mean target of each
    output, divided by its standard deviation over clients (1 where that is 0); missing targets do not count, and of an
    output that a client never observed the mean of the others is taken.
    """
    if federation.task.kind == "classification":
        return np.sqrt(label_shares(federation) / 2)
    means = np.array([_mean_targets(federation.y[start:end].numpy()) for start, end in federation.bounds[:, :2]])
    known = np.isfinite(means)
    means = np.where(known, means, np.where(known, means, 0).sum(axis=0) / np.maximum(known.sum(axis=0), 1))
    spread = means.std(axis=0)
    return np.asarray(means / np.where(spread > 0, spread, 1.0), np.float64)


def _mean_targets(y: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """``[outputs]``: the mean of every output over one client's samples, NaN where none was observed."""
    flat = y.reshape(len(y), -1)
    seen = np.isfinite(flat)
    counts = seen.sum(axis=0)
    sums = np.where(seen, flat, 0).sum(axis=0, dtype=np.float64)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
