"""Scores of all clients in as few calls as memory allows are those of one client after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from panacea.engines import Engine, Scores
from panacea.engines import scoring as module_of_scores
from panacea.models import Mlp

from .build import RAGGED, engine_of, federation, labels, numbers, seeded
from .networks import mlp

TASK = labels((5,))
TEST_SIZES = (3, 0, 8, 1, 5, 0, 20)


def scored(engine: Engine, params: Tensor, statistics: Tensor, ids: np.ndarray, split: str = "test") -> Scores:
    return engine.evaluate(params, statistics, ids, split)


def assert_scores(found: Scores, expected: Scores, tolerance: float = 1e-11) -> None:
    np.testing.assert_allclose(found.metric, expected.metric, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(found.loss, expected.loss, rtol=tolerance, atol=tolerance)


def network() -> nn.Module:
    return seeded(lambda: mlp(nn.BatchNorm1d(9), nn.ReLU()))


class Models:
    """Different parameters and statistics for every client, in two engines."""

    def __init__(self, build: Any = network, task: Any = TASK, **options: Any) -> None:
        self.fed = federation(task, RAGGED, TEST_SIZES)
        self.reference = engine_of("sequential", build(), self.fed)
        self.engine = engine_of("vectorised", build(), self.fed, **options)
        generator = torch.Generator().manual_seed(0)
        target = self.engine.target
        noise = torch.randn(7, target.layout.size, generator=generator, dtype=torch.float64)
        self.params = target.initial + 0.3 * noise
        self.statistics = target.statistics + torch.rand(7, len(target.statistics), generator=generator).double()
        self.ids = np.arange(7)


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_scores_are_means_over_the_clients_own_samples(split: str):
    """Against the plain module handed out for each client."""
    models = Models()
    found = scored(models.reference, models.params, models.statistics, models.ids, split)
    for client in range(7):
        x, y = models.fed.client(client, split)
        module = models.reference.target.to_module(models.params[client], models.statistics[client]).eval()
        if len(x) == 0:
            assert np.isnan(found.metric[client])
            assert np.isnan(found.loss[client])
            continue
        with torch.no_grad():
            scores = module(x)
        assert found.metric[client] == pytest.approx(100 * float((scores.argmax(1) == y).float().mean()))
        assert found.loss[client] == pytest.approx(float(nn.functional.cross_entropy(scores, y)), rel=1e-5)


@pytest.mark.parametrize("split", ["train", "val", "test"])
@pytest.mark.parametrize("block", [1, 3, 100])
def test_rows_are_scored_as_one_by_one(split: str, block: int):
    models = Models(block=block)
    expected = scored(models.reference, models.params, models.statistics, models.ids, split)
    assert_scores(scored(models.engine, models.params, models.statistics, models.ids, split), expected)


def test_clients_without_samples_are_nan_and_only_they():
    models = Models()
    rows = scored(models.engine, models.params, models.statistics, models.ids)
    shared = scored(models.engine, models.params[:1].expand(7, -1), models.statistics[:1].expand(7, -1), models.ids)
    for found in (rows, shared, scored(models.reference, models.params, models.statistics, models.ids)):
        assert np.isnan(found.metric).tolist() == [size == 0 for size in TEST_SIZES]
        assert np.isnan(found.loss).tolist() == [size == 0 for size in TEST_SIZES]


def test_a_federation_without_any_test_sample():
    fed = federation(TASK, (4, 5), (0, 0))
    for name in ("sequential", "vectorised"):
        engine = engine_of(name, network(), fed)
        params, statistics = engine.target.initial.expand(2, -1), engine.target.statistics.expand(2, -1)
        for given in (params, params.contiguous()):
            found = scored(engine, given, statistics, np.arange(2))
            assert np.isnan(found.metric).all()
            assert np.isnan(found.loss).all()


@pytest.mark.parametrize("ids", [[0, 1, 2, 3, 4, 5, 6], [6, 2, 0], [4], [1], [5, 3]])
def test_one_model_for_all_is_the_same_by_three_ways(ids: list[int], monkeypatch: pytest.MonkeyPatch):
    models, chosen = Models(), np.array(ids)
    params, statistics = models.params[2].expand(len(ids), -1), models.statistics[2].expand(len(ids), -1)
    expected = scored(models.reference, params, statistics, chosen)
    assert_scores(scored(models.engine, params.contiguous(), statistics.contiguous(), chosen), expected)

    def not_by_rows(*args: object) -> None:
        raise AssertionError("a shared model is run once over all samples")

    if len(ids) > 1:
        monkeypatch.setattr(module_of_scores.Scorer, "_rows", not_by_rows)
    assert_scores(scored(models.engine, params, statistics, chosen), expected)


def test_a_shared_model_with_statistics_per_client_is_scored_by_row():
    models = Models()
    params = models.params[2].expand(7, -1)
    expected = scored(models.reference, params, models.statistics, models.ids)
    assert_scores(scored(models.engine, params, models.statistics, models.ids), expected)
    assert len(set(expected.loss[~np.isnan(expected.loss)])) == 5


@pytest.mark.parametrize("samples", [1, 2, 3, 7, 16])
@pytest.mark.parametrize("shared", [False, True], ids=["rows", "shared"])
def test_chunks_of_any_size_change_nothing(samples: int, shared: bool, monkeypatch: pytest.MonkeyPatch):
    models = Models()
    params, statistics = models.params, models.statistics
    if shared:
        params, statistics = params[1].expand(7, -1), statistics[1].expand(7, -1)
    expected = scored(models.reference, params, statistics, models.ids)
    calls: list[int] = []
    forward = models.engine.forward

    def counting(parts: Any, own: Tensor, x: Tensor, **how: Any) -> Any:
        calls.append(x.shape[0] * x.shape[1])
        return forward(parts, own, x, **how)

    models.engine.forward = counting
    monkeypatch.setattr(module_of_scores, "_EVALUATION_BYTES", samples * 16 * 5 * 8)
    assert_scores(scored(models.engine, params, statistics, models.ids), expected)
    assert max(calls) <= samples
    assert len(calls) >= sum(TEST_SIZES) // samples


@pytest.mark.parametrize("outputs", [(), (3,), (2, 2)])
def test_squared_errors_are_scored_alike(outputs: tuple[int, ...]):
    task = numbers((4,), outputs)
    models = Models(lambda: seeded(lambda: Mlp((4,), outputs, (9,))), task)
    expected = scored(models.reference, models.params, models.statistics, models.ids)
    assert_scores(scored(models.engine, models.params, models.statistics, models.ids), expected)
    assert_scores(Scores(expected.metric, expected.loss), Scores(expected.loss, expected.metric))
    one = models.params[3].expand(7, -1)
    assert_scores(
        scored(models.engine, one, models.statistics, models.ids),
        scored(models.reference, one, models.statistics, models.ids),
    )


def test_nothing_is_dropped_in_evaluation():
    models = Models(lambda: seeded(lambda: mlp(nn.ReLU(), nn.Dropout(0.5))))
    first = scored(models.engine, models.params, models.statistics, models.ids)
    assert_scores(scored(models.engine, models.params, models.statistics, models.ids), first, 0)
    assert_scores(scored(models.reference, models.params, models.statistics, models.ids), first)
