"""Sums of products over time steps as one product, in the recorded gradient of a recurrent network.

Weights that are used in every time step get a gradient from each of them, and autograd adds them up:

    dW = sum_t P_t^T Q_t          P_t [R, B, O] gradients of a step's outputs, Q_t [R, B, I] its inputs

Each term is as large as the weights, so that most of the time goes into moving them through the cache. With the steps
side by side, P = [P_1; ...; P_T] and Q likewise, it is one product dW = P^T Q and no sum; a bias' gradient is the sum
over P. The numbers are the same up to the order of summation.
"""

from __future__ import annotations

from torch import Tensor, fx, ops

from panacea.engines.products import PRODUCT, product

__all__ = ["merge_products"]

_aten = ops.aten
_LEAST_TERMS = 4
_LAST_TWO = ((1, 2), (2, 1), (-1, -2), (-2, -1))

Pair = tuple[fx.Node, fx.Node]


def merge_products(graph: fx.Graph) -> bool:
    """Rewrite the graph in place; returns whether there was anything to merge."""
    merged: dict[tuple[fx.Node, ...], fx.Node] = {}
    roots = [node for node in graph.nodes if _is_add(node) and not _within_sum(node)]
    for root in roots:
        _merge_terms(graph, root, merged)
    for root in roots:
        _merge_sums(graph, root, merged)
    graph.eliminate_dead_code()
    return bool(merged)


def _is_add(node: object) -> bool:
    return isinstance(node, fx.Node) and node.target is _aten.add.Tensor and not node.kwargs


def _within_sum(node: fx.Node) -> bool:
    """Whether the only user of an addition is another one."""
    users = list(node.users)
    return len(users) == 1 and _is_add(users[0]) and users[0].args != (node, node)


def _terms(root: fx.Node) -> list[fx.Node]:
    """What a tree of additions adds up, as large as its result each; empty if something in it is broadcast."""
    shape, found, stack = _value(root).shape, [], [root]
    while stack:
        node = stack.pop()
        if not isinstance(node, fx.Node) or _value(node).shape != shape:
            return []
        if _is_add(node) and (node is root or _within_sum(node)):
            stack += reversed(node.args)  # type: ignore[arg-type]
        else:
            found.append(node)
    return found


def _value(node: fx.Node) -> Tensor:
    value: Tensor = node.meta["val"]
    return value


def _merge_terms(graph: fx.Graph, root: fx.Node, merged: dict[tuple[fx.Node, ...], fx.Node]) -> None:
    """Replace the products within one sum by a single one."""
    candidates = ((term, _as_pair(graph, term)) for term in _terms(root))
    pairs = {term: pair for term, pair in candidates if pair is not None and _pays(*pair)}
    if len(pairs) < _LEAST_TERMS:
        return
    left, right = (_side_by_side(graph, tuple(side), merged) for side in zip(*pairs.values(), strict=True))
    with graph.inserting_before(root):
        sides = (graph.call_function(_aten.transpose.int, (side, 1, 2)) for side in (left, right))
        total = graph.call_function(product, tuple(sides))
        _replace(graph, root, list(pairs), total)


def _merge_sums(graph: fx.Graph, root: fx.Node, merged: dict[tuple[fx.Node, ...], fx.Node]) -> None:
    """Likewise for sums over samples of what already lies side by side."""
    if root not in graph.nodes:
        return
    sources = {term: source for term in _terms(root) if (source := _summed_over_samples(term)) is not None}
    together = merged.get(tuple(sources.values()))
    if together is not None:
        with graph.inserting_before(root):
            total = graph.call_function(_aten.sum.dim_IntList, (together, [1]))
            _replace(graph, root, list(sources), total)


def _replace(graph: fx.Graph, root: fx.Node, taken: list[fx.Node], total: fx.Node) -> None:
    """Put a new term in the place of those it stands for."""
    total.meta["val"] = _value(root)
    for term in _terms(root):
        if term not in taken:
            total = graph.call_function(_aten.add.Tensor, (total, term))
            total.meta["val"] = _value(root)
    root.replace_all_uses_with(total)


def _as_pair(graph: fx.Graph, term: fx.Node) -> Pair | None:
    """P and Q with term = P^T Q, if it is such a product of three-dimensional tensors."""
    turned = _turned(term)
    made = term if turned is None else turned
    if made.target not in (_aten.bmm.default, PRODUCT) or len(made.users) > 1 or len(term.users) > 1:
        return None
    left, right, *bias = made.args
    if any(bias):
        return None
    assert isinstance(left, fx.Node)
    assert isinstance(right, fx.Node)
    source = _transposed(graph, left)
    right = _transposed(graph, right) if made.target is PRODUCT else right
    return (source, right) if turned is None else (right, source)


def _transposed(graph: fx.Graph, node: fx.Node) -> fx.Node:
    """A node's transposition: what it is one of, or a new one."""
    source = _turned(node)
    if source is None:
        with graph.inserting_after(node):
            source = graph.call_function(_aten.transpose.int, (node, 1, 2))
        source.meta["val"] = _value(node).transpose(1, 2)
    return source


def _turned(node: fx.Node) -> fx.Node | None:
    """What a node is the transposition of, in its last two dims."""
    if node.target is not _aten.transpose.int or node.args[1:] not in _LAST_TWO:
        return None
    source = node.args[0]
    return source if isinstance(source, fx.Node) and _value(source).dim() == 3 else None


def _pays(p: fx.Node, q: fx.Node) -> bool:
    """Whether the result is larger than what must be put side by side; on a GPU, where launches count, always."""
    if _value(p).is_cuda:
        return True
    samples, outputs, inputs = _value(p).shape[1], _value(p).shape[2], _value(q).shape[2]
    return 2 * outputs * inputs >= samples * (outputs + inputs)


def _side_by_side(graph: fx.Graph, parts: tuple[fx.Node, ...], merged: dict[tuple[fx.Node, ...], fx.Node]) -> fx.Node:
    """The parts joined along their samples, right where the last of them is made."""
    if parts not in merged:
        wanted = set(parts)
        last = next(node for node in reversed(graph.nodes) if node in wanted)
        with graph.inserting_after(last):
            merged[parts] = graph.call_function(_aten.cat.default, (list(parts), 1))
    return merged[parts]


def _summed_over_samples(term: fx.Node) -> fx.Node | None:
    """X ``[R, B, F]`` if the term is its sum ``[R, F]`` over samples."""
    source = term.args[0] if term.target is _aten.squeeze.dim else term
    if not isinstance(source, fx.Node) or source.target is not _aten.sum.dim_IntList or source.args[1] != [1]:
        return None
    node = source.args[0]
    return node if isinstance(node, fx.Node) and _value(node).dim() == 3 and _value(term).dim() == 2 else None
