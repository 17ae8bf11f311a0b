"""Rewriting a network by `torch.fx` so that one call serves many clients, each with weights of its own.

Values in the rewritten graph have one of three layouts. *Rows* ``[R, B, ...]`` suits pointwise functions; *folded*
``[R*B, ...]`` suits everything that treats samples one by one, whatever it is: the batch is simply longer; *columns*
``[R, F, B]`` suits `Linear` on vectors, because then neither weights nor their gradients are ever transposed.
Conversions are inserted only where layouts meet, so an MLP stays in columns from its first layer to its last.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, fx, nn

from panacea.engines import layers
from panacea.engines.gru import Gates, gates_of, gru, gru_cell, is_plain_gru
from panacea.engines.pooling import pool_before_relu
from panacea.models.stateful import MaskedBatchNorm, StreamDropout, dropout
from panacea.models.target import TargetModel

__all__ = ["Unsupported", "trace_batched"]


class Unsupported(Exception):  # noqa: N818  (not a failure: the next way is tried)
    """The module cannot be rewritten; `random` when it draws random numbers itself."""

    def __init__(self, reason: str, random: bool = False) -> None:
        super().__init__(reason)
        self.random = random


_POINTWISE_MODULES = (
    nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish, nn.Tanh, nn.Sigmoid,
    nn.Softplus, nn.Softsign, nn.Hardtanh, nn.Hardswish, nn.Hardsigmoid, nn.LogSigmoid, nn.Identity,
)  # fmt: skip
_POINTWISE_FUNCTIONS = {
    F.relu, F.relu6, F.leaky_relu, F.elu, F.selu, F.gelu, F.silu, F.mish, F.tanh, F.sigmoid, F.softplus, torch.relu,
    torch.tanh, torch.sigmoid, torch.exp, torch.sin, torch.cos, torch.abs, torch.square, torch.sqrt, torch.clamp,
}  # fmt: skip
_POINTWISE_METHODS = {"relu", "tanh", "sigmoid", "exp", "abs", "square", "sqrt", "clamp", "neg", "contiguous"}
_RANDOM_MODULES = (nn.AlphaDropout, nn.FeatureAlphaDropout, nn.RReLU)
_RANDOM_FUNCTIONS = {
    F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout, F.rrelu,
    F.gumbel_softmax, torch.rand, torch.randn, torch.rand_like, torch.randn_like, torch.bernoulli, torch.randint,
    torch.randperm, torch.normal, torch.multinomial, torch.dropout,
}  # fmt: skip
_ARITHMETIC = (operator.add, operator.sub, operator.mul, operator.truediv, torch.add, torch.mul)
_GRU_NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
_RANDOM_METHODS = {"bernoulli", "bernoulli_", "normal_", "uniform_", "random_", "multinomial", "exponential_"}


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, StreamDropout | MaskedBatchNorm) or super().is_leaf_module(m, module_qualified_name)


def trace_batched(target: TargetModel) -> Callable[..., Tensor]:
    """``run(x [R, B, ...], R, *parameters, *statistics) -> [R, B, ...]``, or `Unsupported`."""
    return _Rewriter(target).run()


class _Rewriter:
    """Copies the traced graph node by node, remembering every value's layout."""

    def __init__(self, target: TargetModel) -> None:
        self.target = target
        self.modules = dict(target.module.named_modules())
        first_names = {id(p): name for name, p in target.module.named_parameters()}
        self.first_name = {
            name: first_names[id(p)] for name, p in target.module.named_parameters(remove_duplicate=False)
        }  # a tied weight appears under several names but once in the vector
        self.graph = fx.Graph()
        self.value: dict[fx.Node, fx.Node] = {}
        self.layout: dict[fx.Node, str] = {}
        self.gates: dict[str, fx.Node] = {}
        self.vectors: set[fx.Node] = set()  # values known to be one vector per sample

    def run(self) -> Callable[..., Tensor]:
        target = self.target
        traced = _Tracer().trace(target.module)
        pool_before_relu(traced, self.modules)
        x = self.graph.placeholder("x")
        self.rows = self.graph.placeholder("rows")
        names = (*target.layout.names, *target.statistics_layout.names)
        self.tensors = {name: self.graph.placeholder(f"p_{i}") for i, name in enumerate(names)}
        inputs = [node for node in traced.nodes if node.op == "placeholder"]
        if len(inputs) != 1:
            raise Unsupported(f"forward takes {len(inputs)} inputs, one is expected")
        self._set(inputs[0], x, "rows", vector=len(target.task.inputs) == 1)
        for node in traced.nodes:
            if node.op == "call_module":
                self._module(node, self.modules[str(node.target)])
            elif node.op in ("call_function", "call_method"):
                self._operation(node)
            elif node.op == "get_attr":
                self._attribute(node)
            elif node.op == "output":
                if not isinstance(node.args[0], fx.Node):
                    raise Unsupported("forward returns more than one tensor")
                self.graph.output(self._as_rows(node.args[0]))
        return fx.GraphModule(target.module, self.graph).forward

    def _set(self, old: fx.Node, new: fx.Node, layout: str, vector: bool = False) -> None:
        self.value[old], self.layout[old] = new, layout
        if vector:
            self.vectors.add(old)

    def _as(self, layout: str, node: fx.Node) -> fx.Node:
        """The value of a node in the layout wanted."""
        value, have = self.value[node], self.layout[node]
        if have == layout:
            return value
        if have == "columns":
            value = self._call(torch.transpose, value, 1, 2)
        elif have == "folded":
            value = self._call(layers.split_rows, value, self.rows)
        if layout == "columns":
            return self._call(torch.transpose, value, 1, 2)
        return value if layout == "rows" else self._call(layers.fold, value)

    def _as_rows(self, node: fx.Node) -> fx.Node:
        return self._as("rows", node)

    def _as_folded(self, node: fx.Node) -> fx.Node:
        return self._as("folded", node)

    def _own(self, prefix: str, module: nn.Module, *names: str) -> list[fx.Node | None]:
        """The row weights of a layer's parameters (None where the layer has none)."""
        found: list[fx.Node | None] = []
        for name in names:
            path = f"{prefix}.{name}".lstrip(".")
            if not isinstance(getattr(module, name, None), Tensor):
                found.append(None)
            elif self.first_name.get(path, path) in self.tensors:
                found.append(self.tensors[self.first_name.get(path, path)])
            else:  # not trained: a constant, the same in every row
                found.append(self.graph.call_function(_spread, (self.graph.get_attr(path), self.rows)))
        return found

    def _call(self, function: Callable[..., Any], *args: Any) -> fx.Node:
        return self.graph.call_function(function, args)

    def _module(self, node: fx.Node, module: nn.Module) -> None:
        path, source = str(node.target), node.args[0]
        if not isinstance(source, fx.Node):
            raise Unsupported(f"layer '{path}' is not called with one tensor")
        if isinstance(module, _RANDOM_MODULES):
            raise Unsupported(f"layer '{path}' ({type(module).__name__}) draws random numbers itself", random=True)
        has_state = next(module.parameters(), None) is not None or next(module.buffers(), None) is not None
        if has_state:
            self._weighted(node, module, path, source)
        elif isinstance(module, StreamDropout):
            self._set(node, self._call(_row_dropout(module), self._as_rows(source)), "rows", source in self.vectors)
        elif isinstance(module, _POINTWISE_MODULES):
            new = self.graph.call_module(path, (self.value[source],))
            self._set(node, new, self.layout[source], source in self.vectors)
        elif isinstance(module, nn.Flatten) and module.start_dim == 1 and self.layout[source] == "rows":
            new = self._call(_flatten_rows, self.value[source], module.end_dim)
            self._set(node, new, "rows", vector=module.end_dim == -1)
        else:  # no weights: samples are independent, so the folded batch will do
            args, kwargs = fx.map_arg((node.args, node.kwargs), self._as_folded)
            self._set(node, self.graph.call_module(path, args, kwargs), "folded")

    def _weighted(self, node: fx.Node, module: nn.Module, path: str, source: fx.Node) -> None:
        """A layer with weights: its batched form, with the row weights as arguments."""
        affine = self._own(path, module, "weight", "bias")
        if isinstance(module, nn.Linear) and source in self.vectors:
            self._set(node, self._call(layers.linear_columns, self._as("columns", source), *affine), "columns", True)
        elif isinstance(module, nn.Linear):
            self._set(node, self._call(layers.linear, self._as_rows(source), *affine), "rows")
        elif isinstance(module, MaskedBatchNorm):
            running = self._own(path, module, "running_mean", "running_var")
            self._set(
                node,
                self._call(_row_batch_norm(module), self._as_rows(source), *affine, *running),
                "rows",
                source in self.vectors,
            )
        elif isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
            self._set(node, self._call(_bound(layers.conv, module), self._as_folded(source), *affine), "folded")
        elif isinstance(module, nn.LayerNorm | nn.GroupNorm):
            norm: Callable[..., Tensor] = layers.layer_norm if isinstance(module, nn.LayerNorm) else layers.group_norm
            self._set(node, self._call(_bound(norm, module), self._as_folded(source), *affine, self.rows), "folded")
        elif isinstance(module, nn.Embedding) and module.max_norm is None and not module.scale_grad_by_freq:
            new = self._call(_bound(layers.embedding, module), self._as_folded(source), affine[0], self.rows)
            self._set(node, new, "folded")
        elif isinstance(module, nn.GRUCell):
            state = self._hidden(node)
            hidden = None if state is None else self._as_rows(state)
            gates = self._gates(path, module, "")
            self._set(node, self._call(_row_gru_cell, self._as_rows(source), hidden, gates), "rows")
        elif is_plain_gru(module):
            state = self._hidden(node)
            hidden = None if state is None else self._as_folded(state)
            depths = range(int(module.num_layers))  # type: ignore[arg-type]
            each = [self._gates(path, module, f"_l{depth}") for depth in depths]
            new = self._call(_bound(_row_gru, module), self._as_folded(source), self.rows, hidden, *each)
            self._set(node, new, "folded")
        else:
            raise Unsupported(f"layer '{path}' ({type(module).__name__}) has no batched form")

    def _gates(self, path: str, module: nn.Module, suffix: str) -> fx.Node:
        """A recurrent layer's weights as its steps use them, made once however often the layer is called."""
        key = path + suffix
        if key not in self.gates:
            self.gates[key] = self._call(gates_of, *self._own(path, module, *(name + suffix for name in _GRU_NAMES)))
        return self.gates[key]

    def _hidden(self, node: fx.Node) -> fx.Node | None:
        state = node.args[1] if len(node.args) > 1 else node.kwargs.get("hx")
        return state if isinstance(state, fx.Node) else None

    def _operation(self, node: fx.Node) -> None:
        target = node.target
        if target in _RANDOM_FUNCTIONS or target in _RANDOM_METHODS:
            name = target if isinstance(target, str) else getattr(target, "__name__", str(target))
            raise Unsupported(f"'{name}' draws random numbers itself; use nn.Dropout", random=True)
        tensors = [a for a in node.all_input_nodes if a in self.value]
        pointwise = target in _POINTWISE_FUNCTIONS if node.op == "call_function" else target in _POINTWISE_METHODS
        if len(tensors) == 1 and (pointwise or target in _ARITHMETIC):
            (only,) = tensors
            self._copy(node, lambda n: self.value[n], self.layout[only], only in self.vectors)
        elif target is torch.flatten and self._flattens_rows(node, tensors):
            self._set(node, self._call(_flatten_rows, self.value[tensors[0]], -1), "rows", vector=True)
        else:
            self._copy(node, self._as_folded, "folded")

    def _flattens_rows(self, node: fx.Node, tensors: list[fx.Node]) -> bool:
        plain = node.args[1:] in ((1,), (1, -1)) and not node.kwargs
        return plain and len(tensors) == 1 and self.layout[tensors[0]] == "rows"

    def _copy(self, node: fx.Node, convert: Callable[[fx.Node], fx.Node], layout: str, vector: bool = False) -> None:
        args = fx.map_arg(node.args, convert)
        kwargs = fx.map_arg(node.kwargs, convert)
        target = node.target
        if target == "view" and not any(isinstance(arg, torch.dtype) for arg in node.args):
            target = "reshape"  # a batched layer may leave its output in another order of memory than torch's own
        self._set(node, self.graph.create_node(node.op, target, args, kwargs), layout, vector)

    def _attribute(self, node: fx.Node) -> None:
        name = str(node.target)
        if name in self.first_name:
            raise Unsupported(f"parameter '{name}' is used outside a known layer")
        self._set(node, self.graph.get_attr(name), "folded")


def _spread(constant: Tensor, rows: int) -> Tensor:
    return constant.expand((rows, *constant.shape))


def _flatten_rows(x: Tensor, end: int) -> Tensor:
    return x.flatten(2, end if end < 0 else end + 1)


def _bound(function: Callable[..., Any], layer: nn.Module) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        return function(*args, layer)

    return call


def _row_dropout(layer: StreamDropout) -> Callable[[Tensor], Tensor]:
    def call(x: Tensor) -> Tensor:
        state = layer.state
        if not layer.training or layer.share == 0 or state.key is None:
            return x
        state.calls += 1
        return dropout(x, layer.share, state.key, state.calls, layer.features_only)

    return call


def _row_batch_norm(layer: MaskedBatchNorm) -> Callable[..., Tensor]:
    def call(x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, var: Tensor) -> Tensor:
        affine = None if weight is None or bias is None else (weight, bias)
        return layer.apply_to(x, (mean, var), affine, layer.training)

    return call


def _row_gru_cell(x: Tensor, h: Tensor | None, gates: Gates) -> Tensor:
    state = x.new_zeros((*x.shape[:-1], gates.state.shape[-2] // 3)) if h is None else h
    return gru_cell(x, state, gates)


def _row_gru(x: Tensor, rows: int, h: Tensor | None, *rest: Any) -> tuple[Tensor, Tensor]:
    *gates, layer = rest
    x = x if layer.batch_first else x.transpose(0, 1)
    hidden = None if h is None else layers.split_rows(h, rows, at=1)
    out, last = gru(layers.split_rows(x, rows), hidden, gates)
    out = layers.fold(out)
    return out if layer.batch_first else out.transpose(0, 1), layers.fold(last, 1)
