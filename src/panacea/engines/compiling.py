"""The gradient of a block of rows as compiled code (`engine.compile=true`), for long runs: C++, or Triton on a GPU.

The operations `panacea.engines.tracing` records go through torch's compiler: pointwise functions are fused into loops,
and what is left of Python between them is gone. The first time this takes from half a minute to some minutes; the
result is kept in the user's cache folder, so that the next run of this network begins in seconds.

Compiled code is for fixed shapes. So that clients of different sizes do not have it compiled again and again, rows and
samples are padded to the next of a few sizes (at most a quarter more): padded samples weigh nothing, padded rows are
thrown away. Which code is used depends on the shapes alone, not on what came before: a resumed run repeats its bits.
Each compiled kernel is compared with the function it stands for when it is first used.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, fx

from panacea.data.paths import data_root
from panacea.engines.gradients import Arguments
from panacea.engines.tracing import Kernel, Signature, TracedKernel, agree, record, replay
from panacea.errors import RequestError

if TYPE_CHECKING:
    from panacea.engines.vectorised import VectorisedEngine

__all__ = ["CompiledKernel", "compile_kernel", "padded_size"]

_COMPILERS = ("g++", "c++", "clang++")
_LARGE = 1 << 14  # parameters of a recurrent network from which a CPU's cache is full with one client


def compile_kernel(engine: VectorisedEngine) -> None:
    """Have an engine's gradients compiled.

    Raises:
        RequestError: there is no C++ compiler, or on a GPU no Triton.
    """
    if engine.samples.device.type == "cuda" and importlib.util.find_spec("triton") is None:
        raise RequestError("engine.compile=true on a GPU needs the package triton, which comes with torch for CUDA")
    given = os.environ.get("CXX")
    if not any(shutil.which(name) for name in ((given,) if given else _COMPILERS)):
        what = f"CXX={given} is not there" if given else f"none of {', '.join(_COMPILERS)} was found"
        raise RequestError(f"engine.compile=true needs a C++ compiler, but {what}; install one, for example g++")
    if engine.forward.kind == "loop":
        warnings.warn("engine.compile=true has no effect on a network that runs client by client", stacklevel=2)
        return
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_folder()))
    engine.kernel = CompiledKernel(
        engine._block_gradient, masked=bool(engine.target.statistics_layout.names), merging=engine.recurrent
    )
    if engine.recurrent and engine.target.layout.size >= _LARGE and engine.samples.device.type == "cpu":
        engine.most = 1  # there is no Python left to share, and all time steps are kept for the backward pass


def cache_folder() -> Path:
    """Where compiled code is kept, beside the other files that can be made again."""
    return data_root() / "compiled"


def padded_size(size: int) -> int:
    """The next of 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24 ...: four steps to every doubling.

    >>> [padded_size(n) for n in (1, 5, 9, 17, 60, 64)]
    [1, 5, 10, 20, 64, 64]
    """
    step = 1 << max(0, (size - 1).bit_length() - 3)
    return -(-size // step) * step


class CompiledKernel:
    """A kernel that is compiled once per padded shape of its arguments.

    Attributes:
        kernels: the compiled code by shapes; None where the traced one is used instead.
        exact: the same, by shapes that need no padding.
        waited: seconds spent on compiling.
    """

    def __init__(self, function: Kernel, masked: bool, merging: bool = False) -> None:
        self.function, self.masked = function, masked
        self.traced = TracedKernel(function, merging)
        self.kernels: dict[Signature, Kernel | None] = {}
        self.exact: dict[Signature, Kernel] = {}
        self.waited = 0.0

    def __call__(self, *arguments: *Arguments) -> tuple[Tensor, ...]:
        """What the function returns."""
        run = self.exact.get(tuple(None if a is None else a.shape for a in arguments))
        if run is not None:  # nothing to pad, as in most steps of a run
            return replay(run, tuple(None if a is None else a.contiguous() for a in arguments))
        given = _padded(arguments, self.masked)
        shapes = tuple(None if a is None else a.shape for a in given)
        if shapes not in self.kernels:
            self.kernels[shapes] = self._compiled(given)
        run = self.kernels[shapes]
        if run is None:
            return self.traced(*arguments)
        if shapes == tuple(None if a is None else a.shape for a in arguments):
            self.exact[shapes] = run
        rows, samples = len(arguments[0]), arguments[4].shape[-1]
        gradient, values, statistics = replay(run, given)
        return gradient[:rows], values[:rows, ..., :samples], statistics[:rows]

    def _compiled(self, arguments: Arguments) -> Kernel | None:
        """Compile, compare and tell how long it took; None, with one warning, where it cannot be done."""
        started, problem = time.perf_counter(), "its results differ"
        try:
            module = record(self.function, arguments)
            if module is not None:
                run = _compile(module, [a for a in arguments if a is not None])
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # the compiler's advice to its developers
                    found = replay(run, arguments)
                if agree(found, self.function(*arguments)):
                    self._tell(time.perf_counter() - started)
                    return run
            else:
                problem = "it has too many operations"
        except Exception as error:  # whatever the compiler says, the step can also be taken without it
            problem = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        if None not in self.kernels.values():
            warnings.warn(f"engine.compile=true: the local step is not compiled ({problem})", stacklevel=2)
        return None

    def _tell(self, seconds: float) -> None:
        self.waited += seconds
        folder, home = os.environ.get("TORCHINDUCTOR_CACHE_DIR", ""), f"{Path.home()}/"
        folder = f"~/{folder.removeprefix(home)}" if folder.startswith(home) else folder
        warnings.warn(f"local steps compiled in {seconds:.0f} s, kept in {folder} for the next run", stacklevel=2)


def _compile(module: fx.GraphModule, inputs: list[Tensor]) -> Kernel:
    """Torch's compiler without its checks at every call: our own key is all there is to check.

    On a CPU also without what `torch.compile` puts around it, which takes as long as a call of a small network.
    """
    from torch import _inductor as inductor  # noqa: PLC0415  (seconds to import; only when used)

    run: Kernel
    if inputs[0].is_cuda:  # what calls the kernels does not matter there, for a captured graph replays them without it
        options: dict[str, str | int | bool | Callable[..., Any]] = {
            "guard_filter_fn": torch.compiler.skip_all_guards_unsafe
        }
        # the generated function, not the module: without checks, all modules would share the code of nn.Module's call
        run = torch.compile(module.forward, fullgraph=True, dynamic=False, options=options)
        return run
    settings = {"config_patches": {"cpp_wrapper": True}}
    run = inductor.standalone_compile(module, [*inputs], dynamic_shapes="from_example_inputs", options=settings)
    return run


def _padded(arguments: Arguments, masked: bool) -> Arguments:
    """Arguments of a size there may be compiled code for, each as one piece of memory.

    What is added repeats the first row and the first sample, so that nothing unheard-of enters the arithmetic.
    """
    params, statistics, x, y, weight, key, mask = arguments
    rows, samples = weight.shape[0], weight.shape[-1]
    wide, long = padded_size(samples) - samples, padded_size(rows) - rows
    if wide:
        if mask is None and masked:
            mask = weight.new_ones((rows, samples))
        x, y = (_longer(values, 1, wide) for values in (x, y))
        weight, mask = F.pad(weight, (0, wide)), None if mask is None else F.pad(mask, (0, wide))
    given = [params, statistics, x, y, weight, key, mask]
    lengthened = [None if t is None else (_longer(t, 0, long) if long else t).contiguous() for t in given]
    return tuple(lengthened)  # type: ignore[return-value]


def _longer(values: Tensor, dim: int, more: int) -> Tensor:
    """With the first entry along a dim repeated at the end."""
    first = values.narrow(dim, 0, 1)
    shape = list(values.shape)
    shape[dim] = more
    return torch.cat([values, first.expand(shape)], dim=dim)
