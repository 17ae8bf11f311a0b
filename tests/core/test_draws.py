"""Batches drawn by torch are those drawn by NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from panacea.core.draws import device_batches
from panacea.core.random import Streams, sample_batches


@pytest.mark.parametrize(
    ("counts", "batch", "steps"),
    [
        ([100] * 5, 64, 20),
        ([5, 64, 100, 7, 1000], 64, 13),  # fewer than a batch, exactly one, some, many
        ([3000, 24_000], 64, 50),  # drawn again until no repeat is left
        ([1], 7, 3),
    ],
)
def test_the_same_positions(counts: list[int], batch: int, steps: int) -> None:
    sizes = np.array(counts)
    keys = Streams(3).keys("batches", 2, np.arange(len(sizes)))
    ours = sample_batches(keys, sizes, steps, batch)
    assert np.array_equal(ours, device_batches(keys, sizes, steps, batch, torch.device("cpu")).numpy())
    for row, size in enumerate(sizes):
        drawn = ours[:, row, : min(batch, size)]
        assert all(len(set(step)) == len(step) for step in drawn.tolist())
        assert drawn.max() < size


def test_a_batch_is_in_the_order_of_the_samples_where_a_subset_is_drawn() -> None:
    """An order that every device can make; which samples they are does not depend on it."""
    drawn = sample_batches(Streams(0).keys("batches", 1, [0]), np.array([40]), 30, 8)
    assert (np.diff(drawn, axis=-1) > 0).all()
    assert np.bincount(drawn.reshape(-1), minlength=40).min() > 0
