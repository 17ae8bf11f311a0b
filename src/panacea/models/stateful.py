"""Dropout and BatchNorm in a form that both engines, masks and resumption can live with.

torch's own layers draw from a global generator, write their statistics in place and count padding as data. These
two take what they need from a `Pass` (the stream's key, the mask) and leave the new statistics in it. Parameter and
buffer names are torch's, so a prepared network loads and saves the same state dict.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from panacea.core.random import torch_uniform
from panacea.errors import RequestError

__all__ = ["MaskedBatchNorm", "Pass", "StreamDropout", "dropout", "normalise", "replace_stateful"]


class Pass:
    """What one forward pass knows besides its input; shared by all stateful layers of a prepared network.

    Attributes:
        key: int64 stream key(s) for dropout: ``()`` for one client, ``[rows]`` in a batched pass.
        mask: ``[..., B]`` 1 for a sample, 0 for padding; None when there is no padding.
        calls: dropout layers passed so far.
        statistics: new (mean, variance) by BatchNorm layer.
        frozen: BatchNorm normalises with its running statistics even in training.
    """

    def __init__(self) -> None:
        self.key: Tensor | None = None
        self.mask: Tensor | None = None
        self.calls = 0
        self.statistics: dict[str, tuple[Tensor, Tensor]] = {}
        self.frozen = False

    def begin(self, key: Tensor | None, mask: Tensor | None, frozen: bool) -> None:
        """Forget the last pass."""
        self.key, self.mask, self.calls, self.frozen = key, mask, 0, frozen
        self.statistics = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> Pass:
        return self  # copies of a network share the pass they are told about


def dropout(x: Tensor, share: float, key: Tensor, call: int, features_only: bool) -> Tensor:
    """Zero a share of the entries of ``x [..., B, *features]`` by a counter-based stream, one key per leading dim.

    Entries are numbered sample by sample, so padding behind a client's samples changes nothing.
    """
    lead = key.dim()
    shape = x.shape[: lead + 2] + (1,) * (x.dim() - lead - 2) if features_only else x.shape
    count = int(torch.Size(shape[lead:]).numel())
    noise = torch_uniform(key + call * 0x9E3779B1, count).reshape(shape)
    kept = (noise >= share).to(x.dtype)
    return x * (kept / (1.0 - share) if share < 1 else kept)


class StreamDropout(nn.Module):
    """`nn.Dropout` (or 1d/2d/3d: whole features) whose noise comes from the pass's stream."""

    def __init__(self, share: float, features_only: bool, state: Pass) -> None:
        super().__init__()
        self.share, self.features_only, self.state = share, features_only, state

    def forward(self, x: Tensor) -> Tensor:
        """``[B, ...] -> [B, ...]``."""
        if not self.training or self.share == 0 or self.state.key is None:
            return x
        self.state.calls += 1
        return dropout(x, self.share, self.state.key, self.state.calls, self.features_only)


def normalise(
    x: Tensor, mask: Tensor | None, running: tuple[Tensor, Tensor], momentum: float, eps: float
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """BatchNorm's training pass without its affine part, for ``x [..., B, C, S]`` and running ``[..., C]``.

    Padding (mask 0) enters neither the statistics nor the count. A client whose batch holds a single value per
    channel has no variance: it is normalised with its running statistics, which stay as they are.
    Returns the result and the new running (mean, variance); the variance is the unbiased one, as in torch.
    """
    mean_old, var_old = running
    if mask is None:
        count = x.new_full((*x.shape[:-3], 1), float(x.shape[-3] * x.shape[-1]))
        mean = x.mean(dim=(-3, -1))
        var = (x - mean[..., None, :, None]).square().mean(dim=(-3, -1))
    else:
        weight = mask[..., None, None]
        count = mask.sum(dim=-1, keepdim=True) * x.shape[-1]
        mean = (x * weight).sum(dim=(-3, -1)) / count
        var = ((x - mean[..., None, :, None]).square() * weight).sum(dim=(-3, -1)) / count
    several = count > 1
    mean, var = torch.where(several, mean, mean_old), torch.where(several, var, var_old)
    out = (x - mean[..., None, :, None]) * (var[..., None, :, None] + eps).rsqrt()
    with torch.no_grad():
        unbiased = var * count / (count - 1).clamp_min(1)
        new_mean = torch.where(several, torch.lerp(mean_old, mean.to(mean_old.dtype), momentum), mean_old)
        new_var = torch.where(several, torch.lerp(var_old, unbiased.to(var_old.dtype), momentum), var_old)
    return out, (new_mean, new_var)


class MaskedBatchNorm(nn.Module):
    """`nn.BatchNorm1d/2d/3d` with masks; new statistics are left in the pass instead of written in place."""

    weight: Tensor | None
    bias: Tensor | None
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, original: nn.modules.batchnorm._BatchNorm, name: str, state: Pass) -> None:
        super().__init__()
        if original.momentum is None or original.running_mean is None or original.running_var is None:
            raise RequestError(
                f"model: BatchNorm layer '{name}' has momentum=None or track_running_stats=False; "
                "give it a momentum and running statistics"
            )
        self.name, self.state = name, state
        self.momentum, self.eps = float(original.momentum), original.eps
        self.register_parameter("weight", original.weight)
        self.register_parameter("bias", original.bias)
        self.register_buffer("running_mean", original.running_mean)
        self.register_buffer("running_var", original.running_var)

    def forward(self, x: Tensor) -> Tensor:
        """``[B, C, ...] -> [B, C, ...]``."""
        running = (self.running_mean, self.running_var)
        affine = None if self.weight is None or self.bias is None else (self.weight, self.bias)
        return self.apply_to(x, running, affine, self.training)

    def apply_to(
        self, x: Tensor, running: tuple[Tensor, Tensor], affine: tuple[Tensor, Tensor] | None, training: bool
    ) -> Tensor:
        """The layer with given statistics and affine part, all with the same leading dims ``...``."""
        lead = running[0].dim() - 1
        flat = x.reshape((*x.shape[: lead + 2], -1))
        if training and not self.state.frozen:
            running = self.state.statistics.get(self.name, running)  # a layer used twice goes on from its first use
            out, new = normalise(flat, self.state.mask, running, self.momentum, self.eps)
            self.state.statistics[self.name] = new
        else:
            mean, var = running
            out = (flat - mean[..., None, :, None]) * (var[..., None, :, None] + self.eps).rsqrt()
        if affine is not None:
            out = out * affine[0][..., None, :, None] + affine[1][..., None, :, None]
        return out.reshape(x.shape)


_DROPOUTS: dict[type[nn.Module], bool] = {
    nn.Dropout: False,
    nn.Dropout1d: True,
    nn.Dropout2d: True,
    nn.Dropout3d: True,
}


def replace_stateful(
    module: nn.Module, state: Pass, prefix: str = "", made: dict[nn.Module, nn.Module] | None = None
) -> nn.Module:
    """Swap every Dropout and BatchNorm below a module (or the module itself) for the forms above.

    A layer that is used under several names is swapped under all of them (`made` remembers what became of it).
    """
    made = {} if made is None else made
    if module not in made:
        made[module] = _replaced(module, state, prefix, made)
    return made[module]


def _replaced(module: nn.Module, state: Pass, prefix: str, made: dict[nn.Module, nn.Module]) -> nn.Module:
    if isinstance(module, nn.modules.dropout._DropoutNd) and type(module) in _DROPOUTS:
        return StreamDropout(float(module.p), _DROPOUTS[type(module)], state)
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        return MaskedBatchNorm(module, prefix, state)
    for name, child in list(module._modules.items()):  # `named_children` would skip a layer's second name
        if child is not None:
            module._modules[name] = replace_stateful(child, state, f"{prefix}.{name}".lstrip("."), made)
    return module
