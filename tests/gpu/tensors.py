"""Tensors on a GPU that is none, and what is done with them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._subclasses import FakeTensor
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_flatten, tree_map

from tests.gpu.graphs import Operation, Recording, capturing
from tests.gpu.kernels import KERNELS
from tests.gpu.streams import Machine, Memory

__all__ = ["GpuTensor", "fetched", "machine", "on_gpu", "run", "sent"]

_aten = torch.ops.aten
_COPIES = {_aten.copy_.default, _aten._foreach_copy_.default}  # from one device to another
_PRODUCTS = {_aten.mm.default, _aten.bmm.default, _aten.addmm.default, _aten.baddbmm.default, _aten.addbmm.default}
_INDEXED = {_aten.index.Tensor, _aten.index_put.default, _aten.index_put_.default, _aten._index_put_impl_.default}
_LOOKS = {
    _aten._local_scalar_dense.default, _aten.equal.default, _aten.is_nonzero.default, _aten.nonzero.default,
    _aten.masked_select.default, _aten._unique2.default, _aten.unique_dim.default, _aten.unique_consecutive.default,
    _aten.allclose.default, _aten.repeat_interleave.Tensor,
}  # fmt: skip

machine = Machine(capturing)
"""The GPU; there is one."""


class GpuTensor(Tensor):
    """A tensor that is on a GPU as far as Python can see; `held` is the one that is not."""

    held: Tensor
    memory: Memory
    device = property(lambda self: torch.device("cuda", 0))
    is_cuda = property(lambda self: True)
    is_cpu = property(lambda self: False)
    layout = property(lambda self: self.held.layout)

    @staticmethod
    def __new__(cls, held: Tensor) -> GpuTensor:
        strided = held.layout == torch.strided
        strides = {"strides": held.stride(), "storage_offset": held.storage_offset()} if strided else {}
        made = Tensor._make_wrapper_subclass(cls, held.size(), dtype=held.dtype, **strides)
        made.held, made.memory = held, machine.memory(held)
        return made

    def __repr__(self, **_: object) -> str:
        return f"on a GPU: {self.held}"

    def data_ptr(self) -> int:
        return self.held.data_ptr()

    def __deepcopy__(self, memo: dict[int, Any]) -> GpuTensor:
        made = GpuTensor(self.held.clone()).requires_grad_(self.requires_grad)
        made.__dict__ |= {name: value for name, value in vars(self).items() if name not in vars(made)}  # a parameter?
        memo[id(self)] = made
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        return _launched(func, args, kwargs or {})


def _launched(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """One operation: refused where a GPU refuses, run, recorded, and noted in the stream it was launched in."""
    ours = on_gpu((args, kwargs))
    others = [one for one in tree_flatten((args, kwargs))[0] if isinstance(one, Tensor) and one.dim()]
    others = [] if machine.lenient else [one for one in others if not isinstance(one, GpuTensor)]
    to_host = func in _COPIES and not on_gpu(args[0])
    looks = func in _LOOKS or to_host or _masked(func, args)
    if others and func not in _COPIES and not (func in _INDEXED and on_gpu(args[0])):
        raise RuntimeError(f"{func}: expected all tensors to be on the same device, found cuda:0 and cpu")
    if capturing() and (others or looks):
        raise RuntimeError(f"{func}: operation not permitted when stream is capturing")
    if others or looks:
        machine.wait(func)

    return run(func, args, kwargs, ours, to_host)


def run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], ours: list[GpuTensor], to_host: bool = False) -> Any:
    """What nothing speaks against."""
    kernel, changed = KERNELS.get(func, func), _changed(func, args, kwargs)
    Recording.save(one.held for one in changed)
    bare = tree_map(_held, (args, kwargs))
    out = kernel(*bare[0], **bare[1])
    if to_host:
        machine.touch(reads=ours, writes=[], what=func)
        return args[0]
    wrapped = tree_map(lambda one: GpuTensor(one) if isinstance(one, Tensor) else one, out)
    known = {id(one.memory) for one in ours}
    made = [one for one in on_gpu(wrapped) if id(one.memory) not in known]
    if func in _PRODUCTS and not any(isinstance(one.held, FakeTensor) for one in ours):
        changed = [*changed, _workspace()]
    Recording.note(Operation(kernel, *bare, out), ours, changed, made)
    machine.touch(reads=ours, writes=changed + made, what=func)
    return (
        wrapped
        if func in KERNELS or not hasattr(func, "_schema")
        else return_and_correct_aliasing(func, args, kwargs, wrapped)
    )


def _workspace() -> GpuTensor:
    """What a product writes besides its result: one for all products of a queue, made by the first of them."""
    queue = machine.current.number
    if queue not in machine.workspaces:
        machine.workspaces[queue] = GpuTensor(torch.zeros(1))
    found = machine.workspaces[queue]
    if capturing() and found.memory.home is not None:
        raise RuntimeError("a captured graph would go on writing a workspace that is not its own")
    return found


def on_gpu(tree: Any) -> list[GpuTensor]:
    """Those of its tensors that are there."""
    return [one for one in tree_flatten(tree)[0] if isinstance(one, GpuTensor)]


def _held(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device("cpu")
    return value.held if isinstance(value, GpuTensor) else value


def _masked(func: Any, args: tuple[Any, ...]) -> bool:
    """Whether an index is a mask, of which somebody must count the ones."""
    return func in _INDEXED and any(one is not None and one.dtype in (torch.bool, torch.uint8) for one in args[1])


def _changed(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[GpuTensor]:
    """What it writes in place."""
    found: list[GpuTensor] = []
    for number, one in enumerate(func._schema.arguments if hasattr(func, "_schema") else ()):
        if one.alias_info is not None and one.alias_info.is_write:
            found += on_gpu(args[number] if number < len(args) else kwargs.get(one.name))
    return found


# --- from the host and back -------------------------------------------------------------------------------------------


def sent(value: Tensor, waits: bool = True) -> Tensor:
    """A copy on the GPU."""
    return value if isinstance(value, GpuTensor) else _Sent.apply(value, waits)


def fetched(value: Tensor) -> Tensor:
    """A copy on the host."""
    return _Fetched.apply(value) if isinstance(value, GpuTensor) else value


class _Sent(torch.autograd.Function):
    """To the GPU; gradients come back."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, waits: bool) -> Tensor:
        if capturing():
            raise RuntimeError("copy from the host: operation not permitted when stream is capturing")
        if waits:
            machine.wait("copy from the host")
        made = GpuTensor(value.detach().clone())
        machine.touch(reads=[], writes=[made], what="copy from the host")
        return made

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None]:
        return fetched(slope), None


class _Fetched(torch.autograd.Function):
    """To the host; gradients come back."""

    @staticmethod
    def forward(ctx: Any, value: GpuTensor) -> Tensor:
        if capturing():
            raise RuntimeError("copy to the host: operation not permitted when stream is capturing")
        machine.touch(reads=[value], writes=[], what="copy to the host")
        machine.wait("copy to the host")
        return value.held.detach().clone()

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        return sent(slope)
