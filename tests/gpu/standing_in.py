"""What asks for a GPU, answered without one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from panacea.core import draws, lanes
from panacea.engines.forward import VmapForward
from tests.gpu.graphs import Graph, Operation, Recording, capturing
from tests.gpu.streams import Event, Machine, Stream
from tests.gpu.tensors import GpuTensor, fetched, machine, on_gpu, run, sent

__all__ = ["stand_in"]

_BYTES = 8 * 2**30  # of memory


@contextlib.contextmanager
def stand_in() -> Iterator[Machine]:
    """Inside, there is a GPU."""
    machine.restart()
    overwrite = torch.__future__.get_overwrite_module_params_on_conversion()
    with contextlib.ExitStack() as stack:
        for name, value in _CUDA.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, value))
        clear = machine.workspaces.clear
        stack.enter_context(mock.patch.object(torch._C, "_cuda_clearCublasWorkspaces", clear, create=True))
        stack.enter_context(mock.patch.object(torch.random, "fork_rng", _forked))
        stack.enter_context(mock.patch.object(VmapForward, "__call__", _vmapped))
        stack.enter_context(mock.patch.object(draws, "_made", {}))
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        stack.callback(torch.__future__.set_overwrite_module_params_on_conversion, overwrite)
        lanes._gpu.cache_clear()
        stack.callback(lanes._gpu.cache_clear)
        stack.enter_context(_Asked())
        yield machine


class _Asked(TorchFunctionMode):
    """Answers calls that name a device, and refuses what a tensor on a GPU has no answer for."""

    def __torch_function__(self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in _MOVES:
            return _MOVES[func](*args, **kwargs)
        if func in (Tensor.numpy, Tensor.__array__) and isinstance(args[0], GpuTensor):
            raise TypeError("can't convert cuda:0 device type tensor to numpy")
        if kwargs.get("device") is None:
            return func(*args, **kwargs)
        wanted = torch.device(kwargs["device"]).type
        kwargs["device"] = torch.device("cpu")
        made = func(*args, **kwargs)
        return fetched(made) if wanted == "cpu" else self._made(func, args, kwargs, made)

    def _made(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], made: Tensor) -> Tensor:
        if isinstance(made, GpuTensor):
            return made
        if func in (torch.tensor, torch.as_tensor):  # its values come from the host
            return sent(made)
        one = GpuTensor(made.detach())
        Recording.note(Operation(func, args, kwargs, one.held), [], [], [one])
        machine.touch(reads=[], writes=[one], what=func)
        return one.requires_grad_(made.requires_grad)


def _to(value: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """`Tensor.to`: a device, a dtype or another tensor, then whether not to wait and whether to copy."""
    device, dtypes = kwargs.pop("device", None), []
    flags = [one for one in args if isinstance(one, bool)]
    at_once = kwargs.pop("non_blocking", False) or any(flags[:1])
    for one in args:
        if isinstance(one, torch.device | str):
            device = one
        elif isinstance(one, Tensor):
            device = one.device
            dtypes.append(one.dtype)
        elif isinstance(one, torch.dtype):
            dtypes.append(one)
    if device is not None:
        value = sent(value, not at_once) if torch.device(device).type == "cuda" else fetched(value)
    return value.to(*dtypes, **kwargs) if dtypes or kwargs else value


def _sparse(*args: Any, **kwargs: Any) -> Tensor:
    """A layout that C++ does not know of a `GpuTensor`."""
    parts = on_gpu((args, kwargs))
    return run(torch.sparse_csr_tensor, args, kwargs, parts) if parts else torch.sparse_csr_tensor(*args, **kwargs)


def _listed(value: Tensor) -> Any:
    return fetched(value).tolist()


_MOVES: dict[Any, Callable[..., Any]] = {
    Tensor.to: _to,
    Tensor.cpu: fetched,
    Tensor.cuda: sent,
    Tensor.tolist: _listed,
    torch.sparse_csr_tensor: _sparse,
}

# --- torch.cuda -------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _captured(graph: Graph, stream: Stream | None = None, **_: object) -> Iterator[None]:
    with machine.on(stream or Stream(machine)), graph.recorded():
        yield


_CUDA: dict[str, Callable[..., Any]] = {
    "is_available": lambda: True,
    "device_count": lambda: 1,
    "current_device": lambda: 0,
    "get_device_name": lambda *_: "none",
    "mem_get_info": lambda *_: (_BYTES, _BYTES),
    "max_memory_allocated": lambda *_: 0,
    "reset_peak_memory_stats": lambda *_: None,
    "empty_cache": lambda: None,
    "synchronize": lambda *_: machine.wait("synchronize", all_streams=True),
    "get_rng_state": lambda *_: torch.zeros(16, dtype=torch.uint8),
    "is_current_stream_capturing": capturing,
    "current_stream": lambda *_: machine.current,
    "stream": machine.on,
    "Stream": lambda *_, **__: Stream(machine),
    "Event": lambda *_, **__: Event(),
    "CUDAGraph": lambda: Graph(machine),
    "graph": _captured,
}
_fork, _vmap = torch.random.fork_rng, VmapForward.__call__


def _forked(devices: object = None, **_: object) -> Any:
    return _fork(devices=[])


def _vmapped(*args: Any, **kwargs: Any) -> Any:
    """Inside vmap nobody sees where a tensor is: what is made beside it is taken to be on the GPU as well."""
    before, machine.lenient = machine.lenient, True
    try:
        return _vmap(*args, **kwargs)
    finally:
        machine.lenient = before
