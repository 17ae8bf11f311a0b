"""Clusters of clients."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from panacea.core.clusters import FirstUpdates, group_members, k_means
from panacea.errors import RequestError


def test_k_means_finds_blobs_and_keeps_their_numbers() -> None:
    generator = torch.Generator().manual_seed(0)
    centres = torch.tensor([[0.0, 0.0], [5.0, 0.0], [0.0, 5.0]])
    true = torch.arange(30) % 3
    rows = centres[true] + 0.3 * torch.randn((30, 2), generator=generator)
    found, means = k_means(rows, 3)
    assert len({(int(a), int(b)) for a, b in zip(true, found, strict=True)}) == 3  # one number for each blob
    torch.testing.assert_close(means[found[0]], rows[true == 0].mean(dim=0))
    again, _ = k_means(rows[10:], means)
    assert torch.equal(again, found[10:])


def test_an_empty_cluster_stays_where_it_is() -> None:
    found, means = k_means(torch.tensor([[0.0], [1.0]]), torch.tensor([[0.5], [100.0]]))
    assert found.tolist() == [0, 0]
    assert means.tolist() == [[0.5], [100.0]]


def test_only_a_first_update_counts_and_only_its_direction() -> None:
    known = FirstUpdates.none(4, 2, 2, torch.zeros(1))
    known = known.add(torch.tensor([1]), torch.tensor([[3.0, 0.0]]))
    assert bool((known.members == 0).all())  # one client is not two clusters
    known = known.add(torch.tensor([1, 3]), torch.tensor([[0.0, 1.0], [0.0, 9.0]]))
    assert known.updates[[1, 3]].tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert known.members.tolist() == [[0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]
    known = known.add(torch.tensor([0]), torch.tensor([[0.1, 7.0]]))
    assert known.members[0].tolist() == [0.0, 1.0]


def test_known_groups() -> None:
    assert group_members(np.array([1, 0]), 3, torch.zeros(1)).tolist() == [[0, 1, 0], [1, 0, 0]]
    with pytest.raises(RequestError, match="needs at least 5 domains"):
        group_members(np.array([4, 0]), 3, torch.zeros(1))
    with pytest.raises(RequestError, match="no known groups"):
        group_members(None, 3, torch.zeros(1))
