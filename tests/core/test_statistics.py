"""Who owns BatchNorm's running statistics between rounds."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from panacea.core.statistics import BufferPolicy, Statistics
from panacea.core.types import Cohort

COUNTS = np.array([10, 30, 60, 5])
INITIAL = torch.tensor([0.0, 1.0], dtype=torch.float64)


def cohort(*ids: int) -> Cohort:
    return Cohort.of(np.array(ids), COUNTS, 1, INITIAL)


def after(policy: BufferPolicy, *visits: tuple[Cohort, list[list[float]]]) -> Statistics:
    statistics = Statistics(policy, INITIAL, 4)
    for who, rows in visits:
        statistics.receive(who, torch.tensor(rows, dtype=torch.float64))
    return statistics


@pytest.mark.parametrize("policy", ["shared", "local", "frozen"])
def test_everybody_starts_with_the_initial_ones(policy: BufferPolicy):
    statistics = Statistics(policy, INITIAL, 4)
    assert statistics.send(cohort(0, 2, 3)).tolist() == [[0.0, 1.0]] * 3
    assert torch.equal(statistics.average(), INITIAL)


def test_shared_ones_are_averaged_by_samples_and_sent_to_all():
    statistics = after("shared", (cohort(0, 1), [[4.0, 8.0], [0.0, 4.0]]))
    assert statistics.send(cohort(2, 3)).tolist() == [[1.0, 5.0]] * 2  # 1/4 and 3/4
    assert statistics.average().tolist() == [1.0, 5.0]
    statistics.receive(cohort(2), torch.tensor([[7.0, 7.0]], dtype=torch.float64))
    assert statistics.send(cohort(0)).tolist() == [[7.0, 7.0]]


def test_local_ones_stay_with_their_client():
    statistics = after("local", (cohort(0, 2), [[1.0, 2.0], [3.0, 4.0]]), (cohort(2, 3), [[5.0, 6.0], [7.0, 8.0]]))
    assert statistics.send(cohort(0, 1, 2, 3)).tolist() == [[1.0, 2.0], [0.0, 1.0], [5.0, 6.0], [7.0, 8.0]]
    torch.testing.assert_close(statistics.average(), torch.tensor([13 / 3, 16 / 3], dtype=torch.float64))
    assert torch.equal(statistics.common, INITIAL)


def test_frozen_ones_never_change():
    statistics = after("frozen", (cohort(0, 1), [[4.0, 8.0], [0.0, 4.0]]))
    assert statistics.send(cohort(0, 1, 2)).tolist() == [[0.0, 1.0]] * 3
    assert torch.equal(statistics.average(), INITIAL)


@pytest.mark.parametrize(("policy", "expected"), [("shared", 3 * 2 * 8), ("local", 0), ("frozen", 0)])
def test_only_shared_ones_travel(policy: BufferPolicy, expected: int):
    assert Statistics(policy, INITIAL, 4).nbytes(cohort(0, 1, 2)) == expected


@pytest.mark.parametrize("policy", ["shared", "local", "frozen"])
def test_networks_without_statistics_pay_nothing(policy: BufferPolicy):
    nothing: Tensor = torch.zeros(0)
    statistics = Statistics(policy, nothing, 4)
    assert statistics.send(cohort(0, 1)).shape == (2, 0)
    statistics.receive(cohort(0, 1), torch.zeros(2, 0))
    assert statistics.nbytes(cohort(0, 1)) == 0
    assert statistics.own.rows is None
    assert statistics.average().shape == (0,)
