"""Records: frozen dataclasses of tensors that can be mapped, stacked, indexed, counted, saved and sent.

Server state, client state, downloads, uploads and carries are records. A record may hold tensors, records, tuples of
them and ``None``; nothing else. This is the only file that touches torch's pytree module, which is private; it is told
of records so that torch's own transformations know them, and is not used to walk them, which takes ten times as long.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, TypeVar, dataclass_transform

import torch
from torch import Tensor
from torch.utils import _pytree

__all__ = [
    "Tree",
    "leaves",
    "named_leaves",
    "nbytes",
    "rebuild",
    "record",
    "tree_index",
    "tree_map",
    "tree_stack",
    "tree_where",
    "unsent",
]

Tree: TypeAlias = Any
"""A record (or tensor, tuple, None). Which one, only the method knows; the core treats all of them alike."""

_T = TypeVar("_T")

_fields: dict[type, tuple[tuple[str, bool], ...]] = {}  # of every record: names, and whether they travel


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def record(cls: type[_T]) -> type[_T]:
    """Make a class a frozen dataclass whose fields are the children of a pytree.

    >>> @record
    ... class Pair:
    ...     a: Tensor
    ...     b: Tensor | None = None
    >>> tree_map(lambda t: 2 * t, Pair(torch.ones(2)))
    Pair(a=tensor([2., 2.]), b=None)
    """
    made: Any = dataclasses.dataclass(frozen=True)(cls)
    names = tuple(field.name for field in dataclasses.fields(made))
    _fields[made] = tuple((field.name, field.metadata.get("sent", True)) for field in dataclasses.fields(made))
    _pytree.register_pytree_node(
        made,
        lambda value: ([getattr(value, name) for name in names], None),
        lambda children, _: made(*children),
        serialized_type_name=f"{made.__module__}.{made.__qualname__}",
    )
    return made  # type: ignore[no-any-return]


def tree_map(function: Callable[..., Any], tree: Tree, *others: Tree) -> Tree:
    """Apply a function to every tensor (and what is at the same places of the other trees); None stays None."""
    if isinstance(tree, Tensor):  # a bare tensor is the most common tree of all
        return function(tree, *others)
    if tree is None:
        return None
    kind = type(tree)
    if any(type(other) is not kind or (kind is tuple and len(other) != len(tree)) for other in others):
        raise ValueError(f"trees mismatch: {[_described(one) for one in (tree, *others)]}")
    if kind is tuple:
        return tuple(tree_map(function, *children) for children in zip(tree, *others, strict=True))
    if kind not in _fields:
        if isinstance(tree, list | dict):
            raise _foreign(tree, "")
        return tree  # a number, say
    parts = ((getattr(tree, name), *(getattr(other, name) for other in others)) for name, _ in _fields[kind])
    return kind(*(tree_map(function, *children) for children in parts))


def _described(tree: Tree) -> str:
    return f"tuple of {len(tree)}" if isinstance(tree, tuple) else type(tree).__name__


def leaves(tree: Tree) -> list[Tensor]:
    """All tensors of a tree in a fixed order."""
    found: list[Tensor] = []
    _collect(tree, found)
    return found


def _collect(tree: Tree, found: list[Tensor]) -> None:
    if isinstance(tree, Tensor):
        found.append(tree)
    elif isinstance(tree, tuple | list | dict):  # a network's outputs may be anything
        for child in tree.values() if isinstance(tree, dict) else tree:
            _collect(child, found)
    elif type(tree) in _fields:
        for name, _ in _fields[type(tree)]:
            _collect(getattr(tree, name), found)


def named_leaves(tree: Tree, prefix: str = "", *, travelling: bool = False) -> Iterator[tuple[str, Tensor]]:
    """Every tensor with a dotted name, for saving and for messages; only those that travel, if asked for.

    >>> [name for name, _ in named_leaves((torch.ones(1), (torch.ones(1), None)))]
    ['0', '1.0']
    """
    if isinstance(tree, Tensor):
        yield prefix, tree
    elif type(tree) in _fields:
        for name, sent in _fields[type(tree)]:
            if sent or not travelling:
                yield from named_leaves(getattr(tree, name), f"{prefix}.{name}".lstrip("."), travelling=travelling)
    elif isinstance(tree, tuple):
        for position, child in enumerate(tree):
            yield from named_leaves(child, f"{prefix}.{position}".lstrip("."), travelling=travelling)
    elif tree is not None:
        raise _foreign(tree, prefix)


def _foreign(value: object, prefix: str) -> TypeError:
    kind = type(value).__name__
    return TypeError(f"{prefix or 'tree'} holds a {kind}; records hold tensors, records, tuples and None")


def rebuild(template: Tree, tensors: dict[str, Tensor], prefix: str = "") -> Tree:
    """The inverse of `named_leaves`: a tree of the template's structure with tensors taken by name."""
    if isinstance(template, Tensor):
        return tensors[prefix]
    kind = type(template)
    if kind in _fields:
        names = [name for name, _ in _fields[kind]]
        return kind(*(rebuild(getattr(template, name), tensors, f"{prefix}.{name}".lstrip(".")) for name in names))
    if isinstance(template, tuple):
        return tuple(rebuild(child, tensors, f"{prefix}.{i}".lstrip(".")) for i, child in enumerate(template))
    if template is not None:
        raise _foreign(template, prefix)
    return None


def tree_index(tree: Tree, index: Any) -> Tree:
    """Row(s) of every tensor: ``[rows, ...] -> [...]`` for an integer, ``[chosen, ...]`` for an index tensor."""
    return tree_map(lambda leaf: leaf[index], tree)


def tree_stack(trees: list[Tree]) -> Tree:
    """Records of single clients become one record with a leading row axis."""
    return tree_map(lambda *parts: torch.stack(parts), trees[0], *trees[1:])


def tree_where(condition: Tensor, new: Tree, old: Tree) -> Tree:
    """Row-wise choice; the condition is ``[rows, 1]``."""

    def choose(a: Tensor, b: Tensor) -> Tensor:
        return torch.where(condition.reshape(condition.shape[:1] + (1,) * (a.dim() - 1)), a, b)

    return tree_map(choose, new, old)


def unsent() -> Any:
    """A field of a message that does not travel: every party can make it from what it has (the seed, say)."""
    return dataclasses.field(metadata={"sent": False})


def nbytes(tree: Tree) -> int:
    """Bytes of all tensors that travel when the tree is sent."""
    if isinstance(tree, Tensor):
        return tree.numel() * tree.element_size()
    if type(tree) in _fields:
        return sum(nbytes(getattr(tree, name)) for name, sent in _fields[type(tree)] if sent)
    if tree is not None and not isinstance(tree, tuple):
        raise _foreign(tree, "message")
    return sum(nbytes(child) for child in tree or ())
