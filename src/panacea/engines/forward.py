"""Forward passes of many clients at once, for any module.

Three ways, tried in this order, each checked against a plain loop on a small probe before it is trusted:

1. *batched*: the module is traced by `torch.fx`; layers with weights become the functions of `engines.layers`, all
   else runs as it stands on a folded batch ``[R*B, ...]``;
2. *vmap*: `torch.func.vmap` over the functional module, for what cannot be traced;
3. *loop*: one client after the other, with a warning that says why.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from panacea.core.records import tree_map, tree_stack
from panacea.engines.batching import Unsupported, trace_batched
from panacea.engines.gru import PlainGru, PlainGruCell, is_plain_gru
from panacea.errors import unknown
from panacea.models.target import Given, TargetModel

__all__ = ["FORWARDS", "Forward", "build_forward", "prepare_for_loop"]

FORWARDS = ("auto", "batched", "vmap", "loop")


class Forward(Protocol):
    """Many clients' passes: ``x [R, B, ...] -> outputs [R, B, ...], new statistics [R, S]``.

    In training the outputs may be a pair with penalties ``[R, B]``, see `panacea.models.target.Given`.

    `parts` are the layout's tensors ``[R, *shape]``: gradients are taken with respect to them, which is cheaper than
    to differentiate through cutting up the flat vector.
    """

    kind: str

    def __call__(
        self,
        parts: Sequence[Tensor],
        statistics: Tensor,
        x: Tensor,
        *,
        training: bool,
        key: Tensor | None = None,
        mask: Tensor | None = None,
        frozen: bool = False,
    ) -> tuple[Any, Tensor]:
        """One pass."""
        ...


class BatchedForward:
    """Batched layers through `torch.fx`."""

    kind = "batched"

    def __init__(self, target: TargetModel) -> None:
        self.target = target
        self.run: Callable[..., Tensor] = trace_batched(target)

    def __call__(
        self,
        parts: Sequence[Tensor],
        statistics: Tensor,
        x: Tensor,
        *,
        training: bool,
        key: Tensor | None = None,
        mask: Tensor | None = None,
        frozen: bool = False,
    ) -> tuple[Any, Tensor]:
        target = self.target
        if target.module.training != training:
            target.module.train(training)
        target.state.begin(key, mask, frozen)
        buffers = target.statistics_layout.parts(statistics) if target.statistics_layout.names else []
        outputs = self.run(x, x.shape[0], *parts, *buffers)
        return outputs, target.new_statistics(statistics)


class VmapForward:
    """`vmap` of the functional module."""

    kind = "vmap"

    def __init__(self, target: TargetModel) -> None:
        self.target = target
        self.module = _with_plain_grus(copy.deepcopy(target.module))
        for name, layer in self.module.named_modules():
            if isinstance(layer, nn.Embedding) and (layer.padding_idx is not None or layer.scale_grad_by_freq):
                raise Unsupported(f"the gradient of embedding '{name}' (padding or frequencies) is lost in vmap")

    def __call__(
        self,
        parts: Sequence[Tensor],
        statistics: Tensor,
        x: Tensor,
        *,
        training: bool,
        key: Tensor | None = None,
        mask: Tensor | None = None,
        frozen: bool = False,
    ) -> tuple[Any, Tensor]:
        target, state = self.target, self.target.state
        self.module.train(training)

        def one(
            own: list[Tensor], buffers: Tensor, inputs: Tensor, stream: Tensor | None, valid: Tensor | None
        ) -> tuple[Given, Tensor]:
            state.begin(stream, valid, frozen)
            values = dict(zip(target.layout.names, own, strict=True))
            if target.statistics_layout.names:
                values |= target.statistics_layout.unflatten(buffers)
            out: Given = functional_call(self.module, values, (inputs,))
            new = target.new_statistics(buffers)
            state.begin(None, None, False)  # nothing of this trace may outlive it
            return out, new

        in_dims = (0, 0, 0, None if key is None else 0, None if mask is None else 0)
        outputs, new = vmap(one, in_dims=in_dims)(list(parts), statistics, x, key, mask)
        return outputs, new


class LoopForward:
    """One client after the other, without its padding: no module can see or count what is not a sample."""

    kind = "loop"

    def __init__(self, target: TargetModel) -> None:
        self.target = target

    def __call__(
        self,
        parts: Sequence[Tensor],
        statistics: Tensor,
        x: Tensor,
        *,
        training: bool,
        key: Tensor | None = None,
        mask: Tensor | None = None,
        frozen: bool = False,
    ) -> tuple[Any, Tensor]:
        sizes = [x.shape[1]] * len(x) if mask is None else [int(size) for size in mask.sum(dim=1)]
        passes = [
            self.target.forward(
                [part[r] for part in parts],
                statistics[r],
                x[r, :size].clone(),  # a module may write into its input
                training=training,
                key=None if key is None else key[r],
                frozen=frozen,
            )
            for r, size in enumerate(sizes)
        ]
        outputs = [tree_map(lambda out: _lengthened(out, x.shape[1]), given) for given, _ in passes]
        return tree_stack(outputs), torch.stack([new for _, new in passes])


def _lengthened(out: Tensor, size: int) -> Tensor:
    return out if len(out) == size else torch.cat([out, out.new_zeros((size - len(out), *out.shape[1:]))])


def _with_plain_grus(module: nn.Module) -> nn.Module:
    """The module with GRUs that vmap understands."""
    if isinstance(module, nn.GRUCell):
        return PlainGruCell(module)
    if isinstance(module, nn.GRU) and is_plain_gru(module):
        return PlainGru(module)
    for name, child in list(module.named_children()):
        module._modules[name] = _with_plain_grus(child)
    return module


def build_forward(target: TargetModel, wanted: str = "auto") -> Forward:
    """The fastest way that agrees with the loop on a probe.

    Args:
        target: the network.
        wanted: ``auto``, or force ``batched``, ``vmap`` or ``loop``.
    """
    if wanted not in FORWARDS:
        raise unknown("forward", wanted, FORWARDS)
    reasons = []
    ways: dict[str, Callable[[TargetModel], Forward]] = {"batched": BatchedForward, "vmap": VmapForward}
    for kind, make in ways.items():
        if wanted not in ("auto", kind):
            continue
        try:
            with _generator_kept(target.initial.device):
                forward = make(target)
                _check_against_loop(target, forward)
            return forward
        except Exception as error:  # whatever a user's module raises, the next way may still work
            target.state.begin(None, None, False)
            reasons.append(f"{kind}: {str(error).splitlines()[0] if str(error) else type(error).__name__}")
            if isinstance(error, Unsupported) and error.random:
                break  # vmap would only find out later
    if wanted in ways:
        raise Unsupported(f"this model cannot run as '{wanted}' ({'; '.join(reasons)})")
    if wanted == "auto":
        warnings.warn(
            f"{type(target.original).__name__} cannot be vectorised and runs client by client ({'; '.join(reasons)})",
            stacklevel=2,
        )
    target.reseed = target.draws_noise = True
    return LoopForward(target)


def prepare_for_loop(target: TargetModel) -> None:
    """Find out whether the module draws random numbers by itself; if it may, its passes are reseeded."""
    try:
        with _generator_kept(target.initial.device):
            trace_batched(target)
            hidden = _moves_generator(target)
    except Exception:  # what cannot be read may hide anything
        hidden = True
    target.reseed = hidden
    target.draws_noise |= hidden


def _moves_generator(target: TargetModel) -> bool:
    """Whether a training pass takes numbers from torch's global generator."""
    device = target.initial.device
    x = torch.zeros((2, *target.task.inputs), dtype=target.initial.dtype, device=device)
    key = torch.zeros((), dtype=torch.int64, device=device)
    before = _generator_state(device)
    with torch.no_grad():
        target.forward(target.initial, target.statistics, x, training=True, key=key)
    return not torch.equal(_generator_state(device), before)


def _generator_kept(device: torch.device) -> AbstractContextManager[None]:
    """Whatever a module draws in here, torch's global generator is put back afterwards."""
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])


def _generator_state(device: torch.device) -> Tensor:
    state = torch.get_rng_state()
    return torch.cat([state, torch.cuda.get_rng_state(device)]) if device.type == "cuda" else state


def _as_one(given: Given) -> Tensor:
    """Outputs, with the penalty, if any, as one more number of every sample."""
    if isinstance(given, Tensor):
        return given
    outputs, penalty = given
    return torch.cat([outputs.flatten(2) if outputs.dim() > 2 else outputs.unsqueeze(2), penalty.unsqueeze(2)], dim=2)


def _check_against_loop(target: TargetModel, forward: Forward) -> None:
    """Compare with the loop on three rows, values and gradient: training, training with padding, evaluation.

    Differences count in relation to the largest value, so that small outputs and gradients are checked as well.
    """
    generator = torch.Generator().manual_seed(0)
    device, dtype = target.initial.device, target.initial.dtype

    def draw(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator, dtype=torch.float32).to(device, dtype)

    rows, size = 3, 4
    params = target.initial * (1 + 0.1 * draw(rows, target.layout.size)) + 0.01 * draw(rows, target.layout.size)
    statistics = target.statistics.expand(rows, -1) * (1 + 0.1 * draw(rows, len(target.statistics)))
    x = draw(rows, size, *target.task.inputs)
    key = torch.arange(rows, dtype=torch.int64, device=device) * 977
    whole = torch.ones(rows, size, dtype=dtype, device=device)
    padded = whole.tril(diagonal=1)  # 2, 3 and 4 samples
    tolerance = 1e-3 if dtype == torch.float32 else 1e-8
    cases = (("training", whole), ("training with padding", padded), ("evaluation", whole))
    for case, mask in cases:
        training = case != "evaluation"
        slope = draw(rows, size)
        results: list[tuple[Tensor, ...]] = []
        for way in (forward, LoopForward(target)):
            parts = [part.requires_grad_(True) for part in target.layout.parts(params.clone())]
            given, new = way(
                parts, statistics, x.clone(), training=training, key=key if training else None,
                mask=padded if mask is padded else None,
            )  # fmt: skip
            out = _as_one(given)
            valid = mask.reshape((rows, size) + (1,) * (out.dim() - 2))
            out = torch.where(valid > 0, out, 0.0)
            found: tuple[Tensor, ...] = (out.detach(), new.detach())
            if training:  # in evaluation nobody asks for gradients, and cuDNN refuses them
                loss = (out * (out.detach() + slope.reshape(valid.shape))).sum()
                gradients = torch.autograd.grad(loss, parts, materialize_grads=True)
                found = (*found, target.layout.join(gradients))
            results.append(found)
        for what, a, b in zip(("outputs", "statistics", "gradients"), *results, strict=False):
            scale = float(b.abs().max()) if b.numel() else 0.0
            if a.shape != b.shape or not torch.allclose(a, b, rtol=tolerance, atol=tolerance * scale):
                raise Unsupported(f"{what} differ from the plain loop in {case}")
