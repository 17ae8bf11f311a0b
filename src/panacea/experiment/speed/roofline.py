"""How much of the machine is used: floating-point operations of a round over its time, and the peak beside it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.utils.flop_counter import FlopCounterMode

from panacea.engines.products import product
from panacea.experiment.experiment import Experiment
from panacea.experiment.speed.measuring import timed
from panacea.experiment.speed.workloads import Workload, client_batches, network_of

__all__ = ["Roofline", "gemm_peak", "step_flops"]

_SIDE = {"cpu": 1024, "cuda": 8192}  # of the matrices whose product is the peak


@dataclass(frozen=True)
class Roofline:
    """Work and peak of a workload.

    Attributes:
        step_flops: floating-point operations of one client's local step, forward and backward.
        round_flops: of all local steps of a round.
        peak: floating-point operations a second of a large matrix product here, one thread or the GPU.
    """

    step_flops: int
    round_flops: int
    peak: float

    def achieved(self, seconds: float) -> float:
        """Operations a second of a round that took so long."""
        return self.round_flops / seconds

    def share(self, seconds: float) -> float:
        """Of the peak."""
        return self.achieved(seconds) / self.peak


def step_flops(experiment: Experiment, work: Workload) -> int:
    """Operations of one local step, counted from the layers while it runs once; activations are not counted."""
    network, loss = network_of(experiment), work.loss()
    x, y = client_batches(experiment, int(experiment.federation.train_ids[0]), 1)[0]
    with FlopCounterMode(display=False) as counter:
        torch.autograd.grad(loss(network(x), y), list(network.parameters()))
    return int(counter.get_total_flops())


def gemm_peak(device: str, repeats: int = 15) -> float:
    """Operations a second of a product of two square float32 matrices; the best of a few, for it is a peak.

    By the library that is faster for it, as in the engine: a peak that convolutions surpass would be none.
    """
    side = _SIDE[device]
    a, b = (torch.randn(1, side, side, device=device) for _ in range(2))
    return float(2 * side**3 / min(timed(device, lambda: product(a, b)) for _ in range(repeats)))
