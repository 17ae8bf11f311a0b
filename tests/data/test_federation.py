"""The federation: layout, splits and the checks everything else relies on."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from panacea.data import Federation, Task
from panacea.errors import RequestError
from panacea.graphs import ClientGraph

TASK = Task("classification", (1,), classes=2)


def made(sizes: list[int], **options: object) -> Federation:
    """Clients whose samples are numbered from 0 over all clients."""
    starts = np.cumsum([0, *sizes])
    clients = [(np.arange(a, b, dtype=float)[:, None], np.zeros(b - a)) for a, b in pairwise(starts)]
    return Federation.from_clients(clients, task=TASK, **options)  # type: ignore[arg-type]


@settings(max_examples=80, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=6),
    val=st.floats(0, 0.99),
    test=st.floats(0, 0.99),
    seed=st.integers(0, 2**63),
    chronological=st.booleans(),
)
def test_every_sample_is_in_exactly_one_split(
    sizes: list[int], val: float, test: float, seed: int, chronological: bool
) -> None:
    fed = made(sizes, val=val, test=test, seed=seed, chronological=chronological)
    starts = np.cumsum([0, *sizes])
    for i, size in enumerate(sizes):
        parts = [fed.client(i, split)[0][:, 0].tolist() for split in ("train", "val", "test")]
        assert sorted(chain(*parts)) == list(range(starts[i], starts[i] + size))
        assert len(parts[0]) >= 1
        if chronological:
            assert list(chain(*parts)) == list(range(starts[i], starts[i] + size))
        n_test, n_val = len(parts[2]), len(parts[1])
        if size >= 2 and test > 0:
            assert n_test == min(max(round(test * size), 1), size - 1)
        else:
            assert n_test == 0
        fit = size - n_test
        assert n_val == (min(max(round(val * fit), 1), fit - 1) if fit >= 2 and val > 0 else 0)


def test_a_clients_order_depends_on_its_own_position_and_size_only() -> None:
    few, many = made([9, 5], seed=3), made([9, 5, 9, 40], seed=3)
    assert bool((few.x == many.x[:14]).all())
    first, third = many.client(0)[0][:, 0], many.client(2)[0][:, 0] - 14
    assert first.tolist() != third.tolist()  # same size, another position, another order
    assert made([9, 5], seed=4).x.tolist() != few.x.tolist()


def test_splits_are_uniform() -> None:
    fed = made([5] * 4000, val=0)
    held = torch.cat([fed.client(i, "test")[0] for i in range(4000)])[:, 0] % 5
    share = np.bincount(held.numpy().astype(int), minlength=5) / 4000
    assert np.abs(share - 0.2).max() < 0.03


def test_given_test_sets() -> None:
    held = [(np.full((2, 1), -1.0), [1, 1]), (np.full((0, 1), -1.0), [])]
    fed = made([6, 3], test_sets=held, val=0)
    assert fed.counts("test").tolist() == [2, 0]
    assert fed.counts("train").tolist() == [6, 3]
    assert fed.client(0, "test")[0].tolist() == [[-1.0], [-1.0]]
    with pytest.raises(RequestError, match="2 clients but 1 test sets"):
        made([6, 3], test_sets=held[:1])


def test_hold_out() -> None:
    fed = made([3] * 10)
    assert fed.hold_out(0.3, 0).novel.sum() == 3
    assert fed.hold_out(0.01, 0).novel.sum() == 1
    assert fed.hold_out(0.99, 0).novel.sum() == 9
    assert len(fed.hold_out(0.3, 0).train_ids) == 7
    assert np.array_equal(np.sort(np.r_[fed.hold_out(0.3, 0).train_ids, fed.hold_out(0.3, 0).novel_ids]), np.arange(10))
    assert "3 novel" in repr(fed.hold_out(0.3, 0))


def test_metric() -> None:
    assert (TASK.metric, TASK.higher_is_better) == ("accuracy", True)
    assert (Task("regression", (1,), (1,)).metric, Task("regression", (1,), (1,)).higher_is_better) == ("mse", False)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"names": ("a",)}, "2 clients but 1 names"),
        ({"x": torch.zeros(6, 3)}, "samples have shape (3,), the task says (1,)"),
        ({"x": torch.tensor([[0.0]] * 4 + [[float("nan")]] * 2)}, "client '1' has a NaN or infinite input"),
        ({"y": torch.tensor([0, 1, 0, 1, 0, 2])}, "client '1' has label 2; labels are 0..1"),
        ({"bounds": np.array([[0, 3, 3, 3], [3, 3, 3, 6]])}, "client '1' has no training sample"),
        ({"task": Task("regression", (1,), (1,))}, "targets have shape (), the task says (1,)"),
        ({"graph": ClientGraph.from_edges(3, [(0, 1)])[0]}, "the graph has 3 nodes but there are 2 clients"),
    ],
)
def test_what_a_federation_refuses(change: dict[str, object], words: str) -> None:
    fed = made([3, 3])
    with pytest.raises(RequestError) as caught:
        replace(fed, **change)  # type: ignore[arg-type]
    assert words in str(caught.value)


def test_an_empty_federation_and_uneven_pairs() -> None:
    with pytest.raises(RequestError, match="at least one client"):
        Federation.from_clients([], task=TASK)
    with pytest.raises(RequestError, match="3 inputs but 2 targets"):
        Federation.from_clients([(np.zeros((3, 1)), [0, 1])], task=TASK)


def test_a_wrong_input_is_laid_to_its_client_however_samples_are_stored() -> None:
    """Inputs whose memory has another order than the samples."""
    fed = made([4, 4, 4], val=0, test=0)
    task = Task("classification", (2,), classes=2)
    x = torch.zeros(2, 12)
    x[1, 5] = float("nan")
    with pytest.raises(RequestError, match="client '1' has a NaN or infinite input"):
        replace(fed, task=task, x=x.T)
