"""Large products on a CPU by the faster of torch's two libraries.

torch multiplies float32 matrices by MKL, which on an AMD processor does without the widest instructions. oneDNN, which
torch has for convolutions, uses them: the largest products take half the time. It needs some microseconds to begin, so
small ones stay with MKL. Which one it is follows from the processor, the shapes and how the numbers lie, so that a run
that is resumed repeats its bits. Under autocast (`engine.precision=bf16`) torch chooses.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

__all__ = ["PRODUCT", "faster_by_onednn", "is_large", "product"]

_LEAST = 3 << 19  # multiplications of a row from which oneDNN is faster, though it takes row by row
_LEAST_PER_MOVE = 64  # and for each number that must first be brought into another order


def _prefers_onednn(about: Path, capability: str) -> bool:
    """Whether this is such a processor, by what Linux tells of it and torch uses of it, and torch has oneDNN."""
    amd = about.exists() and "AuthenticAMD" in about.read_text(errors="replace")
    there = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return amd and there and capability == "AVX512"


_ONEDNN = _prefers_onednn(Path("/proc/cpuinfo"), torch.backends.cpu.get_cpu_capability())

# For torch's compiler and recorder this is one operation; the compiler would take oneDNN's weights for constants.
# Defined by its schema: calling one that `torch.library.custom_op` makes takes five times as long.
_library = torch.library.Library("panacea", "DEF")
_library.define("product(Tensor left, Tensor turned, Tensor? bias) -> Tensor")
PRODUCT = torch.ops.panacea.product.default


def _by_onednn(left: Tensor, turned: Tensor, bias: Tensor | None) -> Tensor:
    """Row by row."""
    straight, swapped = _moves(left, turned)
    if swapped < straight:
        out = _by_onednn(turned, left, None).transpose(1, 2)
        return out.contiguous() if bias is None else (out + bias.unsqueeze(1)).contiguous()
    turned = turned if _is_plain(turned) else turned.contiguous()
    linear = torch.ops.mkldnn._linear_pointwise.default
    if len(left) == 1:
        shift = None if bias is None else bias.squeeze(0)
        whole: Tensor = linear(left.squeeze(0), turned.squeeze(0), shift, "none", [], "").unsqueeze(0)
        return whole
    biases = [None] * len(left) if bias is None else bias.unbind(0)
    rows = zip(left.unbind(0), turned.unbind(0), biases, strict=True)
    return torch.stack([linear(a, b, shift, "none", [], "") for a, b, shift in rows])


def _is_plain(turned: Tensor) -> bool:
    """Whether its rows or columns lie one behind the other: oneDNN refuses windows that overlap."""
    (rows, columns), (down, across) = turned.shape[1:], turned.stride()[1:]
    return (across == 1 and down >= columns) or (down == 1 and across >= rows)


def _moves(left: Tensor, turned: Tensor) -> tuple[int, int]:
    """How many numbers of a row are brought into another order; also where the product is made turned.

    What comes first is copied if it lies in columns; oneDNN does not mind how the second one lies.
    """
    if left.stride(2) == 1:
        return 0, 1
    (m, k), n = left.shape[1:], turned.shape[1]
    return m * k, m * n + (0 if turned.stride(2) == 1 else n * k)


def _shaped(left: Tensor, turned: Tensor, bias: Tensor | None) -> Tensor:
    return left.new_empty((*left.shape[:2], turned.shape[1]))


_library.impl("product", _by_onednn, "CPU")
_library.impl("product", _shaped, "Meta")


class _Product(torch.autograd.Function):
    """A large product and its gradients, which are such products again, each by the library that is faster for it."""

    @staticmethod
    def forward(ctx: Any, left: Tensor, turned: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(left, turned)
        return _by_either(left, turned, bias)

    @staticmethod
    def backward(ctx: Any, *along: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        left, turned = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        to_left = product(along[0], turned.transpose(1, 2)) if wanted[0] else None
        to_turned = product(along[0].transpose(1, 2), left.transpose(1, 2)) if wanted[1] else None
        return to_left, to_turned, along[0].sum(1) if wanted[2] else None


def product(left: Tensor, turned: Tensor, bias: Tensor | None = None) -> Tensor:
    """Rows of matrices times others that are turned, as a layer's weights are.

    Args:
        left: ``[R, M, K]``.
        turned: ``[R, N, K]``.
        bias: ``[R, N]``, added if given.

    Returns:
        ``left turned^T + bias``, ``[R, M, N]``.
    """
    if not is_large(left, turned):
        return _by_torch(left, turned, bias)
    if not torch.is_grad_enabled():
        return _by_either(left, turned, bias)
    out: Tensor = _Product.apply(left, turned, bias)  # type: ignore[no-untyped-call]
    return out


def is_large(left: Tensor, turned: Tensor) -> bool:
    """Whether oneDNN may be faster for this product, or for its gradients."""
    if not _ONEDNN or left.dtype != torch.float32 or left.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
        return False
    return left.shape[1] * left.shape[2] * turned.shape[1] >= _LEAST


def faster_by_onednn(left: Tensor, turned: Tensor) -> bool:
    """Whether it is for this one."""
    multiplications = left.shape[1] * left.shape[2] * turned.shape[1]
    return is_large(left, turned) and multiplications >= _LEAST_PER_MOVE * min(_moves(left, turned))


def _by_either(left: Tensor, turned: Tensor, bias: Tensor | None) -> Tensor:
    """By the library that is faster."""
    if not faster_by_onednn(left, turned):
        return _by_torch(left, turned, bias)
    out: Tensor = PRODUCT(left, turned, bias)
    return out


def _by_torch(left: Tensor, turned: Tensor, bias: Tensor | None) -> Tensor:
    """Any product, by the library that torch takes."""
    right = turned.transpose(1, 2)
    return torch.bmm(left, right) if bias is None else torch.baddbmm(bias.unsqueeze(1), left, right)
