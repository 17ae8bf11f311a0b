"""Target networks with ragged federations of their kind, for the tests that compare engines."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

import panacea as pn
from panacea.models import GruSeq2Seq, Mlp, SmallCnn

SIZES = (3, 11, 8, 30, 5, 17)  # the first trains on a single sample: one is test, one validation


def _build(make: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(7)
        return make()


def _labelled(shape: tuple[int, ...], classes: int) -> pn.Federation:
    generator = np.random.default_rng(0)
    x = [generator.normal(size=(n, *shape)) + 0.2 * i for i, n in enumerate(SIZES)]
    y = [generator.integers(0, classes, n) for n in SIZES]
    return pn.Federation.from_arrays(x, y, classes=classes)


def mlp() -> tuple[pn.Federation, nn.Module]:
    return _labelled((5,), 3), _build(lambda: Mlp((5,), 3, hidden=(33, 17)))


def cnn() -> tuple[pn.Federation, nn.Module]:
    return _labelled((1, 6, 6), 3), _build(lambda: SmallCnn(1, 6, 3, width=13))


def cnn_with_statistics() -> tuple[pn.Federation, nn.Module]:
    """Convolutions, BatchNorm and Dropout."""

    def make() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(2, 5, 3, padding=1), nn.BatchNorm2d(5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(5, 7, 3),
            nn.BatchNorm2d(7), nn.ReLU(), nn.Dropout(0.2), nn.Flatten(), nn.Linear(7, 3),
        )  # fmt: skip

    return _labelled((2, 7, 7), 3), _build(make)


def gru() -> tuple[pn.Federation, nn.Module]:
    generator = np.random.default_rng(1)
    x, y = [], []
    for n in SIZES:
        speed = generator.normal(size=(n, 9))
        day = (np.arange(n)[:, None] + np.arange(9)[None, :]) % 20 / 20
        x.append(np.stack([speed, day], axis=-1)[:, :6])
        y.append(speed[:, 6:])
    federation = pn.Federation.from_arrays(x, y, task="forecasting")
    return federation, _build(lambda: GruSeq2Seq(hidden=11, horizon=3))


TARGETS = {"mlp": mlp, "gru": gru, "cnn": cnn, "cnn_with_statistics": cnn_with_statistics}
