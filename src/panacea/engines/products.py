"""Large products on a CPU by the faster of torch's two libraries.

torch multiplies float32 matrices by MKL, which on an AMD processor does without the widest instructions. oneDNN, which
torch has for convolutions, uses them: a large product takes half the time. It needs some microseconds to begin, so
small ones stay with MKL. Which one it is follows from the processor and the shapes alone, so that a run that is resumed
repeats its bits.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

__all__ = ["PRODUCT", "faster_by_onednn", "product"]

_LEAST = 1 << 20  # multiplications of a row from which oneDNN is faster, though it takes row by row
_LEAST_COLUMNS = 64  # of the result, from which it is also where the left side must be copied into its order first


def _prefers_onednn() -> bool:
    """Whether this is such a processor, and torch has what it takes."""
    about = Path("/proc/cpuinfo")
    amd = about.exists() and "AuthenticAMD" in about.read_text(errors="replace")
    there = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return amd and there and torch.backends.cpu.get_cpu_capability() == "AVX512"


_ONEDNN = _prefers_onednn()

# For torch's compiler and recorder this is one operation; the compiler would take oneDNN's weights for constants.
# Defined by its schema: calling one that `torch.library.custom_op` makes takes five times as long.
_library = torch.library.Library("panacea", "DEF")
_library.define("product(Tensor left, Tensor turned) -> Tensor")
PRODUCT = torch.ops.panacea.product.default


def _by_onednn(left: Tensor, turned: Tensor) -> Tensor:
    """Row by row."""
    if left.stride(2) != 1 and turned.shape[1] < left.shape[1]:  # the left one is copied if it lies in columns
        return _by_onednn(turned, left).transpose(1, 2).contiguous()
    linear = torch.ops.mkldnn._linear_pointwise.default
    if len(left) == 1:
        whole: Tensor = linear(left.squeeze(0), turned.squeeze(0), None, "none", [], "").unsqueeze(0)
        return whole
    rows = zip(left.unbind(0), turned.unbind(0), strict=True)
    return torch.stack([linear(a, b, None, "none", [], "") for a, b in rows])


def _shaped(left: Tensor, turned: Tensor) -> Tensor:
    return left.new_empty((*left.shape[:2], turned.shape[1]))


_library.impl("product", _by_onednn, "CPU")
_library.impl("product", _shaped, "Meta")


class _Product(torch.autograd.Function):
    """``left turned^T`` by `PRODUCT`; its gradients are such products again."""

    @staticmethod
    def forward(ctx: Any, left: Tensor, turned: Tensor) -> Tensor:
        ctx.save_for_backward(left, turned)
        out: Tensor = PRODUCT(left, turned)
        return out

    @staticmethod
    def backward(ctx: Any, *along: Tensor) -> tuple[Tensor | None, Tensor | None]:
        left, turned = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        to_left = product(along[0], turned.transpose(1, 2)) if wanted[0] else None
        return to_left, product(along[0].transpose(1, 2), left.transpose(1, 2)) if wanted[1] else None


def faster_by_onednn(left: Tensor, turned: Tensor) -> bool:
    """Whether this is a product for oneDNN."""
    if not _ONEDNN or left.dtype != torch.float32 or left.device.type != "cpu":
        return False
    columns = turned.shape[1]
    large = left.shape[1] * left.shape[2] * columns >= _LEAST
    return large and (left.stride(2) == 1 or columns >= _LEAST_COLUMNS)


def product(left: Tensor, turned: Tensor) -> Tensor:
    """Rows of matrices times others that are turned, as a layer's weights are.

    Args:
        left: ``[R, M, K]``.
        turned: ``[R, N, K]``.

    Returns:
        ``left turned^T``, ``[R, M, N]``.
    """
    if not faster_by_onednn(left, turned):
        return torch.bmm(left, turned.transpose(1, 2))
    if not torch.is_grad_enabled():
        whole: Tensor = PRODUCT(left, turned)
        return whole
    out: Tensor = _Product.apply(left, turned)  # type: ignore[no-untyped-call]
    return out
