"""Cohorts, their weights, and averages over them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from panacea.core.aggregate import weighted_mean
from panacea.core.types import Cohort

COUNTS = np.array([10, 1, 5, 100, 34])


def cohort(*ids: int, dtype: torch.dtype = torch.float64) -> Cohort:
    return Cohort.of(np.array(ids), COUNTS, 3, torch.zeros(1, dtype=dtype))


def test_a_cohort_is_in_client_order_whatever_the_order_of_sampling():
    found = cohort(3, 0, 4)
    assert found.ids.tolist() == [0, 3, 4]
    assert found.ids.dtype == np.int64
    assert found.counts.tolist() == [[10.0], [100.0], [34.0]]
    assert found.trust.tolist() == [[1.0], [1.0], [1.0]]
    assert (len(found), found.round) == (3, 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numbers_have_the_models_type(dtype: torch.dtype):
    found = cohort(1, 2, dtype=dtype)
    assert found.counts.dtype == found.trust.dtype == found.weights().dtype == dtype


def test_the_given_ids_are_left_as_they_are():
    ids = np.array([4, 1])
    Cohort.of(ids, COUNTS, 1, torch.zeros(1))
    assert ids.tolist() == [4, 1]


def test_weights_sum_to_one():
    found = cohort(0, 2, 4)
    torch.testing.assert_close(found.weights(), torch.tensor([[10.0], [5.0], [34.0]], dtype=torch.float64) / 49)
    torch.testing.assert_close(found.weights("uniform"), torch.full((3, 1), 1 / 3, dtype=torch.float64))


def test_trust_scales_both_kinds_of_weights():
    trust = torch.tensor([[1.0], [0.0], [0.5]], dtype=torch.float64)
    found = dataclasses.replace(cohort(0, 2, 4), trust=trust)
    torch.testing.assert_close(found.weights(), torch.tensor([[10.0], [0.0], [17.0]], dtype=torch.float64) / 27)
    torch.testing.assert_close(found.weights("uniform"), torch.tensor([[2.0], [0.0], [1.0]], dtype=torch.float64) / 3)


def test_weighted_mean_by_hand():
    rows = torch.tensor([[1.0, 10.0, 0.0], [2.0, 20.0, 4.0]])
    assert weighted_mean(rows, torch.tensor([[0.25], [0.75]])).tolist() == [1.75, 17.5, 3.0]
    assert weighted_mean(rows[:1], torch.ones(1, 1)).tolist() == rows[0].tolist()


def test_weighted_mean_of_equal_rows_is_the_row():
    rows = torch.linspace(-1, 1, 5, dtype=torch.float64).expand(3, -1)
    torch.testing.assert_close(weighted_mean(rows, cohort(0, 2, 4).weights()), rows[0])


def test_weighted_mean_of_nothing_is_nothing():
    assert weighted_mean(torch.zeros(3, 0), torch.full((3, 1), 1 / 3)).shape == (0,)
