"""How much is done in one call, and where."""

from __future__ import annotations

import torch
from torch import nn

from panacea.core.records import leaves
from panacea.models.target import TargetModel

__all__ = ["default_block", "server_device"]

_CPU_BYTES = 16 * 2**20  # a CPU is fastest while a block stays in its cache


def default_block(target: TargetModel, batch_size: int, device: str) -> int:
    """Rows trained in one call when the user does not say: as many as fit the cache (CPU) or free memory (GPU).

    A row costs its parameters (value, gradient, two temporaries) and what its layers put out, twice (for the backward
    pass). Many small networks run together; a large convolutional one is best taken client by client on a CPU.
    """
    outputs = 0

    def count(_: nn.Module, __: object, out: object) -> None:
        nonlocal outputs
        outputs += sum(leaf.numel() for leaf in leaves(out))

    hooks = [m.register_forward_hook(count) for m in target.module.modules() if not list(m.children())]
    try:
        x = target.initial.new_zeros((2, *target.task.inputs))
        with torch.no_grad():
            target.forward(target.initial, target.statistics, x, training=False)
    finally:
        for hook in hooks:
            hook.remove()
    row = target.initial.element_size() * (4 * target.layout.size + batch_size * outputs)
    if device == "cuda":
        most = int(max(1, min(65_536, _gpu_bytes() // row)))
        return 1 << (most.bit_length() - 1)  # coarse, and by all of its memory: the same command is the same run
    return int(max(1, min(1024, _CPU_BYTES // row)))


def _gpu_bytes() -> int:
    """What a block may take of a GPU's memory."""
    return int(0.3 * torch.cuda.mem_get_info()[1]) if torch.cuda.is_available() else 4 * 2**30


_LITTLE = 1 << 17  # numbers that a CPU averages before a GPU has begun


def server_device(wanted: str, target: TargetModel, averages: bool, device: str) -> torch.device:
    """Where the server works: a mean of small models is faster on a CPU, all else beside the clients.

    Args:
        wanted: `cpu`, `device`, or `auto`: by size.
        target: the network.
        averages: whether the server does no more than to average models.
        device: of the clients.
    """
    small = averages and target.layout.size <= _LITTLE
    return torch.device("cpu" if wanted == "cpu" or (wanted == "auto" and small) else device)
