"""Records: mapped, stacked, indexed, chosen, named, rebuilt and counted as a whole."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from panacea.core.records import (
    leaves,
    named_leaves,
    nbytes,
    rebuild,
    record,
    tree_index,
    tree_map,
    tree_stack,
    tree_where,
    unsent,
)


@record
class Inner:
    a: Tensor
    b: Tensor | None = None


@record
class Outer:
    inner: Inner
    many: tuple[object, ...]
    nothing: None = None
    last: Tensor | None = None


@record
class Message:
    params: Tensor
    start: Tensor = unsent()


def sample(rows: int = 3, shift: float = 0.0) -> Outer:
    def numbers(*shape: int) -> Tensor:
        return torch.arange(rows * int(torch.Size(shape).numel()), dtype=torch.float64).reshape(rows, *shape) + shift

    return Outer(Inner(numbers(2)), (numbers(1), (None, Inner(numbers(2, 2), numbers())), ()), last=numbers(4))


def same(a: object, b: object) -> bool:
    x, y = dict(named_leaves(a)), dict(named_leaves(b))
    return x.keys() == y.keys() and all(torch.equal(x[name], y[name]) for name in x)


def test_a_record_is_frozen_and_keeps_its_defaults():
    value = Inner(torch.zeros(1))
    assert value.b is None
    with pytest.raises(dataclasses.FrozenInstanceError):
        value.a = torch.ones(1)


def test_map_keeps_the_structure_and_leaves_none_alone():
    seen = []
    mapped = tree_map(lambda t: seen.append(t) or 2 * t, sample())
    assert all(isinstance(t, Tensor) for t in seen)
    assert len(seen) == 5
    assert isinstance(mapped.many[1][1], Inner)
    assert mapped.nothing is None
    assert mapped.many[1][0] is None
    assert mapped.inner.b is None
    assert torch.equal(mapped.many[1][1].a, 2 * sample().many[1][1].a)
    assert tree_map(lambda t: 2 * t, None) is None


def test_map_joins_the_same_places_of_several_trees():
    summed = tree_map(lambda a, b, c: a + 10 * b - c, sample(), sample(shift=1.0), sample())
    assert same(summed, tree_map(lambda t: 10 * (t + 1), sample()))
    assert torch.equal(tree_map(torch.add, torch.ones(2), torch.ones(2)), torch.full((2,), 2.0))


def test_map_refuses_trees_of_another_shape():
    with pytest.raises(ValueError, match="mismatch"):
        tree_map(torch.add, (torch.ones(1), torch.ones(1)), (torch.ones(1),))


def test_leaves_and_names_are_in_one_order():
    tree = sample()
    names = [name for name, _ in named_leaves(tree)]
    assert names == ["inner.a", "many.0", "many.1.1.a", "many.1.1.b", "last"]
    assert all(x is y for x, (_, y) in zip(leaves(tree), named_leaves(tree), strict=True))
    assert next(name for name, _ in named_leaves(tree, "server")) == "server.inner.a"
    assert [name for name, _ in named_leaves(torch.ones(1), "x")] == ["x"]
    assert list(named_leaves(None)) == []
    assert leaves(None) == []


def test_rebuild_is_the_inverse_of_naming():
    tree = sample(shift=5.0)
    stored = dict(named_leaves(tree, "p"))
    again = rebuild(sample(), stored, "p")
    assert same(again, tree)
    assert isinstance(again, Outer)
    assert again.nothing is None
    assert again.many[1][0] is None
    assert again.many[2] == ()
    assert rebuild(None, stored) is None


def test_rebuild_misses_a_tensor_aloud():
    stored = dict(named_leaves(sample()))
    del stored["many.1.1.b"]
    with pytest.raises(KeyError, match=r"many\.1\.1\.b"):
        rebuild(sample(), stored)


def test_stack_and_index_are_inverse():
    whole = sample()
    rows = [tree_index(whole, row) for row in range(3)]
    assert rows[1].inner.a.tolist() == [2.0, 3.0]
    assert rows[1].many[1][1].b.shape == ()
    assert same(tree_stack(rows), whole)
    assert same(tree_index(whole, torch.tensor([2, 0])), tree_stack([rows[2], rows[0]]))
    assert same(tree_index(whole, slice(1, 3)), tree_stack(rows[1:]))
    assert torch.equal(tree_stack([torch.ones(2), torch.zeros(2)]), torch.tensor([[1.0, 1.0], [0.0, 0.0]]))
    assert tree_stack([None, None]) is None


def test_where_chooses_whole_rows():
    new, old = sample(shift=100.0), sample()
    condition = torch.tensor([[True], [False], [True]])
    expected = tree_stack([tree_index(tree, row) for row, tree in enumerate((new, old, new))])
    chosen = tree_where(condition, new, old)
    assert same(chosen, expected)
    assert chosen.nothing is None


@pytest.mark.parametrize("content", [1.0, "text", [torch.ones(2)], {"a": torch.ones(2)}])
def test_foreign_content_is_refused_by_name(content: object):
    tree = Outer(Inner(torch.ones(1)), (torch.ones(1), content))
    kind = type(content).__name__
    with pytest.raises(TypeError, match=rf"^many\.1 holds a {kind}; records hold tensors, records, tuples and None"):
        list(named_leaves(tree))
    with pytest.raises(TypeError, match=f"holds a {kind}"):
        nbytes(tree)
    with pytest.raises(TypeError, match=rf"many\.1 holds a {kind}"):
        rebuild(tree, {"inner.a": torch.ones(1), "many.0": torch.ones(1)})


def test_bytes_are_those_of_all_tensors():
    tree = sample(rows=3)  # float64: 2 + 1 + 4 + 1 + 4 entries a row
    assert nbytes(tree) == 3 * 12 * 8
    assert nbytes(None) == 0
    assert nbytes(()) == 0
    assert nbytes(torch.ones(3, dtype=torch.float32)) == 12
    assert nbytes((torch.ones(1, dtype=torch.int64), None)) == 8


def test_one_message_per_client_is_counted_even_where_memory_is_shared():
    assert nbytes(torch.ones(5, dtype=torch.float32).expand(7, -1)) == 7 * 5 * 4


def test_unsent_fields_do_not_travel_but_are_kept():
    message = Message(torch.ones(2, 4), torch.ones(2, 100))
    assert nbytes(message) == 2 * 4 * 4
    assert nbytes((message, Inner(torch.ones(1)))) == 2 * 4 * 4 + 4
    assert [name for name, _ in named_leaves(message)] == ["params", "start"]
    assert torch.equal(tree_map(lambda t: 3 * t, message).start, torch.full((2, 100), 3.0))
    assert tree_index(message, 0).start.shape == (100,)


def test_what_does_not_travel_has_no_name_among_what_does() -> None:
    message = (Message(torch.ones(3), torch.ones(5)), torch.ones(2))
    assert [name for name, _ in named_leaves(message, travelling=True)] == ["0.params", "1"]
    assert [name for name, _ in named_leaves(message)] == ["0.params", "0.start", "1"]
