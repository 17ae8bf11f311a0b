"""What clients keep: rows for the seen ones, the fresh state for all others."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from panacea.core.records import named_leaves, record
from panacea.core.rows import chosen_place
from panacea.core.store import ClientStore
from panacea.errors import RunFailure


@record
class Kept:
    w: Tensor
    inner: tuple[Tensor, None]
    velocity: Tensor | None = None


def ids(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def states(*values: float) -> Kept:
    """Rows with a number of their own in every leaf."""
    v = torch.tensor(values, dtype=torch.float64)
    return Kept(v[:, None] + torch.arange(3) / 10, (v[:, None, None] * torch.ones(2, 2), None))


def fresh(rows: int) -> Kept:
    return states(*([-1.0] * rows))


def content(store: ClientStore, *numbers: int) -> list[float]:
    found = store.take(ids(*numbers), fresh(len(numbers)))
    assert torch.equal(found.w[:, 0], found.inner[0][:, 1, 1])
    assert found.velocity is None
    assert found.inner[1] is None
    return found.w[:, 0].tolist()


def test_unseen_clients_have_the_fresh_state():
    store = ClientStore(6)
    assert content(store, 0, 5) == [-1.0, -1.0]
    store.put(ids(1, 4), states(10.0, 40.0))
    assert content(store, 0, 1, 2, 4, 5) == [-1.0, 10.0, -1.0, 40.0, -1.0]
    assert content(store, 1, 4) == [10.0, 40.0]
    assert content(store, 4, 1) == [40.0, 10.0]
    assert store.seen.tolist() == [1, 4]


def test_a_fresh_state_may_differ_from_client_to_client():
    store = ClientStore(4)
    store.put(ids(2), states(20.0))
    found = store.take(ids(1, 2, 3), states(-1.0, -2.0, -3.0))
    assert found.w[:, 0].tolist() == [-1.0, 20.0, -3.0]


def test_states_are_overwritten_and_others_untouched():
    store = ClientStore(10)
    store.put(ids(3, 7), states(30.0, 70.0))
    store.put(ids(1, 7, 9), states(11.0, 77.0, 99.0))
    assert content(store, 1, 3, 7, 9) == [11.0, 30.0, 77.0, 99.0]


def test_growth_keeps_every_row():
    store = ClientStore(100)
    for client in range(99, -1, -1):
        store.put(ids(client), states(float(client)))
    assert content(store, *range(100)) == [float(i) for i in range(100)]
    assert len(store.rows.w) == 100  # never more rows than clients


def test_idle_clients_cost_nothing():
    store = ClientStore(1_000_000)
    store.put(ids(999_999, 5), states(1.0, 2.0))
    assert len(store.rows.w) == 2
    store.put(ids(6), states(3.0))
    assert len(store.rows.w) <= 4
    assert content(store, 5, 6, 999_999) == [2.0, 3.0, 1.0]


def test_the_order_of_visits_does_not_matter():
    one, other = ClientStore(8), ClientStore(8)
    for group in (ids(0, 3), ids(5), ids(2, 7)):
        one.put(group, states(*(float(i) for i in group)))
    for group in (ids(7), ids(2, 0), ids(5, 3)):
        other.put(group, states(*(float(i) for i in group)))
    seen, rows = one.packed()
    seen_other, rows_other = other.packed()
    assert seen.tolist() == seen_other.tolist() == [0, 2, 3, 5, 7]
    for (name, a), (_, b) in zip(named_leaves(rows), named_leaves(rows_other), strict=True):
        assert torch.equal(a, b), name
    assert rows.w[:, 0].tolist() == [0.0, 2.0, 3.0, 5.0, 7.0]


def test_packing_and_unpacking():
    store = ClientStore(9)
    store.put(ids(8, 2, 4), states(8.0, 2.0, 4.0))
    again = ClientStore.unpacked(9, *store.packed())
    assert content(again, *range(9)) == content(store, *range(9))
    again.put(ids(0, 4), states(0.5, 4.5))
    assert content(again, 0, 2, 4, 8) == [0.5, 2.0, 4.5, 8.0]
    assert content(store, 0, 2, 4, 8) == [-1.0, 2.0, 4.0, 8.0]


def test_an_empty_store_packs_to_nothing():
    seen, rows = ClientStore(3).packed()
    assert (len(seen), rows) == (0, None)
    again = ClientStore.unpacked(3, seen, rows)
    assert content(again, 0, 1, 2) == [-1.0, -1.0, -1.0]


def test_stateless_methods_keep_nothing():
    store = ClientStore(3)
    store.put(ids(0, 1), None)
    assert store.take(ids(0, 1), None) is None
    assert store.rows is None
    assert store.seen.tolist() == []


def test_what_is_taken_is_a_copy_and_what_is_put_too():
    store = ClientStore(3)
    given = states(1.0, 2.0)
    store.put(ids(0, 1), given)
    given.w.zero_()
    store.take(ids(0, 1), fresh(2)).w.zero_()
    assert content(store, 0, 1) == [1.0, 2.0]


def test_no_graph_of_autograd_is_kept():
    store = ClientStore(2)
    store.put(ids(0), torch.ones(1, 2, requires_grad=True) * 2)
    assert not store.take(ids(0), torch.zeros(1, 2)).requires_grad


def test_a_bare_tensor_is_a_state():
    store = ClientStore(4)
    store.put(ids(2), torch.tensor([[5.0, 6.0]]))
    assert store.take(ids(1, 2), torch.zeros(2, 2)).tolist() == [[0.0, 0.0], [5.0, 6.0]]


@pytest.mark.parametrize("policy", ["device", "cpu", "disk"])
def test_wherever_states_are_kept_they_are_the_same(policy: Any, tmp_path: Path):
    """Growing, overwriting, packing and unpacking; a file has no name, so nothing is left behind."""
    store = ClientStore(200, policy, folder=tmp_path)
    for first in range(0, 200, 7):
        some = np.arange(first, min(first + 7, 200))
        store.put(some, states(*(10.0 * some)))
    store.put(ids(3, 150), states(-3.0, -150.0))
    assert store.place == policy
    assert list(tmp_path.iterdir()) == []
    expected = 10.0 * np.arange(200)
    expected[[3, 150]] = -3, -150
    assert content(store, *range(200)) == expected.tolist()
    again = ClientStore.unpacked(200, *store.packed(), policy=policy, folder=tmp_path)
    assert content(again, *range(199, -1, -1)) == expected[::-1].tolist()


def test_a_file_of_states_is_no_copy_in_memory(tmp_path: Path):
    """It is mapped: written through one view and read through another."""
    store = ClientStore(50, "disk", folder=tmp_path)
    store.put(ids(0), states(1.0))
    early = store.rows.w
    store.put(np.arange(1, 50), states(*range(1, 50)))
    store.put(ids(0), states(7.0))
    assert len(early) < len(store.rows.w)
    assert early[0, 0] == 7.0


def test_where_states_go_by_themselves():
    cpu = torch.device("cpu")
    assert chosen_place("auto", 10, cpu) == "device"
    assert chosen_place("auto", 1 << 60, cpu) == "disk"
    assert chosen_place("cpu", 1 << 60, cpu) == "cpu"
    many = ClientStore(1 << 20)  # what counts is what all clients would take, not those seen so far
    many.put(ids(0), torch.zeros(1, 1 << 20).repeat(1, 4))
    assert many.place == "disk"


def test_a_full_disk_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(RunFailure, match=r"store=disk: .* has no room"):
        ClientStore(5, "disk", folder=tmp_path).put(ids(0), states(1.0))
