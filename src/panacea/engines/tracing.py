"""A gradient as straight-line code.

On a CPU a small network spends more time in autograd's bookkeeping than in arithmetic. `record` runs a gradient
function once and notes the operations that autograd really executed, forward and backward; `as_straight_line` makes a
flat function of them: the same kernels in the same order, so the same bits (checked at the first call), without an
autograd graph to build, walk and throw away. There is nothing to compile; shapes are fixed per trace. Only where a
recurrent network adds up gradients over time steps these are merged into one product, to rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor, fx

from panacea.engines.merging import merge_products

__all__ = ["Kernel", "Signature", "TracedKernel", "agree", "as_straight_line", "record", "replay", "signature_of"]

Kernel = Callable[..., tuple[Tensor, ...]]
Signature: TypeAlias = tuple[object, ...]

_MOST_OPERATIONS = 20_000
_MOST_TRACES = 8  # ragged clients give batches of many shapes; the rarer ones are not worth a trace each
_MOST_MERGED_TRACES = 64

# torch's Python bindings parse arguments faster than `torch.ops`; positional arguments are the same
_BINDINGS: dict[str, Callable[..., object]] = {
    "aten::view": torch.Tensor.view,
    "aten::transpose": torch.transpose,
    "aten::unsqueeze": torch.unsqueeze,
    "aten::squeeze": torch.squeeze,
    "aten::expand": torch.Tensor.expand,
    "aten::mul": torch.mul,
    "aten::sub": torch.sub,
    "aten::div": torch.div,
    "aten::tanh": torch.tanh,
    "aten::sigmoid": torch.sigmoid,
    "aten::relu": torch.relu,
    "aten::bmm": torch.bmm,
    "aten::baddbmm": torch.baddbmm,
    "aten::cat": torch.cat,
    "aten::stack": torch.stack,
    "aten::sum": torch.sum,
    "aten::split_with_sizes": torch.split_with_sizes,
    "aten::_log_softmax": torch._log_softmax,
    "aten::_log_softmax_backward_data": torch._log_softmax_backward_data,
}


def record(function: Kernel, arguments: tuple[Tensor | None, ...]) -> fx.GraphModule | None:
    """The operations of one call, as a graph with the arguments that are tensors as its inputs.

    Sums over time steps are merged (`panacea.engines.merging`); ``meta["merged"]`` of the graph's module says whether
    there were any, for then the last bits may differ from the function's. None if there are too many operations to be
    worth it.
    """
    from torch.fx.experimental.proxy_tensor import make_fx  # noqa: PLC0415  (a second to import; only when used)

    given = [position for position, argument in enumerate(arguments) if argument is not None]

    def of_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
        full: list[Tensor | None] = [None] * len(arguments)
        for position, tensor in zip(given, tensors, strict=True):
            full[position] = tensor
        return function(*full)

    module = make_fx(of_tensors)(*(arguments[position] for position in given))
    if len(module.graph.nodes) > _MOST_OPERATIONS:
        return None
    module.graph.eliminate_dead_code()
    for node in list(module.graph.nodes):
        if node.target is torch.ops.aten.detach.default:  # nothing is recorded any more, so nothing is to be cut
            node.replace_all_uses_with(node.args[0])
            module.graph.erase_node(node)
    module.meta["merged"] = merge_products(module.graph)
    module.recompile()
    return module


def as_straight_line(module: fx.GraphModule) -> Kernel:
    """A recorded graph as a Python function that does little else than call torch's kernels."""
    _without_negations(module.graph)
    for node in list(module.graph.nodes):
        if isinstance(node.target, torch._ops.OpOverload) and node.target._schema.name in _BINDINGS:
            node.target = _BINDINGS[node.target._schema.name]
            if node.target is torch.transpose and _undoes(node, node.args[0]):
                node.replace_all_uses_with(node.args[0].args[0])
    module.graph.eliminate_dead_code()
    module.recompile()
    run: Kernel = module.forward
    return run


def _without_negations(graph: fx.Graph) -> None:
    """``a + (-b)`` as ``a - b`` and ``(-a) c`` as ``a (-c)``, which are the same bits."""
    aten = torch.ops.aten

    def negated(value: object) -> bool:
        return isinstance(value, fx.Node) and value.target is aten.neg.default

    for node in list(graph.nodes):
        plain = node.target is aten.add.Tensor and not node.kwargs and len(node.all_input_nodes) == 2
        if plain and any(map(negated, node.args)):
            kept, turned = sorted(node.args, key=negated)
            node.target, node.args = aten.sub.Tensor, (kept, turned.args[0])
        elif (
            node.target in (aten.mul.Tensor, aten.mul.Scalar)
            and negated(node.args[0])
            and isinstance(node.args[1], float | int)
        ):
            node.args = node.args[0].args[0], -node.args[1]


def _undoes(node: Any, before: Any) -> bool:
    """Whether a transposition is that of the same two dims again."""
    return before.target is torch.transpose and before.args[1:] == node.args[1:]


class TracedKernel:
    """A kernel that is traced once per signature of its arguments, and checked against itself.

    Results may depend on the arguments only, not on what was traced before: a run that is resumed repeats its bits. A
    trace gives the function's bits, so that any signature can do without one; where sums are merged it does not, and
    every signature is traced.

    Attributes:
        traces: by signature; None where the function itself is called.
        merging: whether traces with merged sums are wanted: for networks with a recurrence, which gain by them.
    """

    def __init__(self, function: Kernel, merging: bool = False) -> None:
        self.function, self.merging = function, merging
        self.traces: dict[Signature, Kernel | None] = {}

    def __call__(self, *arguments: Tensor | None) -> tuple[Tensor, ...]:
        """What the function returns."""
        signature = signature_of(arguments)
        if signature not in self.traces and (self.merging or len(self.traces) < _MOST_TRACES):
            self._make_room()
            self.traces[signature], result = self._checked(arguments)
            return result
        run = self.traces.get(signature)
        return self.function(*arguments) if run is None else replay(run, arguments)

    def _make_room(self) -> None:
        if len(self.traces) >= _MOST_MERGED_TRACES:
            del self.traces[next(iter(self.traces))]

    def _checked(self, arguments: tuple[Tensor | None, ...]) -> tuple[Kernel | None, tuple[Tensor, ...]]:
        """A trace that agrees with the function, and its first result; None and the function's if there is none."""
        expected = self.function(*arguments)
        try:
            module = record(self.function, arguments)
            if module is None or (module.meta["merged"] and not self.merging):
                return None, expected
            run = as_straight_line(module)
            found = replay(run, arguments)
        except Exception:  # a module that cannot be recorded simply stays as it is
            return None, expected
        same = agree if module.meta["merged"] else _equal
        return (run, found) if same(found, expected) else (None, expected)


def signature_of(arguments: tuple[Tensor | None, ...]) -> Signature:
    """What a trace is good for: which arguments there are, and how they lie in memory."""
    return tuple(None if a is None else (a.shape, a.stride()) for a in arguments)


def replay(run: Kernel, arguments: tuple[Tensor | None, ...]) -> tuple[Tensor, ...]:
    """Call what was made of a recorded graph."""
    with torch.no_grad():
        return run(*(a for a in arguments if a is not None))


def _equal(found: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def agree(found: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> bool:
    """Whether two results are the same but for rounding, in relation to the largest value of each tensor."""
    for a, b in zip(found, expected, strict=True):
        tolerance = 1e-4 if b.dtype == torch.float32 else 1e-10
        finite = b[b.isfinite()].abs()
        scale = float(finite.max()) if finite.numel() else 0.0
        if a.shape != b.shape or not torch.allclose(a, b, rtol=0.0, atol=tolerance * scale, equal_nan=True):
            return False
    return True
