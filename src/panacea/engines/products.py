"""Large products on a CPU by the faster of torch's two libraries.

torch multiplies float32 matrices by MKL, which on an AMD processor does without the widest instructions. oneDNN, which
torch has for convolutions, uses them: a product over the time steps of a recurrent network takes half the time. It is
chosen by the processor alone, so that a run that is resumed repeats its bits.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

__all__ = ["product_over_samples"]


def _faster_by_onednn() -> bool:
    """Whether this is such a processor, and torch has what it takes."""
    about = Path("/proc/cpuinfo")
    amd = about.exists() and "AuthenticAMD" in about.read_text(errors="replace")
    there = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return amd and there and torch.backends.cpu.get_cpu_capability() == "AVX512"


_ONEDNN = _faster_by_onednn()


def product_over_samples(left: Tensor, right: Tensor) -> Tensor:
    """``left^T right``: ``[R, B, O], [R, B, I] -> [R, O, I]``."""
    if not _ONEDNN or left.device.type != "cpu" or left.dtype != torch.float32:
        return torch.bmm(left.transpose(1, 2), right)
    product: Tensor = _by_onednn(left, right)
    return product


@torch.library.custom_op("panacea::product_over_samples", mutates_args=())
def _by_onednn(left: Tensor, right: Tensor) -> Tensor:
    """Row by row; for torch's compiler one operation, for it takes oneDNN's weights for constants."""
    linear = torch.ops.mkldnn._linear_pointwise.default
    each = [linear(b.t(), a.t(), None, "none", [], "") for a, b in zip(left.unbind(0), right.unbind(0), strict=True)]
    return torch.stack(each).transpose(1, 2).contiguous()


@_by_onednn.register_fake
def _(left: Tensor, right: Tensor) -> Tensor:
    return left.new_empty((left.shape[0], left.shape[2], right.shape[2]))
