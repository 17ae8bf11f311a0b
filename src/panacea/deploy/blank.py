"""The upload of a client that trains nothing: what shape a server may expect of one."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from panacea.core.local import Local, Sgd
from panacea.core.method import Method
from panacea.core.records import Tree
from panacea.core.types import Batch

__all__ = ["blank_uploads"]


class _NoGradient:
    """Zero, everywhere."""

    def __call__(
        self, params: Tensor, batch: Batch, extra: Callable[[Tensor], Tensor] | None = None, track: bool = True
    ) -> Tensor:
        return torch.zeros_like(params)

    def curvature(self, params: Tensor, batch: Batch, along: Tensor) -> Tensor:
        return torch.zeros_like(params)

    def full(self, params: Tensor) -> Tensor:
        return torch.zeros_like(params)


def blank_uploads(method: Method, downloads: Tree, sgd: Sgd) -> Tree:
    """``[rows, ...]``: what these clients would upload had they trained nothing (`Method.unchanged`)."""
    kept = method.init_client(downloads)
    carry = method.start(downloads, kept, Local(_NoGradient(), sgd, 1))
    uploads, _ = method.finish(carry, downloads, kept, 1)
    return method.unchanged(downloads, uploads)
