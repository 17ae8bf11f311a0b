"""The same samples in another form give the same numbers: bytes, an order of their own, overlapping windows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from panacea.core.random import Streams
from panacea.data.federation import Federation
from panacea.data.storage import window_views
from panacea.data.task import Task
from panacea.engines.base import Samples
from panacea.methods import FedAvg
from panacea.models import GruSeq2Seq, Mlp

from .build import engine_of, everything, federation, labels, run, seeded

pytestmark = pytest.mark.engine

NAN = float("nan")
TASK = Task("forecasting", (4, 2), (3,), missing=True)


def numbers(
    engine: str, fed: Federation, build: Callable[[], nn.Module], dtype: torch.dtype = torch.float64
) -> dict[str, Tensor]:
    """What three rounds give."""
    made = engine_of(engine, seeded(build), fed, dtype=dtype)
    state, _ = run(FedAvg(), made, fed, 3)
    return everything(FedAvg(), state, made, fed)


def _same_batches(a: Federation, b: Federation, dtype: torch.dtype = torch.float64) -> None:
    ids = np.arange(len(a))
    left, right = (Samples(fed, Streams(4), torch.device("cpu"), dtype) for fed in (a, b))
    for first, second in zip(
        left.batches(ids, 1, "train", 3, 2, 7), right.batches(ids, 1, "train", 3, 2, 7), strict=True
    ):
        for one, other in zip(first, second, strict=True):
            assert one.x.dtype == other.x.dtype == dtype
            assert torch.equal(one.x, other.x)
            assert torch.equal(one.y, other.y)
    for client in ids:
        for split in ("train", "val", "test"):
            assert torch.equal(a.client(client, split)[0], b.client(client, split)[0])


class TestStorage:
    """The same samples in another form: bytes, an order of their own, overlapping windows."""

    def bytes_and_floats(self) -> tuple[Federation, Federation]:
        fed = federation(labels((5,)))
        stored = (fed.x * 255).to(torch.uint8)
        return replace(fed, x=stored), replace(fed, x=stored.float() / 255)

    def shuffled(self, fed: Federation) -> Federation:
        order = torch.randperm(len(fed.x), generator=torch.Generator().manual_seed(2))
        spare = torch.zeros_like(fed.x[:2])  # images that nobody has
        return replace(fed, x=torch.cat([spare, fed.x[order]]), rows=order.argsort() + 2)

    def test_bytes(self) -> None:
        few, many = self.bytes_and_floats()
        _same_batches(few, many, torch.float32)

    def test_rows(self) -> None:
        few, many = self.bytes_and_floats()
        _same_batches(self.shuffled(few), many, torch.float32)
        _same_batches(self.shuffled(many), many)

    @pytest.mark.parametrize("engine", ["sequential", "vectorised"])
    def test_training_and_scores(self, engine: str) -> None:
        few, many = self.bytes_and_floats()

        def small() -> Mlp:
            return Mlp((5,), 3, (9,))

        expected = numbers(engine, many, small, torch.float32)
        for fed in (few, self.shuffled(few), self.shuffled(many)):
            found = numbers(engine, fed, small, torch.float32)
            assert all(torch.equal(found[what], expected[what]) for what in expected)

    @pytest.mark.parametrize("engine", ["sequential", "vectorised"])
    def test_windows_as_views(self, engine: str) -> None:
        """Views with gaps in their targets, against the same windows copied apart."""
        clients, steps, length, horizon = 3, 40, 4, 3
        generator = torch.Generator().manual_seed(3)
        series = torch.rand(clients * steps, 2, generator=generator)
        targets = torch.where(torch.rand(clients * steps, generator=generator) < 0.2, NAN, series[:, 0])
        x, y = window_views(series, targets, length, horizon)
        windows = steps - length - horizon + 1
        bounds = np.arange(clients)[:, None] * steps + np.array([0, 24, 27, windows])
        views = Federation("toy", TASK, x, y, bounds.astype(np.int64), ("a", "b", "c"))
        dense = replace(views, x=x.contiguous().clone(), y=y.contiguous().clone())
        a, b = (numbers(engine, fed, lambda: GruSeq2Seq(2, 5, horizon=3)) for fed in (views, dense))
        assert all(torch.equal(a[what], b[what]) for what in b)
        moved = Samples(views, Streams(0), torch.device("cpu"), torch.float64)
        assert moved.x.untyped_storage().nbytes() <= series.numel() * 8  # still views in another type
