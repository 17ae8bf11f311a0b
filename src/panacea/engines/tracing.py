"""A gradient as straight-line code.

On a CPU a small network spends more time in autograd's bookkeeping than in arithmetic. `trace` runs a gradient
function once, records the operations that autograd really executed, forward and backward, and returns them as a flat
function: the same kernels in the same order, so the same bits (checked at the first call), without an autograd graph
to build, walk and throw away. There is nothing to compile; shapes are fixed per trace.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = ["Kernel", "TracedKernel", "trace"]

Kernel = Callable[..., tuple[Tensor, ...]]

_MOST_OPERATIONS = 20_000
_MOST_TRACES = 8  # ragged clients give batches of many shapes; the rarer ones are not worth a trace each

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


def trace(function: Kernel, arguments: tuple[Tensor | None, ...]) -> Kernel | None:
    """The operations of one call as a function of its tensors, or None if there are too many to be worth it."""
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
        if node.op != "call_function":
            continue
        if node.target is torch.ops.aten.detach.default:  # nothing is recorded any more, so nothing is to be cut
            node.replace_all_uses_with(node.args[0])
            module.graph.erase_node(node)
        elif isinstance(node.target, torch._ops.OpOverload) and node.target._schema.name in _BINDINGS:
            node.target = _BINDINGS[node.target._schema.name]
            if node.target is torch.transpose and _undoes(node, node.args[0]):
                node.replace_all_uses_with(node.args[0].args[0])
    module.graph.eliminate_dead_code()
    module.recompile()
    run: Kernel = module.forward
    return run


def _undoes(node: Any, before: Any) -> bool:
    """Whether a transposition is that of the same two dims again."""
    return before.target is torch.transpose and before.args[1:] == node.args[1:]


class TracedKernel:
    """A kernel that is traced once per signature of its arguments, and checked against itself."""

    def __init__(self, function: Kernel) -> None:
        self.function = function
        self.traces: dict[tuple[object, ...], Kernel | None] = {}

    def __call__(self, *arguments: Tensor | None) -> tuple[Tensor, ...]:
        """What the function returns."""
        signature = tuple(None if a is None else (a.shape, a.stride()) for a in arguments)
        if signature not in self.traces and len(self.traces) < _MOST_TRACES:
            expected = self.function(*arguments)
            self.traces[signature] = self._checked(arguments, expected)
            return expected
        run = self.traces.get(signature)
        if run is None:
            return self.function(*arguments)
        with torch.no_grad():
            return run(*(a for a in arguments if a is not None))

    def _checked(self, arguments: tuple[Tensor | None, ...], expected: tuple[Tensor, ...]) -> Kernel | None:
        try:
            run = trace(self.function, arguments)
            if run is None:
                return None
            with torch.no_grad():
                found = run(*(a for a in arguments if a is not None))
        except Exception:  # a module that cannot be recorded simply stays as it is
            return None
        return run if all(torch.equal(a, b) for a, b in zip(found, expected, strict=True)) else None
