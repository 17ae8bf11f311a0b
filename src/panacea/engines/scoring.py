"""Scores of many clients' models in as few calls as memory allows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from panacea.core.transfer import on_device
from panacea.core.types import ClientIds
from panacea.data.federation import SPLITS
from panacea.engines.base import Samples, Scores
from panacea.engines.forward import Forward
from panacea.models.target import TargetModel, sample_losses, sample_metric, sample_weights

__all__ = ["Scorer"]

_EVALUATION_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Scorer:
    """Scores models by an engine's forward pass.

    Attributes:
        forward: the pass of many rows.
        target: the network.
        samples: of all clients.
        block: most rows in one call.
    """

    forward: Forward
    target: TargetModel
    samples: Samples
    block: int

    def __call__(self, params: Tensor, statistics: Tensor, ids: ClientIds, split: str) -> Scores:
        """Score ``params [rows, P]`` on a split; one shared model is run once over all samples."""
        shared = params.stride(0) == 0 and statistics.stride(0) == 0
        return (self._shared if shared else self._rows)(params, statistics, ids, split)

    def _positions(self, ids: ClientIds, split: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        return self.samples.bounds[ids, SPLITS.index(split)], self.samples.counts(split, ids)

    def _samples_per_call(self) -> int:
        one = self.samples.input_bytes
        return int(max(1, _EVALUATION_BYTES // (16 * max(one, 1))))  # activations are about 16 times the input

    def _rows(self, params: Tensor, statistics: Tensor, ids: ClientIds, split: str) -> Scores:
        starts, counts = self._positions(ids, split)
        device = params.device
        metric, loss, weight = torch.zeros(3, len(ids), dtype=torch.float64, device=device)
        most = self._samples_per_call()
        width = int(min(max(counts.max(), 1), most))
        block = max(1, min(self.block, most // width))
        for first in range(0, len(ids), block):
            rows = slice(first, first + block)
            for offset in range(0, max(int(counts[rows].max()), 1), width):
                place = np.arange(offset, offset + width)[None, :]
                valid = on_device(place < counts[rows][:, None], device)
                last = np.maximum(counts[rows] - 1, 0)[:, None]
                index = torch.from_numpy(starts[rows][:, None] + np.minimum(place, last))
                x, y = self.samples.gather(index.clamp_max(len(self.samples.y) - 1).to(device))
                with torch.no_grad():
                    outputs, _ = self.forward(
                        self.target.layout.parts(params[rows]), statistics[rows], x, training=False
                    )
                    each = torch.where(valid, sample_weights(self.target.task, y).double(), 0.0)
                    weight[rows] += each.sum(dim=1)
                    for total, score in ((metric, sample_metric), (loss, sample_losses)):
                        values = score(self.target.task, outputs, y).double()
                        total[rows] += torch.where(valid, values * each, 0.0).sum(dim=1)
        return _scores(metric, loss, weight)

    def _shared(self, params: Tensor, statistics: Tensor, ids: ClientIds, split: str) -> Scores:
        starts, counts = self._positions(ids, split)
        owner = np.repeat(np.arange(len(ids)), counts)
        within = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
        positions = torch.from_numpy(starts[owner] + within)
        owners = on_device(owner, params.device)
        metric, loss, weight = torch.zeros(3, len(ids), dtype=torch.float64, device=params.device)
        most = self._samples_per_call()
        for first in range(0, len(owner), most):
            chunk = slice(first, first + most)
            x, y = self.samples.gather(positions[chunk].to(params.device))
            with torch.no_grad():
                outputs, _ = self.forward(
                    self.target.layout.parts(params[:1]), statistics[:1], x.unsqueeze(0), training=False
                )
                flat = outputs.squeeze(0)
                each = sample_weights(self.target.task, y).double()
                weight.index_add_(0, owners[chunk], each)
                for total, score in ((metric, sample_metric), (loss, sample_losses)):
                    values = score(self.target.task, flat, y).double() * each
                    total.index_add_(0, owners[chunk], values)
        return _scores(metric, loss, weight)


def _scores(metric: Tensor, loss: Tensor, weight: Tensor) -> Scores:
    """Means of sums, brought to the host in one go; 0/0 = NaN: a client without such samples."""
    means = (torch.stack([metric, loss]) / weight).cpu().numpy()
    return Scores(means[0], means[1])
